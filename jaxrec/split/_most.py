"""What one call does of each kind: the calls that it surely makes, the most that it uses."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from jaxrec.graph._ir import Call, Graph, Region, Switch
from jaxrec.split._cells import Cell, Cells
from jaxrec.split._program import CellSpec


def sure_calls(graph: Graph, cells: Cells) -> dict[Cell, int]:
    """For each cell, the frames that a frame surely adds if it fires the cell."""
    found: dict[Cell, int] = {}
    shared = [function.memo for function in graph.functions]

    def visit(region: Region, outside: int) -> None:
        added = [op for op in region.ops if isinstance(op, Call) and not shared[op.callee]]
        calls = outside + len(added)
        for level in cells.blocks[region].levels:
            if level.cell is not None:
                found[level.cell] = calls
            for op in level.ops:
                if isinstance(op, Switch):
                    for inner in op.regions:
                        visit(inner, calls)

    for function in graph.functions:
        visit(function.body, 0)
    return found


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
