"""The text of a graph: its `repr`, which documentation and tests show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jaxrec.graph._ir import Atom, Call, Function, Graph, Op, Prim, Region, Switch
from jaxrec.trace._signature import show


def format_graph(graph: Graph) -> str:
    """Writes a graph, a line an operation, regions indented."""
    captured = [f"captured {v.variable or 'array'} {v}: {show(v.aval)}" for v in graph.captured]
    return "\n".join([*captured, *("\n".join(_function(graph, f)) for f in graph.functions)])


def _function(graph: Graph, function: Function) -> Iterator[str]:
    args = ", ".join(
        f"{name} {value}: {show(value.aval)}"
        for name, value in zip(function.param_names, function.params, strict=True)
    )
    yield f"{'shared ' if function.memo else ''}function {function.name}({args})"
    yield from _region(graph, function.body, 1)
    yield f"  Result {_atoms(function.body.results)}"


def _region(graph: Graph, region: Region, depth: int) -> Iterator[str]:
    for op in region.ops:
        yield from _op(graph, op, depth)


def _op(graph: Graph, op: Op, depth: int) -> Iterator[str]:
    indent, outs = "  " * depth, _atoms(op.outputs)
    if isinstance(op, Call):
        name = graph.functions[op.callee].name
        yield f"{indent}Call_{op.site} {name}({_atoms(op.inputs)})"
        yield f"{indent}{outs} = Return_{op.site} {name}"
    elif isinstance(op, Switch):
        yield f"{indent}Switch {op.index}"
        for k, region in enumerate(op.regions):
            yield f"{indent}  region {k}"
            yield from _region(graph, region, depth + 2)
            yield f"{indent}    yield {_atoms(region.results)}"
        yield f"{indent}{outs} = Merge" if outs else f"{indent}Merge"
    else:
        yield indent + format_prim(op)


def format_prim(op: Prim) -> str:
    """Writes an operation: what it makes, of what, and the types of it."""
    shown = f"{op.name}({_atoms(op.inputs)})"
    types = ", ".join(show(v.aval) for v in op.outputs)
    return f"{_atoms(op.outputs)} = {shown}: {types}" if op.outputs else shown


def _atoms(atoms: Sequence[Atom]) -> str:
    return ", ".join(map(repr, atoms))
