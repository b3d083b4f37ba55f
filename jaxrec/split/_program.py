"""A program split into planes: control bytecode for the scheduler, cells for XLA."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from jax.core import ShapedArray

from jaxrec import _core
from jaxrec._transitive import transitive
from jaxrec._types import has_derivative
from jaxrec.graph._ir import (
    Atom,
    Graph,
    Prim,
    Value,
    names_of,
    region_atoms,
)
from jaxrec.graph._moving import moving, ruled
from jaxrec.graph._patience import calls_host, has_to_wait, starts_recursion
from jaxrec.split._axes import Axis, Examples
from jaxrec.split._binding import Binding
from jaxrec.split._bound import Visits, most_frames
from jaxrec.split._bundles import row_type
from jaxrec.split._cache import Cache
from jaxrec.split._cells import Cell
from jaxrec.split._cost import Nested, cell_bytes
from jaxrec.split._native import NativeProgram, compile_native
from jaxrec.split._parts import Part, unread_parts


@dataclasses.dataclass(frozen=True, eq=False)
class CellSpec:
    """A cell with the tape classes that it reads and writes.

    Attributes:
        cell: its operations.
        outers: positions of its outer values among the program's.
        inputs: tape classes read, one for each row.
        outputs: tape classes written, one for each row.
        input_parts: the values that each row read holds, one after the other.
        output_parts: the atoms whose values each row written holds.
        calls: calls that the same frame surely makes whenever the cell fires, but for those of
            functions that are shared.
    """

    cell: Cell
    outers: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    input_parts: tuple[tuple[Value, ...], ...]
    output_parts: tuple[tuple[Atom, ...], ...]
    calls: int


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """What the stages after the split work from; compared by identity.

    Attributes:
        graph: the static tagged graph.
        binding: which plane each value belongs to.
        outers: the outer values: parameters of the entry function, then captured values.
        control: parameters of the entry function that the control machine takes, by position.
        data: parameters of the entry function that start in tapes, by position.
        cells: the cells.
        members: the types of the values that share a row of each tape class.
        data_rows: for each row of arguments of the root its class and the positions of its parts in
            `data`.
        result_rows: for each row of results its class and the positions of its parts in them.
        imports: the tape classes that control reads; if there are any, the program is stepped.
        control_outers: the arrays that the control machine reads, some computed beforehand.
        words: the encoded control program.
        names: the names that the scheduler puts in messages.
        writes: for each tape class, an upper bound on the rows that one call writes.
        reads: likewise for rows read.
        fires: an upper bound on the cells that one call fires.
        visits: for each function, how many elements of arrays its calls stand for.
        most_ready: for each cell the calls of one root that are ready for it at once, where that
            is known: see `jaxrec/split/_ready.py`.
        row_flops: arithmetic of one call of the most expensive cell.
        nested: what a call takes of a recursion that only nests.
        shared_elements: the most elements of matrices that a wave reads once for all its rows.
        tangents: of a program that computes derivatives, see `jaxrec/split/_tangents.py`.
        taken: for each derivative that has been taken of what the program computes the operands of
            operations with rules of their own that rested. The other rules were replaced by code.
        asked: the same for derivatives that will be taken next, as far as they are known.
        axes: those that every value in tapes has in front, innermost first.
        single: of a program for some examples (`jaxrec/split/_examples.py`) that for one.
        cache: what later stages have made from this program, so that it is made once.
    """

    graph: Graph
    binding: Binding
    outers: tuple[Value, ...]
    control: tuple[int, ...]
    data: tuple[int, ...]
    cells: tuple[CellSpec, ...]
    members: tuple[tuple[ShapedArray, ...], ...]
    data_rows: tuple[tuple[int, tuple[int, ...]], ...]
    result_rows: tuple[tuple[int, tuple[int, ...]], ...]
    imports: tuple[int, ...]
    control_outers: tuple[Value, ...]
    words: np.ndarray[Any, np.dtype[np.int64]]
    names: str
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    fires: int
    visits: tuple[Visits, ...]
    most_ready: tuple[int | None, ...]
    row_flops: float
    nested: Nested
    shared_elements: int
    tangents: frozenset[Value]
    taken: tuple[frozenset[Value], ...] = ()
    asked: tuple[frozenset[Value], ...] = ()
    axes: tuple[Axis, ...] = ()
    single: Program | None = None
    cache: Cache = dataclasses.field(default_factory=Cache, repr=False)

    @functools.cached_property
    def operands(self) -> tuple[Value, ...]:
        """The value that each operand of an invocation is."""
        return (*self.outers, *(self.graph.entry.params[k] for k in self.roots))

    @property
    def roots(self) -> tuple[int, ...]:
        """The parameters of the entry function that each root has of its own, by position."""
        return (*self.control, *self.data)

    @functools.cached_property
    def classes(self) -> tuple[ShapedArray, ...]:
        """The type of one row of each tape class."""
        return tuple(map(row_type, self.members))

    def differentiated(self, by: tuple[int, ...] | None = None) -> Program:
        """What computes the results where they come together with their derivatives.

        Args:
            by: the operands that these are taken by; None: all.
        """
        if not self._ruled:
            return self
        taken = (*self.taken, self._resting(by, self.taken))
        return self._changed(taken=taken, asked=())

    def asked_by(self, *orders: tuple[int, ...]) -> Program:
        """The same program where the next derivatives are taken by some operands each."""
        taken = self.taken
        for by in orders:
            taken = (*taken, self._resting(by, taken))
        asked = taken[len(self.taken) :]
        return self._changed(asked=asked) if any(asked) else self

    def for_one(self) -> Program:
        """The program for one example of those that it has an axis of."""
        assert self.single is not None
        if not self._ruled:
            return self.single
        return self.single._changed(taken=self.taken, asked=self.asked)

    def _changed(self, **how: Any) -> Program:
        key = tuple(how.items())
        return self.cache.once(key, lambda: dataclasses.replace(self, **how, cache=Cache()))

    def _resting(
        self, by: tuple[int, ...] | None, taken: tuple[frozenset[Value], ...]
    ) -> frozenset[Value]:
        """The operands of operations with rules that a derivative by some operands rests at.

        None, as far as is known, where functions stand inside of rules: they count derivatives.
        """
        if by is None or not self._ruled or self.counts_orders:
            return frozenset()

        def find() -> frozenset[Value]:
            moved = moving(self.graph, [self.operands[k] for k in by], taken)
            atoms = {atom for op in self._ruled for atom in op.inputs} - moved
            return frozenset(v for v in atoms if isinstance(v, Value) and has_derivative(v.aval))

        return self.cache.once(("resting", by, taken), find)

    @functools.cached_property
    def native(self) -> NativeProgram | None:
        """The program for the native machine, if all values are scalars."""
        if self.axes:
            return None
        return compile_native(self.graph, self.binding, self.taken, self.tangents)

    @property
    def root_told(self) -> tuple[Any, ...]:
        """What a root passes for arguments that are none of the user's: nobody has told it."""
        entry = self.graph.entry
        told = [param.aval for param in entry.params if param in entry.told]
        return tuple(np.zeros(aval.shape, aval.dtype) for aval in told)

    @functools.cached_property
    def most_fired(self) -> tuple[int | None, ...]:
        """For each cell how often one root fires it at most; None where that is not known."""
        frames = most_frames(self.visits)
        return tuple(frames[spec.cell.function] for spec in self.cells)

    def let_go(self) -> None:
        """Forgets what was made from the program: JAX holds it for as long as the program does."""
        made = list(self.cache.values())
        self.cache.clear()
        for other in made:
            if isinstance(other, Program):
                other.let_go()

    @property
    def has_rules(self) -> bool:
        """Whether operations have rules of the user's for derivatives."""
        return bool(self._ruled)

    @functools.cached_property
    def operations(self) -> frozenset[str]:
        """The names of the operations of JAX that it holds, those in loops included."""
        bodies = (function.body for function in self.graph.functions)
        return frozenset(name for body in bodies for op in body.ops for name in names_of(op))

    @functools.cached_property
    def counts_orders(self) -> bool:
        """Whether a function has no derivative before some have been taken."""
        return any(function.order for function in self.graph.functions)

    @functools.cached_property
    def closed_over_in_rules(self) -> dict[int, str]:
        """Outer values that the rules of derivatives to be taken leave out, by position.

        They are closed over by a function, of this name, that is called inside of a rule.
        """
        captured = set(self.graph.captured)
        return {
            self.outers.index(atom): function.name
            for function in self.graph.functions
            if function.order > len(self.taken)
            for atom in region_atoms(function.body)
            if isinstance(atom, Value) and atom in captured
        }

    @functools.cached_property
    def deciding(self) -> frozenset[Part]:
        """Parts of rows that are read for a decision alone, or an integer: no derivative flows."""
        return unread_parts(self.cells, self.result_rows, range(len(self.result_avals)))

    @functools.cached_property
    def _ruled(self) -> tuple[Prim, ...]:
        return ruled(self.graph)

    @property
    def name(self) -> str:
        """The user's name for the entry function."""
        return self.graph.entry.name

    @property
    def is_stepped(self) -> bool:
        """Whether control depends on what cells compute."""
        return bool(self.imports)

    @property
    def examples(self) -> int:
        """How many examples a row has values of."""
        return math.prod(axis.size for axis in self.axes if isinstance(axis, Examples))

    def most_readers(self, collect: bool) -> list[list[int | None]]:
        """The most readers of a value; None where there is no small bound.

        Of each output of each cell, then of each row of arguments of the roots.

        Args:
            collect: whether the results of all calls are read.
        """

        def make() -> list[list[int | None]]:
            found = _core.most_readers(self.words, collect)
            return [[n if n < _core.MANY_READERS else None for n in counts] for counts in found]

        return self.cache.once(("most readers", collect), make)

    @functools.cached_property
    def num_recurrent(self) -> int:
        """How many cells read, maybe by way of others, tapes that they write."""
        return sum(not self._made_from(s.outputs).isdisjoint(s.inputs) for s in self.cells)

    def _made_from(self, classes: Iterable[int]) -> set[int]:
        """Some classes, and all that cells make from them."""

        def made(c: int) -> Iterable[int]:
            return (out for spec in self.cells if c in spec.inputs for out in spec.outputs)

        return transitive(classes, made)

    @functools.cached_property
    def waits(self) -> tuple[bool, ...]:
        """Which cells must run for calls alone: see `jaxrec/graph/_patience.py`."""
        return tuple(has_to_wait(spec.cell.ops) for spec in self.cells)

    @functools.cached_property
    def calls_host(self) -> tuple[bool, ...]:
        """For each cell, whether it calls Python."""
        return tuple(calls_host(spec.cell.ops) for spec in self.cells)

    @functools.cached_property
    def nests(self) -> bool:
        """Whether a cell has a recursion of its own in it."""
        return any(starts_recursion(spec.cell.ops) for spec in self.cells)

    @property
    def call_bytes(self) -> int:
        """The most bytes of values that one call puts on tapes."""
        sizes = [aval.size * aval.dtype.itemsize for aval in self.classes]
        return sum(n * size for n, size in zip(self.writes, sizes, strict=True))

    @functools.cached_property
    def cell_bytes(self) -> tuple[int, ...]:
        """The most bytes that a call of each cell leaves for its derivative."""
        return tuple(cell_bytes(spec.cell) * self.examples for spec in self.cells)

    @property
    def max_inputs(self) -> int:
        """The largest number of tape inputs of a cell."""
        return max((len(c.inputs) for c in self.cells), default=0)

    @property
    def max_outputs(self) -> int:
        """The largest number of tape outputs of a cell."""
        return max((len(c.outputs) for c in self.cells), default=0)

    @functools.cached_property
    def result_avals(self) -> tuple[ShapedArray, ...]:
        """The types of the results of one call of the entry function."""
        found: dict[int, ShapedArray] = {}
        for c, positions in self.result_rows:
            found.update(zip(positions, self.members[c], strict=True))
        return tuple(found[k] for k in range(len(found)))

    @property
    def data_classes(self) -> tuple[int, ...]:
        """The tape class of each row of arguments of the root."""
        return tuple(c for c, _ in self.data_rows)

    @property
    def result_classes(self) -> tuple[int, ...]:
        """The tape class of each row of results."""
        return tuple(c for c, _ in self.result_rows)
