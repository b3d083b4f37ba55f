"""Bundles: values that always travel together share one tape row.

The results of a Tree-LSTM call are h and c, written by one cell and passed on side by side. As one
row of a tape they are gathered once instead of twice, and so are their cotangents. Tape classes
are bundled when control imports none of them, when every call, Merge, cell and parameter list that
has one of them has each of them once, and when every tuple of them that is passed on comes from one
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jax.core import ShapedArray

from jaxrec.graph._ir import Call, Function, Graph, Region, Switch, Value
from jaxrec.split._binding import Binding
from jaxrec.split._cells import Cells
from jaxrec.split._classes import Classes, result_values, tape_of

Candidate = tuple[int, ...]


class Bundles:
    """How tape values share rows.

    Attributes:
        members: for each bundled class, the types of its parts; one part where nothing is bundled.
        imports: the bundled classes that control reads.
    """

    def __init__(self, graph: Graph, binding: Binding, cells: Cells, classes: Classes) -> None:
        self._classes = classes
        self._parts: dict[Value, tuple[Value, ...]] = {}
        self._bundle_of: dict[int, Candidate] = {}
        sites = _Sites(graph, binding, cells)
        # In the order of the program: to ask for a class is to number it.
        imports = sorted(binding.imports, key=lambda value: value.id)
        imported = {classes.of(value) for value in imports}
        for candidate in _candidates(graph, sites, classes):
            if imported.intersection(candidate):
                continue
            parts = _instances(candidate, sites, classes)
            if parts is not None and not self._bundle_of.keys() & set(candidate):
                self._bundle_of.update(dict.fromkeys(candidate, candidate))
                self._parts.update(parts)
        self._numbers: dict[Candidate, int] = {}
        self.members: list[tuple[ShapedArray, ...]] = []
        self.imports = sorted({self.of(value) for value in imports})

    def parts(self, value: Value) -> tuple[Value, ...]:
        """The values that share a row with this one, itself included, in row order."""
        return self._parts.get(value, (value,))

    def first(self, value: Value) -> Value:
        """The value that names the row."""
        return self.parts(value)[0]

    def of(self, value: Value) -> int:
        """The number of the bundled class of a value."""
        own = self._classes.of(value)
        bundle = self._bundle_of.get(own, (own,))
        if bundle not in self._numbers:
            self._numbers[bundle] = len(self.members)
            self.members.append(tuple(self._classes.avals[c] for c in bundle))
        return self._numbers[bundle]

    def groups(self, values: Sequence[Value]) -> list[tuple[int, ...]]:
        """Positions of values by row: for each row the positions of its parts in `values`."""
        found: dict[object, list[int]] = {}
        for k, value in enumerate(values):
            row = self.first(value) if len(self.parts(value)) > 1 else k
            found.setdefault(row, []).append(k)
        return [tuple(sorted(g, key=lambda k: self._place(values[k]))) for g in found.values()]

    def rows(self, values: Sequence[Value]) -> list[Value]:
        """The values that name the rows of `groups(values)`."""
        return [self.first(values[group[0]]) for group in self.groups(values)]

    def _place(self, value: Value) -> int:
        return self.parts(value).index(value)


def row_type(parts: Sequence[ShapedArray]) -> ShapedArray:
    """The type of one row: of its only part, or a vector of all parts one after the other."""
    if len(parts) == 1:
        return parts[0]
    return ShapedArray((sum(a.size for a in parts),), parts[0].dtype)


class _Sites:
    """Where tape values are made together, and where they are passed on together."""

    def __init__(self, graph: Graph, binding: Binding, cells: Cells) -> None:
        self._graph, self._binding, self._cells = graph, binding, cells
        self.made: list[list[Value]] = []
        self.returned: list[list[Value]] = []
        self.passed: list[list[tuple[Value, Value]]] = []
        for function in graph.functions:
            self.made.append(self.params(function))
            self.returned.append(self.results(function))
            self._visit(function.body)

    def params(self, function: Function) -> list[Value]:
        """The parameters of a function that travel in tapes."""
        live, outer = self._cells.live, self._binding.outer_of
        return [p for p in function.params if p in live and p not in outer]

    def results(self, function: Function) -> list[Value]:
        """The tape values that a function returns."""
        return result_values(function.body, self._cells)

    def _visit(self, region: Region) -> None:
        block = self._cells.blocks[region]
        for level in block.levels:
            if level.cell is not None:
                self.made.append([v for _, v in level.cell.outputs])
            for op in level.ops:
                if isinstance(op, Call):
                    self._call(op, region)
                elif isinstance(op, Switch):
                    self._switch(op)

    def _call(self, op: Call, region: Region) -> None:
        callee = self._graph.functions[op.callee]
        handed = self._cells.blocks[region].handed
        wanted = set(self.params(callee))
        pairs = zip(op.inputs, callee.params, strict=True)
        self.passed.append([(tape_of(handed, a), p) for a, p in pairs if p in wanted])
        self.made.append(list(op.outputs))
        self.passed.append(list(zip(self.results(callee), op.outputs, strict=True)))

    def _switch(self, op: Switch) -> None:
        live = [v in self._cells.live for v in op.outputs]
        self.made.append([v for v, keep in zip(op.outputs, live, strict=True) if keep])
        for region in op.regions:
            handed = self._cells.blocks[region].handed
            rows = zip(region.results, op.outputs, live, strict=True)
            self.passed.append([(tape_of(handed, a), v) for a, v, keep in rows if keep])
            self._visit(region)


def _candidates(graph: Graph, sites: _Sites, classes: Classes) -> Iterator[Candidate]:
    """Sets of classes worth trying: the results, and the parameters, of one type of element."""
    for function in graph.functions:
        for values in (sites.results(function), sites.params(function)):
            by_dtype: dict[np.dtype[np.generic], list[int]] = {}
            for value in values:
                if isinstance(value.aval.dtype, np.dtype):
                    by_dtype.setdefault(value.aval.dtype, []).append(classes.of(value))
            for found in by_dtype.values():
                if len(found) > 1 and len(set(found)) == len(found):
                    yield tuple(found)


def _instances(
    candidate: Candidate, sites: _Sites, classes: Classes
) -> dict[Value, tuple[Value, ...]] | None:
    """The tuples of values that would share rows; None if some do not travel together."""
    parts: dict[Value, tuple[Value, ...]] = {}
    for values in sites.made:
        mine = [v for v in values if classes.of(v) in candidate]
        if mine:
            by_class = {classes.of(v): v for v in mine}
            if len(mine) != len(candidate) or len(by_class) != len(candidate):
                return None
            together = tuple(by_class[c] for c in candidate)
            parts.update(dict.fromkeys(together, together))
    for values in sites.returned:
        mine = [v for v in values if classes.of(v) in candidate]
        # One row, each part of it once.
        if mine and (len(mine) != len(candidate) or set(mine) != set(parts.get(mine[0], ()))):
            return None
    for pairs in sites.passed:
        ordered = {classes.of(to): value for value, to in pairs if classes.of(to) in candidate}
        if ordered:
            together = tuple(ordered[c] for c in candidate)
            if any(parts.get(v) != together for v in together):
                return None
    return parts
