"""Whether a wave can hold several calls of one root.

Where a call makes one call at most, the calls of a root nest in each other. A cell that reads, by
way of others, what it has written for the call below or above runs for one of them after the other:
then as many calls are ready as there are roots, and wider waves would be compiled in vain.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from jaxrec.graph._ir import Call, Graph, Region, Switch, Value, walk
from jaxrec.split._bound import Visits, calls_on_a_path, most_frames
from jaxrec.split._cells import Cell, Cells

_Sources = dict[Value, set[Value]]


def are_in_step(graph: Graph, cells: Cells, visits: Sequence[Visits]) -> bool:
    """Whether the calls of one root fire every cell one after the other."""
    if any(sum(v.calls) > 1 for v in visits):
        return False
    once = {k for k, frames in enumerate(most_frames(visits)) if frames == 1}
    ends = {cell for f in graph.functions for cell in _last(cells, f.body, 0)}
    sources = _sources(graph, cells)
    return all(
        cell.function in once or cell in ends or _leads_back(cell, sources) for cell in cells.cells
    )


def _last(cells: Cells, region: Region, calls: int) -> Iterator[Cell]:
    """The cells on whose paths no call is made: they end the nest."""
    calls += sum(isinstance(op, Call) for op in region.ops)
    for level in cells.blocks[region].levels:
        if level.cell is not None and not calls and not calls_on_a_path(region).total():
            yield level.cell
        for op in level.ops:
            if isinstance(op, Switch):
                for inner in op.regions:
                    yield from _last(cells, inner, calls)


def _sources(graph: Graph, cells: Cells) -> _Sources:
    """What each value on tapes is made from; of another call where it passes from call to call."""
    found: _Sources = collections.defaultdict(set)

    def follows(value: Value, *atoms: object) -> None:
        found[value].update(atom for atom in atoms if isinstance(atom, Value))

    for cell in cells.cells:
        for _, value in cell.outputs:
            follows(value, *cell.inputs)
    for op in (op for function in graph.functions for op in walk(function.body)):
        if isinstance(op, Call):
            for param, atom in graph.arguments(op):
                follows(param, atom)
            results = graph.functions[op.callee].body.results
            for value, atom in zip(op.outputs, results, strict=True):
                follows(value, atom)
        elif isinstance(op, Switch):
            for value in op.outputs:
                follows(value, *op.sources(value)[1:])
    return found


def _leads_back(cell: Cell, sources: _Sources) -> bool:
    """Whether a cell reads what it has written, maybe by way of others."""
    seen, more = set[Value](), set(cell.inputs)
    while more:
        seen |= more
        more = set().union(*(sources[value] for value in more if value in sources)) - seen
    return any(value in seen for _, value in cell.outputs)
