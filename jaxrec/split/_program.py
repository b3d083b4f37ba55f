"""A program split into planes: control bytecode for the scheduler, cells for XLA."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from jax.core import ShapedArray

from jaxrec._order import has_rule
from jaxrec.graph._ir import Atom, Graph, Prim, Value, region_atoms, walk
from jaxrec.split._binding import Binding
from jaxrec.split._bound import Visits
from jaxrec.split._cache import Cache
from jaxrec.split._cells import Cell
from jaxrec.split._cost import Nested
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
        classes: the type of one row of each tape class.
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
        visits: for each function, the arrays whose elements its calls stand for.
        row_flops: arithmetic of one call of the most expensive cell.
        nested: what a call takes of a recursion that only nests.
        shared_elements: the most elements of matrices that a wave reads once for all its rows.
        tangents: of a program that computes derivatives, see `jaxrec/split/_tangents.py`.
        order: how often derivatives have been taken of what the program computes: with each,
            functions with derivative rules of their own are replaced by the code of their rules.
        cache: what later stages have made from this program, so that it is made once.
    """

    graph: Graph
    binding: Binding
    outers: tuple[Value, ...]
    control: tuple[int, ...]
    data: tuple[int, ...]
    cells: tuple[CellSpec, ...]
    classes: tuple[ShapedArray, ...]
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
    row_flops: float
    nested: Nested
    shared_elements: int
    tangents: frozenset[Value]
    order: int = 0
    cache: Cache = dataclasses.field(default_factory=Cache, repr=False)

    def differentiated(self) -> Program:
        """What computes the results where they come together with their derivatives."""
        if not self._has_rules:
            return self
        return self.cache.once(
            "differentiated",
            lambda: dataclasses.replace(self, order=self.order + 1, cache=Cache()),
        )

    @functools.cached_property
    def native(self) -> NativeProgram | None:
        """The program for the native machine, if all values are scalars."""
        return compile_native(self.graph, self.binding, self.order, self.tangents)

    def let_go(self) -> None:
        """Forgets what was made from the program: JAX holds it for as long as the program does."""
        made = list(self.cache.values())
        self.cache.clear()
        for other in made:
            if isinstance(other, Program):
                other.let_go()

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
            if function.order > self.order
            for atom in region_atoms(function.body)
            if isinstance(atom, Value) and atom in captured
        }

    @functools.cached_property
    def deciding(self) -> frozenset[Part]:
        """Parts of rows that are read for a decision alone, or an integer: no derivative flows."""
        return unread_parts(self.cells, self.result_rows, range(len(self.result_avals)))

    @functools.cached_property
    def _has_rules(self) -> bool:
        ops = (op for function in self.graph.functions for op in walk(function.body))
        return any(isinstance(op, Prim) and has_rule(op.eqn) for op in ops)

    @property
    def name(self) -> str:
        """The user's name for the entry function."""
        return self.graph.entry.name

    @property
    def is_stepped(self) -> bool:
        """Whether control depends on what cells compute."""
        return bool(self.imports)

    @property
    def call_bytes(self) -> int:
        """The most bytes of values that one call puts on tapes."""
        sizes = [aval.size * aval.dtype.itemsize for aval in self.classes]
        return sum(n * size for n, size in zip(self.writes, sizes, strict=True))

    @property
    def max_inputs(self) -> int:
        """The largest number of tape inputs of a cell."""
        return max((len(c.inputs) for c in self.cells), default=0)

    @property
    def max_outputs(self) -> int:
        """The largest number of tape outputs of a cell."""
        return max((len(c.outputs) for c in self.cells), default=0)

    @property
    def result_avals(self) -> tuple[ShapedArray, ...]:
        """The types of the results of one call of the entry function."""
        return tuple(atom.aval for atom in self.graph.entry.body.results)

    @property
    def data_classes(self) -> tuple[int, ...]:
        """The tape class of each row of arguments of the root."""
        return tuple(c for c, _ in self.data_rows)

    @property
    def result_classes(self) -> tuple[int, ...]:
        """The tape class of each row of results."""
        return tuple(c for c, _ in self.result_rows)
