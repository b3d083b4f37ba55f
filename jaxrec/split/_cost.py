"""An estimate of what a cell costs, for choosing how many calls a wave should hold."""

from __future__ import annotations

from typing import NamedTuple

from jaxrec.graph._flops import work_of
from jaxrec.graph._ir import Graph, Region, Switch, has_call
from jaxrec.split._cells import Cell, Cells


def cell_flops(cell: Cell) -> float:
    """The arithmetic of one call of a cell, in floating-point operations."""
    return sum(work.flops for work in work_of(cell.ops))


def cell_bytes(cell: Cell) -> int:
    """The bytes of all that a call of a cell computes: its derivative needs no more of them."""
    made = ((work.times, aval) for work in work_of(cell.ops) for aval in work.outs)
    return sum(times * aval.size * aval.dtype.itemsize for times, aval in made)


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
    return sum(work.time_in_flops for work in work_of(cell.ops, _TURNS))


def shared_elements(cell: Cell) -> int:
    """Elements of the matrices that a wave of a cell reads once for all its rows."""
    products = (work for work in work_of(cell.ops) if work.name == "dot_general")
    return sum(max(aval.size for aval in work.ins) for work in products)
