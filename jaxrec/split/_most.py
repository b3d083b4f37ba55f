"""What one call does of each kind: the calls that it surely makes, the most that it uses."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from jaxrec.graph._ir import Call, Graph, Region, Switch
from jaxrec.split._cells import Cell, Cells
from jaxrec.split._program import CellSpec


def sure_calls(graph: Graph, cells: Cells) -> dict[Cell, int]:
    """For each cell, the frames that a frame surely adds if it fires the cell.

    That are those between it and the next frames of its function, these included: no two frames of
    a function add the same.
    """
    found: dict[Cell, int] = {}

    def visit(region: Region, outside: int) -> None:
        calls = outside + sum(below(op.callee) for op in _calls(graph, region))
        for level in cells.blocks[region].levels:
            if level.cell is not None:
                found[level.cell] = calls
            for op in level.ops:
                if isinstance(op, Switch):
                    for inner in op.regions:
                        visit(inner, calls)

    for number, function in enumerate(graph.functions):
        below = _Below(graph, number)
        visit(function.body, 0)
    return found


class _Below:
    """How many frames a call of a function is at least: itself, and what it surely calls.

    Frames of the function `above`, and of one that calls itself in any case, count as one.
    """

    def __init__(self, graph: Graph, above: int) -> None:
        self._graph, self._found = graph, {above: 1}

    def __call__(self, function: int) -> int:
        if function not in self._found:
            self._found[function] = 1
            calls = _calls(self._graph, self._graph.functions[function].body)
            self._found[function] = 1 + sum(self(op.callee) for op in calls)
        return self._found[function]


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
