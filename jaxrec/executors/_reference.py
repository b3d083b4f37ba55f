"""The definitional interpreter of the graph: what a recursive function means.

One call at a time, in the order of plain Python recursion, no batching and no schedule. A call is
a Python generator that yields the calls it makes, so depth is bounded by memory, not by Python's
stack. Control values are read as they are needed; arrays may be tracers, so the interpreter is
differentiable by JAX.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrec import _compat
from jaxrec._errors import JaxRecError, RecursionLimitError
from jaxrec.graph._ir import Atom, Call, Const, Graph, Op, Prim, Region, Switch, Value
from jaxrec.schedule._plan import CALL_LIMIT

Env = dict[Value, Any]
Frame = Generator[tuple[Call, list[Any]], list[Any], list[Any]]


class Interpreter:
    """Runs the functions of a graph.

    Attributes:
        calls: the calls made, as `(function, arguments, results)`, in the order of their start.
    """

    def __init__(self, graph: Graph, captured: Sequence[Any]) -> None:
        self._graph = graph
        self._captured = dict(zip(graph.captured, captured, strict=True))
        self.calls: list[tuple[int, list[Any], list[Any]]] = []

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Calls the entry function."""
        stack: list[Frame] = []
        path: list[str] = [self._graph.entry.name]
        open_calls: list[int] = []
        self._enter(stack, open_calls, 0, list(args))
        results: list[Any] | None = None
        while stack:
            try:
                op, values = stack[-1].send(results)  # type: ignore[arg-type]
                path.append(f"{self._graph.functions[op.callee].name}[{op.site}]")
                self._enter(stack, open_calls, op.callee, values)
                self._check_limit(path)
                results = None
            except StopIteration as done:
                stack.pop()
                path.pop()
                results = done.value
                function, values, _ = self.calls[open_calls[-1]]
                self.calls[open_calls.pop()] = (function, values, done.value)
        assert results is not None
        return results

    def _enter(
        self, stack: list[Frame], open_calls: list[int], function: int, values: list[Any]
    ) -> None:
        open_calls.append(len(self.calls))
        self.calls.append((function, values, []))
        stack.append(self._frame(function, values))

    def _check_limit(self, path: list[str]) -> None:
        if len(self.calls) > CALL_LIMIT:
            shown = [*path[:3], f"({len(path) - 5} more)", *path[-2:]]
            raise RecursionLimitError(
                f"{self._graph.entry.name} made more than {CALL_LIMIT} calls without ending. "
                f"Call path: {' -> '.join(shown)}"
            )

    def _frame(self, function: int, values: list[Any]) -> Frame:
        definition = self._graph.functions[function]
        env: Env = {**self._captured, **dict(zip(definition.params, values, strict=True))}
        return self._region(definition.body, env)

    def _region(self, region: Region, env: Env) -> Frame:
        for op in region.ops:
            env.update(zip(op.outputs, (yield from self._op(op, env)), strict=True))
        return [_read(env, atom) for atom in region.results]

    def _op(self, op: Op, env: Env) -> Frame:
        if isinstance(op, Call):
            return (yield op, [_read(env, a) for a in op.inputs])
        if isinstance(op, Switch):
            chosen = min(max(int(_read(env, op.index)), 0), len(op.regions) - 1)
            return (yield from self._region(op.regions[chosen], dict(env)))
        values = [_read(env, a) for a in op.inputs]
        self._check_index(op, values)
        return _compat.bind_equation(op.eqn, values)

    def _check_index(self, op: Prim, values: Sequence[Any]) -> None:
        """A read of one element by an index that is out of range is an error, not a clamp."""
        if op.name != "dynamic_slice" or not all(map(_compat.is_concrete, values[1:])):
            return
        array, sizes = values[0], op.eqn.params["slice_sizes"]
        for axis, (start, size) in enumerate(zip(values[1:], sizes, strict=True)):
            if size < np.shape(array)[axis] and not 0 <= int(start) <= np.shape(array)[axis] - size:
                raise JaxRecError(
                    f"{self._graph.entry.name} read element {int(start)} of an array of "
                    f"{np.shape(array)[axis]} elements (axis {axis}). Check the indices."
                )


def _read(env: Env, atom: Atom) -> Any:
    if isinstance(atom, Const):
        return jnp.asarray(atom.value, atom.aval.dtype)
    return env[atom]
