"""An estimate of what a cell costs, for choosing how many calls a wave should hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import jaxprs_in_params

from jaxrec.graph._ir import Op, Prim, Switch
from jaxrec.split._cells import Cell

_ELEMENT_FLOPS = 10.0
"""What an element of any other operation costs: memory traffic and transcendental functions."""


class _Equation(NamedTuple):
    """An operation of a cell, how often a call carries it out, and what it is from and to."""

    times: int
    name: str
    params: Any
    ins: list[Any]
    outs: list[Any]


def cell_flops(cell: Cell) -> float:
    """The arithmetic of one call of a cell, in floating-point operations."""
    return sum(e.times * _flops(e.name, e.params, e.ins, e.outs) for e in _equations(cell.ops))


def shared_elements(cell: Cell) -> int:
    """Elements of the matrices that a wave of a cell reads once for all its rows."""
    return sum(
        max(aval.size for aval in e.ins) for e in _equations(cell.ops) if e.name == "dot_general"
    )


def _equations(ops: Sequence[Op]) -> Iterator[_Equation]:
    for op in ops:
        if isinstance(op, Prim):
            avals = [a.aval for a in op.inputs], [v.aval for v in op.outputs]
            yield from _expanded(_Equation(1, op.name, op.eqn.params, *avals))
        elif isinstance(op, Switch):
            for region in op.regions:
                yield from _equations(region.ops)


def _expanded(outer: _Equation) -> Iterator[_Equation]:
    """An operation, or the ones inside of it; of a loop whose turns are not known, those of one."""
    inner = list(jaxprs_in_params(outer.params))
    if not inner:
        yield outer
    times = outer.times * (outer.params["length"] if outer.name == "scan" else 1)
    for jaxpr in inner:
        for eqn in jaxpr.eqns:
            avals = [v.aval for v in eqn.invars], [v.aval for v in eqn.outvars]
            yield from _expanded(_Equation(times, eqn.primitive.name, eqn.params, *avals))


def _flops(name: str, params: Any, ins: list[Any], outs: list[Any]) -> float:
    size = sum(aval.size for aval in outs)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2.0 * size * math.prod(ins[0].shape[axis] for axis in contracted)
    return _ELEMENT_FLOPS * size if size > 1 else 0.0
