"""Cells: the call-free regions of a function body, each fired for many calls at a time.

The data operations of a region are grouped by *level*: level 0 needs no call of the region, level
k + 1 needs a result of a call at level k. All operations of one level are one cell, so a cell is
as large as the calls allow. Three rules keep the traffic between cells low:

* an operation that needs only outer values and control scalars, and is cheap (an embedding
  look-up, a mask), is repeated in each cell that uses it;
* a cheap operation moves down to the level of its first use;
* what a region must hand over without computing it (a constant, an outer value, an index) is
  written by the cell of its level, so that every value that flows between calls sits in a tape.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence

from jaxrec._equation import bind_equation
from jaxrec._linear import has_backward_rule, is_linear
from jaxrec.graph._flops import LOOPS, PRODUCTS
from jaxrec.graph._ir import (
    Atom,
    Call,
    Function,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    first_free_id,
    free_atoms,
    names_of,
)
from jaxrec.split._binding import Binding
from jaxrec.split._live import live_values

_HEAVY = PRODUCTS | LOOPS | {"sort", "cumsum", "cond"}


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """A maximal call-free piece of a body.

    Attributes:
        index: its number in the program.
        function: the function that it belongs to.
        name: as reports print it.
        ops: its operations, in order.
        outers: outer values that it reads (values at the root).
        exports: control scalars that it reads, one a call; the last of them are those `compared`.
        compared: floats that it takes from control, and computes for their derivatives alone.
        inputs: tape values that it reads.
        outputs: what it writes to tapes: the atom to evaluate and the value it is known as.
    """

    index: int
    function: int
    name: str
    ops: tuple[Op, ...]
    outers: tuple[Value, ...]
    exports: tuple[Value, ...]
    compared: tuple[Value, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[tuple[Atom, Value], ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """A cell and the calls and choices that follow it."""

    cell: Cell | None
    ops: tuple[Op, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Block:
    """A region split into levels.

    Attributes:
        levels: in the order in which a frame runs them.
        handed: the tape value that stands for an atom the region hands over uncomputed.
    """

    levels: tuple[Level, ...]
    handed: dict[Atom, Value]


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """The cells of a program and how its regions use them."""

    cells: tuple[Cell, ...]
    blocks: dict[Region, Block]
    live: frozenset[Value]


def split_cells(graph: Graph, binding: Binding) -> Cells:
    """Groups the data operations of a graph into cells."""
    live = live_values(graph, binding)
    splitter = _Splitter(graph, binding, live, itertools.count(first_free_id(graph)))
    for k, function in enumerate(graph.functions):
        splitter.function(k, function)
    return Cells(tuple(splitter.cells), splitter.blocks, live)


class _Splitter:
    def __init__(
        self, graph: Graph, binding: Binding, live: frozenset[Value], ids: Iterator[int]
    ) -> None:
        self.graph, self.binding, self.live, self.ids = graph, binding, live, ids
        self.cells: list[Cell] = []
        self.blocks: dict[Region, Block] = {}
        self.floating: dict[Value, Op] = {}
        self.merge_of = {
            region: op.outputs
            for op in graph.ops
            if isinstance(op, Switch)
            for region in op.regions
        }

    def function(self, index: int, function: Function) -> None:
        users = _Users(function, self.binding)
        self._region(index, function.body, function.name, users)

    def is_cell_op(self, op: Op) -> bool:
        """Whether an operation runs inside a cell, as opposed to deciding what runs."""
        return isinstance(op, Prim) or (
            isinstance(op, Switch) and not self.binding.is_control_switch(op)
        )

    def is_tape_value(self, atom: Atom) -> bool:
        """Whether a value reaches its readers through a tape."""
        return isinstance(atom, Value) and atom in self.live and atom not in self.floating

    def data_inputs(self, op: Op) -> list[Atom]:
        """The operands of a call that its callee's cells need."""
        if isinstance(op, Call):
            params = self.graph.functions[op.callee].params
            return [a for a, p in zip(op.inputs, params, strict=True) if p in self.live]
        return []

    def _region(self, index: int, region: Region, name: str, users: _Users) -> None:
        level_of, op_level = self._levels(region, users)
        handed: dict[Atom, Value] = {}
        hand_level: dict[Atom, int] = {}
        for atom in self._handed_atoms(region, region.results):
            handed[atom] = Value(next(self.ids), atom.aval)
            hand_level[atom] = level_of.get(atom, 0)
        top = max([*op_level.values(), *hand_level.values()], default=0)
        levels = []
        for k in range(top + 1):
            mine = [op for op in region.ops if op_level.get(op) == k]
            cell_ops = [op for op in mine if self.is_cell_op(op)]
            written = [(a, handed[a]) for a in handed if hand_level[a] == k]
            cell = self._cell(index, f"{name}.{len(self.cells)}", cell_ops, written, users)
            rest = tuple(op for op in mine if not self.is_cell_op(op))
            levels.append(Level(cell, rest))
        self.blocks[region] = Block(tuple(levels), handed)
        for op in region.ops:
            if isinstance(op, Switch) and not self.is_cell_op(op):
                for inner in op.regions:
                    self._region(index, inner, name, users)

    def _handed_atoms(self, region: Region, results: Sequence[Atom]) -> list[Atom]:
        """What the region passes on that no tape holds: in calls' arguments and its results."""
        atoms = [a for op in region.ops for a in self.data_inputs(op)]
        atoms += self._live_results(region, results)
        return [a for a in dict.fromkeys(atoms) if not self.is_tape_value(a)]

    def _live_results(self, region: Region, results: Sequence[Atom]) -> list[Atom]:
        merged = self.merge_of.get(region)
        if merged is None:
            return list(results)
        return [a for a, out in zip(results, merged, strict=True) if out in self.live]

    def _levels(self, region: Region, users: _Users) -> tuple[dict[Atom, int], dict[Op, int]]:
        level_of: dict[Atom, int] = {}
        op_level: dict[Op, int] = {}
        for op in region.ops:
            level = max((level_of.get(atom, 0) for atom in free_atoms(op)), default=0)
            waits = 0 if isinstance(op, Prim) or self.is_cell_op(op) else 1
            level_of.update((value, level + waits) for value in op.outputs)
            if waits:
                op_level[op] = level
            elif self._is_floating(op):
                self.floating.update((value, op) for value in op.outputs)
            elif any(value in self.live for value in op.outputs):
                op_level[op] = level
        self._sink(region, users, level_of, op_level)
        return level_of, op_level

    def _is_floating(self, op: Op) -> bool:
        if self.binding.imports.intersection(op.outputs) or not _adds_up(op):
            return False
        if self.binding.derived.issuperset(op.outputs):
            return True
        return not _is_heavy(op) and not any(self.is_tape_value(a) for a in free_atoms(op))

    def _sink(
        self,
        region: Region,
        users: _Users,
        level_of: dict[Atom, int],
        op_level: dict[Op, int],
    ) -> None:
        results = set(region.results)
        for op in reversed(region.ops):
            if op not in op_level or not self.is_cell_op(op) or _is_heavy(op):
                continue
            if (results | self.binding.imports).intersection(op.outputs):
                continue
            uses = [use for value in op.outputs for use in users.of(value)]
            uses = [use for use in uses if use in op_level or self.is_cell_op(use)]
            if uses and all(use in op_level and self.is_cell_op(use) for use in uses):
                op_level[op] = min(op_level[use] for use in uses)
                level_of.update((value, op_level[op]) for value in op.outputs)

    def _cell(
        self,
        function: int,
        name: str,
        ops: list[Op],
        handed: list[tuple[Atom, Value]],
        users: _Users,
    ) -> Cell | None:
        mine = set(ops)
        outputs: list[tuple[Atom, Value]] = [
            (value, value)
            for op in ops
            for value in op.outputs
            if value in self.live and (users.outside(value, mine) or value in self.binding.imports)
        ]
        outputs += handed
        if not outputs:
            return None
        all_ops = self._with_floating(ops, [atom for atom, _ in outputs])
        made = {value for op in all_ops for value in op.outputs}
        needed = [a for op in all_ops for a in free_atoms(op)] + [atom for atom, _ in outputs]
        inner = {v for op in all_ops if isinstance(op, Switch) for v in _inner_values(op)}
        free = [a for a in dict.fromkeys(needed) if isinstance(a, Value) and a not in made | inner]
        root = self.binding.outer_of
        exports = [a for a in free if a not in root and self.binding.is_export(a)]
        inputs = [a for a in free if a not in root and not self.binding.is_export(a)]
        own = [*inputs, *(v for op in all_ops for v in op.outputs)]
        compared = [v for v in own if v in self.binding.compared]
        cell = Cell(
            index=len(self.cells),
            function=function,
            name=name,
            ops=tuple(all_ops),
            outers=tuple(dict.fromkeys(root[a] for a in free if a in root)),
            exports=(*exports, *compared),
            compared=tuple(compared),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
        )
        self.cells.append(cell)
        return cell

    def _with_floating(self, ops: list[Op], outputs: list[Atom]) -> list[Op]:
        """Adds, in order, the floating operations that a cell needs."""

        def needed(atoms: Iterable[Atom]) -> list[Op]:
            values = (a for a in atoms if isinstance(a, Value) and a in self.floating)
            return [self.floating[v] for v in values if not self.binding.is_export(v)]

        ordered: dict[Op, None] = {}
        seen: set[Op] = set()
        todo = [*ops, *needed(outputs)][::-1]
        while todo:
            op = todo[-1]
            before = [] if op in seen else needed(free_atoms(op))
            seen.add(op)
            if before:
                todo += before[::-1]
            else:
                ordered[todo.pop()] = None
        return list(ordered)


class _Users:
    """Who reads each value of a function; a choice that a cell makes is one reader."""

    def __init__(self, function: Function, binding: Binding) -> None:
        self._binding = binding
        self._ops: dict[Atom, list[Op]] = {}
        self._results: set[Atom] = set()
        self._visit(function.body)

    def _visit(self, region: Region) -> None:
        self._results.update(region.results)
        for op in region.ops:
            inner = set(_inner_values(op)) if isinstance(op, Switch) else set()
            for atom in dict.fromkeys(free_atoms(op)):
                if atom not in inner:
                    self._ops.setdefault(atom, []).append(op)
            if isinstance(op, Switch) and self._binding.is_control_switch(op):
                for inner in op.regions:
                    self._visit(inner)

    def of(self, value: Value) -> list[Op]:
        return self._ops.get(value, [])

    def outside(self, value: Value, cell: set[Op]) -> bool:
        return value in self._results or any(op not in cell for op in self.of(value))


def _inner_values(op: Switch) -> Iterator[Value]:
    for region in op.regions:
        for inner in region.ops:
            yield from inner.outputs
            if isinstance(inner, Switch):
                yield from _inner_values(inner)


def _is_heavy(op: Op) -> bool:
    return isinstance(op, Switch) or not _HEAVY.isdisjoint(names_of(op))


def _adds_up(op: Op) -> bool:
    """Whether the derivatives of an operation in several cells add up to that of it in one."""
    if not isinstance(op, Prim) or not has_backward_rule(names_of(op)):
        return True
    return is_linear(lambda *x: bind_equation(op.eqn, x), [a.aval for a in op.inputs])
