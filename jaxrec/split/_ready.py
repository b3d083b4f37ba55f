"""How many calls of one root are ready for a cell at once, where they run one after the other.

A *chain* is a set of functions in which every call makes at most one further call of the set. A
cell of a chain that reads, by way of others, what it has written for the call below or above runs
for one of them after the other. So as many calls are ready as there are chains, and wider waves
would be compiled in vain. It is a guess where only some branches pass on what a cell has written:
waves may then be narrower than they could be.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from jaxrec._transitive import transitive
from jaxrec.graph._ir import Call, Graph, Region, Switch, Value, walk
from jaxrec.split._bound import Visits, calls_on_path, most_frames
from jaxrec.split._cells import Cell, Cells

_Sources = dict[Value, set[Value]]


def most_ready(graph: Graph, cells: Cells, visits: Sequence[Visits]) -> tuple[int | None, ...]:
    """For each cell the calls of one root that are ready for it at once; None: any number."""
    frames = most_frames(visits)
    open_ended = [k for k, most in enumerate(frames) if most is None]
    chains = _Chains(graph, visits, frames, {k: _reached(visits, k) for k in open_ended})
    sources = _sources(graph, cells) if open_ended else {}
    ends = {
        cell
        for k in open_ended
        if chains.is_recursive(k)
        for cell in _last(cells, graph.functions[k].body)
    }

    def of(cell: Cell) -> int | None:
        most = chains.of(cell.function)
        is_in_turn = frames[cell.function] is not None or cell in ends
        return most if is_in_turn or _leads_back(cell, sources) else None

    return tuple(map(of, cells.cells))


def _reached(visits: Sequence[Visits], index: int) -> set[int]:
    """The functions that one leads to, itself if by way of others or at once."""

    def called(k: int) -> list[int]:
        return [c for c, calls in enumerate(visits[k].calls) if calls]

    return transitive(called(index), called)


@dataclasses.dataclass
class _Chains:
    """How many chains of each function there are for each root; None if its calls are none.

    Attributes:
        graph: the graph.
        visits: what each function calls.
        frames: how often each is called, where that is known.
        leads: what those lead to for which it is not.
        known: what has been found.
    """

    graph: Graph
    visits: Sequence[Visits]
    frames: Sequence[int | None]
    leads: Mapping[int, set[int]]
    known: dict[int, int | None] = dataclasses.field(default_factory=dict)

    def is_recursive(self, index: int) -> bool:
        return index in self.leads.get(index, ())

    def of(self, index: int) -> int | None:
        """The chains of a function; the calls of one that is called along chains of others."""
        if index not in self.known:
            self.known[index] = self._find(index)
        return self.known[index]

    def _find(self, index: int) -> int | None:
        if self.frames[index] is not None:
            return self.frames[index]
        group = {index} | {k for k in self.leads[index] if index in self.leads.get(k, ())}
        bodies = [self.graph.functions[k].body for k in group]
        if any(calls_on_path(body, group.__contains__)[True] > 1 for body in bodies):
            return None
        begun = int(0 in group)
        for k in set(range(len(self.visits))) - group:
            calls = sum(self.visits[k].calls[callee] for callee in group)
            if calls:
                most = None if self._nests(k, index) else self.of(k)
                if most is None:
                    return None
                begun += calls * most
        return begun

    def _nests(self, caller: int, index: int) -> bool:
        """Whether a chain begins in each call of another."""
        return self.frames[caller] is None and self.is_recursive(index)


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
    for op in graph.ops:
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
    seen = transitive(cell.inputs, lambda value: sources.get(value, ()))
    return any(value in seen for _, value in cell.outputs)
