"""An estimate of what a cell costs, for choosing how many calls a wave should hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from jax.extend.core import jaxprs_in_params

from jaxrec.graph._ir import Graph, Op, Prim, Region, Switch, has_call
from jaxrec.split._cells import Cell, Cells

_ELEMENT_FLOPS = 10.0
"""What an element of any other operation costs: memory traffic and transcendental functions."""

_TURN_FLOPS = 150.0
"""What an operation takes beside its elements in a turn of a loop."""

_COMPARED_FLOPS = 120.0
"""What sorting takes for an element and every doubling of their number."""

_LONG_FLOPS = dict.fromkeys(["random_bits", "random_fold_in", "random_split", "random_seed"], 2.5e4)
_LONG_FLOPS |= dict.fromkeys(["threefry2x32", "random_gamma", "random_clone"], 2.5e4)
_LONG_FLOPS |= dict.fromkeys(["lu", "cholesky", "qr", "eigh", "eig", "svd", "schur"], 1e5)
_LONG_FLOPS |= dict.fromkeys(["geqrf", "householder_product", "triangular_solve"], 1e5)
"""Operations that take long even where they are small."""

_CALLBACK_FLOPS = 8e5
"""What a call of Python takes."""


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


_TURNS = 100
"""How often a loop is taken to run, where recursion without end is to be found soon."""


class Nested(NamedTuple):
    """What one call takes of a recursion that only nests, at most.

    Attributes:
        cells: how many it fires before its last recursive call.
        flops: their arithmetic, and what takes as long.
    """

    cells: int
    flops: float


def nested_work(graph: Graph, cells: Cells) -> Nested:
    """What a call takes on the way down."""
    found = [_before_last_call(function.body, cells) for function in graph.functions]
    return Nested(*map(max, zip(*found, strict=True)))


def _before_last_call(region: Region, cells: Cells) -> Nested:
    work, until_call = Nested(0, 0.0), Nested(0, 0.0)
    for level in cells.blocks[region].levels:
        if level.cell is not None:
            work = Nested(work.cells + 1, work.flops + _time_in_flops(level.cell))
        for op in filter(has_call, level.ops):
            inner = op.regions if isinstance(op, Switch) else ()
            taken = [_before_last_call(x, cells) for x in inner] or [Nested(0, 0.0)]
            cost = Nested(*map(max, zip(*taken, strict=True)))
            until_call = Nested(work.cells + cost.cells, work.flops + cost.flops)
            # A call before the last one has returned: it has fired two cells, as the least one.
            work = Nested(until_call.cells + 2, until_call.flops)
    return until_call


def _time_in_flops(cell: Cell) -> float:
    return sum(map(_time, _equations(cell.ops, _TURNS)))


def _time(e: _Equation) -> float:
    if e.name == "sort":
        size = sum(aval.size for aval in e.outs)
        length = e.outs[0].shape[e.params["dimension"]]
        return e.times * _COMPARED_FLOPS * size * math.log2(max(length, 2))
    fixed = _CALLBACK_FLOPS if "callback" in e.name else _LONG_FLOPS.get(e.name, 0.0)
    # XLA makes one of many operations, but in each turn of a loop again.
    again = (e.times - 1) * _TURN_FLOPS
    return again + e.times * (fixed + _flops(e.name, e.params, e.ins, e.outs))


def shared_elements(cell: Cell) -> int:
    """Elements of the matrices that a wave of a cell reads once for all its rows."""
    return sum(
        max(aval.size for aval in e.ins) for e in _equations(cell.ops) if e.name == "dot_general"
    )


def _equations(ops: Sequence[Op], turns: int = 1) -> Iterator[_Equation]:
    """The operations of a cell; `turns` is how often a loop runs of which that is not known."""
    for op in ops:
        if isinstance(op, Prim):
            avals = [a.aval for a in op.inputs], [v.aval for v in op.outputs]
            yield from _expanded(_Equation(1, op.name, op.eqn.params, *avals), turns)
        elif isinstance(op, Switch):
            for region in op.regions:
                yield from _equations(region.ops, turns)


def _expanded(outer: _Equation, turns: int) -> Iterator[_Equation]:
    """An operation, or the ones inside of it."""
    inner = list(jaxprs_in_params(outer.params))
    if not inner:
        yield outer
    known = outer.params["length"] if outer.name == "scan" else 1
    times = outer.times * (turns if outer.name == "while" else known)
    for jaxpr in inner:
        for eqn in jaxpr.eqns:
            avals = [v.aval for v in eqn.invars], [v.aval for v in eqn.outvars]
            yield from _expanded(_Equation(times, eqn.primitive.name, eqn.params, *avals), turns)


def _flops(name: str, params: Any, ins: list[Any], outs: list[Any]) -> float:
    size = sum(aval.size for aval in outs)
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return 2.0 * size * math.prod(ins[0].shape[axis] for axis in contracted)
    return _ELEMENT_FLOPS * size if size > 1 else 0.0
