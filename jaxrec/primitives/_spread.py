"""Invocations for examples that make the same calls, on the native machine: a root an example.

The machine decides a call in less time than the scheduler, needs no bound on calls, compiles
nothing and computes many examples in lockstep. So it runs them, but for two things that waves do at
once: what is shared by calls, and derivatives in many directions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxrec import _compat
from jaxrec.invocation._bounds import is_plannable
from jaxrec.invocation._params import Params
from jaxrec.primitives._batching import Batch, axis_size, with_axis_at
from jaxrec.primitives._native import is_native
from jaxrec.split._axes import Examples

_FEW_SHARED = 4
"""For how many examples the machine computes functions with `memo=True` sooner than waves do: it
has one worker and a table for them."""

_PASSES = 3
"""How many times as long as values waves take for values and derivatives."""

_FEW = {"graph": 128, "host": 2048}
"""By executor, for how many examples a pass in one direction takes no longer than one of waves."""


class Spread:
    """An invocation for some examples as one of more lanes.

    Attributes:
        params: parameters of the invocation of lanes.
        operands: its operands.
    """

    def __init__(self, params: Params, operands: Sequence[Any]) -> None:
        self.params, self.operands = params, list(operands)
        self._levels: list[tuple[Batch, list[Any]]] = []
        while self.params.program.single is not None:
            axis, dims = self.params.program.axes[-1], _dims(self.params)
            assert isinstance(axis, Examples)
            one = dataclasses.replace(self.params, program=self.params.program.for_one())
            batch = Batch(one.of_rows(axis.size), self.operands, dims, axis.size)
            self._levels.append((batch, dims))
            self.params, self.operands = batch.params, batch.operands

    def operand(self, k: int, x: Any) -> Any:
        """Lays out a value of the type of operand `k`."""
        for batch, dims in self._levels:
            x = batch.operand(k, x, dims[k])
        return x

    def together(self, outs: Sequence[Any]) -> list[Any]:
        """Results for the lanes, or tangents of them, by lane and example as before."""
        found = list(outs)
        for batch, _ in reversed(self._levels):
            found = [with_axis_at(x, 0, 1) for x in batch.split_outcome(found)[0]]
        return found


def is_spread(params: Params, operands: Sequence[Any]) -> bool:
    """Whether the native machine computes the values of an invocation for some examples."""
    return _is_known_to_it(params) and (
        not _is_shared(params)
        or params.program.examples < _FEW_SHARED
        or _is_undeclared(params, operands)
    )


def most_directions(params: Params, operands: Sequence[Any], most: int) -> int:
    """In how many directions it computes their derivatives, of `most` for one example; 0: none."""
    if not (is_native(params) or _is_known_to_it(params)):
        return 0
    examples = params.program.examples * _examples_behind(params, operands)
    if examples <= 1 or _is_undeclared(params, operands):
        return most
    few = _FEW_SHARED if _is_shared(params) else _FEW[params.executor]
    return min(most, max(_PASSES * few // examples - 1, 0))


def _is_known_to_it(params: Params) -> bool:
    program = params.program
    if program.single is None:
        return False
    while program.single is not None:
        program = program.for_one()
    return is_native(dataclasses.replace(params, program=program))


def _is_undeclared(params: Params, operands: Sequence[Any]) -> bool:
    """Whether no more is known of the calls than that there are as many as nodes, if that."""
    return params.bound is None and not is_plannable(params, operands)


def _is_shared(params: Params) -> bool:
    return any(function.memo for function in params.program.graph.functions)


def _examples_behind(params: Params, operands: Sequence[Any]) -> int:
    """How many examples there will be by the `vmap`s around that map no control."""
    count, values = 1, list(operands)
    while any(map(_compat.is_batched, values)):
        values, dims = map(list, zip(*_compat.unbatched_once(values), strict=True))
        if any(dims[k] is not _compat.not_mapped for k in params.controlling):
            return count
        count *= axis_size(values, dims)
    return count


def _dims(params: Params) -> list[Any]:
    """Where the operands have the outermost axis of examples."""
    axis = params.program.axes[-1]
    assert isinstance(axis, Examples)
    outers = [
        (0 if pattern is None else 1) if k in axis.mapped else _compat.not_mapped
        for k, pattern in enumerate(params.patterns)
    ]
    control = [_compat.not_mapped] * len(params.program.control)
    return [*outers, *control, *(1 for _ in params.program.data)]
