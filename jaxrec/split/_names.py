"""What the core calls functions, arguments and arrays in messages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from jaxrec.graph._ir import Atom, Graph, Value


def shown_names(graph: Graph, params: Iterable[Sequence[Value]], arrays: Sequence[Value]) -> str:
    """A line for each name that the core puts in messages.

    The functions, then of each its control parameters, number by number, and "-" for one that is
    none of the user's, then the arrays that control reads.

    Args:
        graph: what the core runs.
        params: for each function those of its parameters that are control.
        arrays: what control reads.
    """
    lines = [f.name for f in graph.functions]
    for function, passed in zip(graph.functions, params, strict=True):
        own = dict(zip(function.params, function.param_names, strict=True))
        shown = (_numbers(own[v], v) if v not in function.told else "-" for v in passed)
        lines.append(" ".join(shown))
    known = dict(zip(graph.entry.params, graph.entry.param_names, strict=True))
    lines += [known.get(value) or unnamed(graph, value) for value in arrays]
    return "\n".join(lines)


def unnamed(graph: Graph, value: Atom) -> str:
    """What an array is called that is no argument."""
    if value not in graph.captured:
        return "a computed array"
    return getattr(value, "variable", "") or "a captured array"


def _numbers(name: str, param: Value) -> str:
    """The names of the numbers of a parameter: its own, or one for each element."""
    name = name.replace(" ", "")
    if not param.aval.shape:
        return name
    indices = np.ndindex(*param.aval.shape)
    return " ".join(f"{name}[{','.join(map(str, index))}]" for index in indices)
