"""How many calls of one root are ready for a cell at once, where they run one after the other.

Functions each of whose calls makes one call of them at most are a *chain*. A cell of a chain that
reads, by way of others, what it has written for the call below or above runs for one of them after
the other. So as many calls are ready as there are chains, and wider waves would be compiled in
vain. It is a guess where only some branches pass on what a cell has written: waves may then be
narrower than they could be.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterator, Sequence

from jaxrec.graph._ir import Call, Graph, Region, Switch, Value, walk
from jaxrec.split._bound import Visits, most_frames
from jaxrec.split._cells import Cell, Cells

_Sources = dict[Value, set[Value]]


def most_ready(graph: Graph, cells: Cells, visits: Sequence[Visits]) -> tuple[int | None, ...]:
    """For each cell the calls of one root that are ready for it at once; None: any number."""
    frames = most_frames(visits)
    chains = [_chains(graph, visits, k) for k in range(len(visits))]
    ends = {cell for f in graph.functions for cell in _last(cells, f.body)}
    sources = _sources(graph, cells)

    def of(cell: Cell) -> int | None:
        if frames[cell.function] is not None:
            return frames[cell.function]
        return chains[cell.function] if cell in ends or _leads_back(cell, sources) else None

    return tuple(map(of, cells.cells))


def _chains(graph: Graph, visits: Sequence[Visits], index: int) -> int | None:
    """How many chains of a function that leads back to itself there are, for each root."""
    reached = [_reached(visits, k) for k in range(len(visits))]
    group = {k for k in reached[index] if index in reached[k]}
    if any(_most_calls(graph.functions[k].body, group) > 1 for k in group):
        return None
    frames, begun = most_frames(visits), int(0 in group)
    for k in set(range(len(visits))) - group:
        calls = sum(visits[k].calls[callee] for callee in group)
        if calls and frames[k] is None:
            return None
        begun += calls * (frames[k] or 0)
    return begun


def _reached(visits: Sequence[Visits], index: int) -> set[int]:
    """The functions that one leads to, itself if by way of others or at once."""
    found, more = set[int](), {index}
    while more:
        more = {c for k in more for c, calls in enumerate(visits[k].calls) if calls} - found
        found |= more
    return found


def _most_calls(region: Region, callees: Collection[int]) -> int:
    """The most calls of some functions on any path through a region."""
    total = 0
    for op in region.ops:
        if isinstance(op, Call):
            total += op.callee in callees
        elif isinstance(op, Switch):
            total += max(_most_calls(inner, callees) for inner in op.regions)
    return total


def _last(cells: Cells, region: Region) -> Iterator[Cell]:
    """The cells on whose paths no call is made: they end a chain."""
    if any(isinstance(op, Call) for op in region.ops):
        return
    calls = any(isinstance(op, Call) for op in walk(region))
    for level in cells.blocks[region].levels:
        if level.cell is not None and not calls:
            yield level.cell
        for op in level.ops:
            if isinstance(op, Switch):
                for inner in op.regions:
                    yield from _last(cells, inner)


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
