"""What one call does of each kind: the calls that it surely makes, the most that it uses."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from jaxrec.graph._ir import Call, Graph, Region, Switch
from jaxrec.split._cells import Cell, Cells
from jaxrec.split._program import CellSpec

_DEEPEST = 32
"""How many calls inside one another are looked at for what a call surely calls."""


def sure_calls(graph: Graph, cells: Cells) -> dict[Cell, int]:
    """For each cell, the frames that a frame surely adds if it fires the cell.

    That are those between it and the next frames of its function, these included: no two frames of
    a function add the same.
    """
    found: dict[Cell, int] = {}

    def visit(region: Region, outside: int, known: dict[int, int]) -> None:
        calls = outside + sum(_below(graph, op.callee, known) for op in _calls(graph, region))
        for level in cells.blocks[region].levels:
            if level.cell is not None:
                found[level.cell] = calls
            for op in level.ops:
                if isinstance(op, Switch):
                    for inner in op.regions:
                        visit(inner, calls, known)

    for number, function in enumerate(graph.functions):
        visit(function.body, 0, {number: 1})
    return found


def _below(graph: Graph, function: int, known: dict[int, int], depth: int = 0) -> int:
    """How many frames a call is at least: itself, and what it surely calls.

    Args:
        graph: the program.
        function: the one that is called.
        known: those that have been counted; one that calls itself in any case counts as one.
        depth: how many calls it is inside of.
    """
    if function not in known:
        if depth == _DEEPEST:
            return 1
        known[function] = 1
        calls = _calls(graph, graph.functions[function].body)
        known[function] += sum(_below(graph, op.callee, known, depth + 1) for op in calls)
    return known[function]


def _calls(graph: Graph, region: Region) -> list[Call]:
    """The calls of a region, other than in choices, that make frames of their own."""
    calls = (op for op in region.ops if isinstance(op, Call))
    return [op for op in calls if not graph.functions[op.callee].memo]


def most_of(
    graph: Graph,
    cells: Cells,
    specs: Sequence[CellSpec],
    count: int,
    uses: Any,
    total: bool = False,
) -> tuple[int, ...]:
    """The most that one call can use of each of `count` resources, over all paths."""

    def region_uses(region: Region) -> collections.Counter[int]:
        used: collections.Counter[int] = collections.Counter()
        for level in cells.blocks[region].levels:
            if level.cell is not None:
                used.update(uses(specs[level.cell.index]))
            for op in level.ops:
                if isinstance(op, Switch):
                    used += _largest([region_uses(inner) for inner in op.regions], total)
        return used

    worst = _largest([region_uses(f.body) for f in graph.functions], total)
    return tuple(worst[k] for k in range(count))


def _largest(options: Sequence[collections.Counter[int]], total: bool) -> collections.Counter[int]:
    if total:
        return max(options, key=lambda used: used.total())
    merged: collections.Counter[int] = collections.Counter()
    for used in options:
        merged |= used
    return merged
