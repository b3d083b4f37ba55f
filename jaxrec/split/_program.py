"""A program split into planes: control bytecode for the scheduler, cells for XLA."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray

from jaxrec import _core
from jaxrec._order import has_rule
from jaxrec.graph._check import check_graph
from jaxrec.graph._ir import Atom, Call, Graph, Prim, Region, Switch, Value, region_atoms, walk
from jaxrec.split._binding import Binding, bind, needed_control
from jaxrec.split._bound import Visits, visits_of
from jaxrec.split._bundles import Bundles, row_type
from jaxrec.split._cache import Cache
from jaxrec.split._cells import Cell, Cells, split_cells
from jaxrec.split._classes import Classes, result_values
from jaxrec.split._cost import Nested, cell_flops, nested_work, shared_elements
from jaxrec.split._emit import Code, emit_function
from jaxrec.split._memo import check_shared
from jaxrec.split._native import NativeProgram, compile_native
from jaxrec.split._outer import find_outers
from jaxrec.split._parts import Part, unread_parts
from jaxrec.split._registers import ArrayTable
from jaxrec.split._scalar import DTYPES


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
        native: the program for the native machine, if all values are scalars.
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
    native: NativeProgram | None
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
        """Parts of rows that control alone reads: through a decision flows no derivative."""
        everything = range(len(self.result_avals))
        return (
            unread_parts(self.cells, self.result_rows, everything) if self.imports else frozenset()
        )

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


def split(graph: Graph) -> Program:
    """Splits a graph into the two planes.

    Raises:
        SignatureError: a function is shared whose calls cannot be compared.
    """
    check_graph(graph)
    outer_of = find_outers(graph)
    binding = bind(graph, outer_of)
    cells = split_cells(graph, binding)
    needed = needed_control(graph, binding, [v for cell in cells.cells for v in cell.exports])
    table = ArrayTable(binding)
    bundles = Bundles(graph, binding, cells, Classes(graph, binding, cells))
    codes = [
        emit_function(graph, f, binding, cells, needed, bundles, table) for f in graph.functions
    ]
    for function, code in zip(graph.functions, codes, strict=True):
        check_shared(function, code.data_params)
    return _assemble(graph, binding, cells, bundles, codes, table)


def _assemble(
    graph: Graph,
    binding: Binding,
    cells: Cells,
    bundles: Bundles,
    codes: Sequence[Code],
    table: ArrayTable,
) -> Program:
    entry, entry_code = graph.entry, codes[0]
    outers = tuple(v for v in entry.params if v in binding.outer_of) + graph.captured
    calls = _sure_calls(graph, cells)
    specs = tuple(_cell_spec(cell, outers, bundles, calls[cell]) for cell in cells.cells)
    result_rows = _rows(result_values(entry.body, cells), bundles)
    data_rows = _rows(entry_code.data_params, bundles)
    words = _encode(graph, cells, codes, table, specs, bundles)
    names = _names(graph, codes, table)
    count = len(bundles.members)
    return Program(
        graph=graph,
        binding=binding,
        outers=outers,
        control=tuple(entry.params.index(v) for v in entry_code.control_params),
        data=tuple(entry.params.index(v) for v in entry_code.data_params),
        cells=specs,
        classes=tuple(map(row_type, bundles.members)),
        members=tuple(bundles.members),
        data_rows=data_rows,
        result_rows=result_rows,
        imports=tuple(bundles.imports),
        control_outers=tuple(table.values),
        words=np.asarray(words, np.int64),
        names=names,
        writes=_bound(graph, cells, specs, count, lambda s: s.outputs),
        reads=_bound(graph, cells, specs, count, lambda s: s.inputs),
        fires=sum(_bound(graph, cells, specs, len(specs), lambda s: (s.cell.index,), total=True)),
        visits=visits_of(graph, binding, [code.control_params for code in codes]),
        row_flops=max((cell_flops(cell) for cell in cells.cells), default=0.0),
        nested=nested_work(graph, cells),
        shared_elements=max(map(shared_elements, cells.cells), default=0),
        native=compile_native(graph, binding),
    )


def _cell_spec(cell: Cell, outers: Sequence[Value], bundles: Bundles, calls: int) -> CellSpec:
    written = [v for _, v in cell.outputs]
    outputs = bundles.groups(written)
    return CellSpec(
        cell,
        tuple(outers.index(v) for v in cell.outers),
        tuple(bundles.of(v) for v in bundles.rows(cell.inputs)),
        tuple(bundles.of(written[g[0]]) for g in outputs),
        tuple(bundles.parts(v) for v in bundles.rows(cell.inputs)),
        tuple(tuple(cell.outputs[k][0] for k in g) for g in outputs),
        calls,
    )


def _rows(values: Sequence[Value], bundles: Bundles) -> tuple[tuple[int, tuple[int, ...]], ...]:
    return tuple((bundles.of(values[g[0]]), g) for g in bundles.groups(values))


def _encode(
    graph: Graph,
    cells: Cells,
    codes: Sequence[Code],
    table: ArrayTable,
    specs: Sequence[CellSpec],
    bundles: Bundles,
) -> list[int]:
    functions: list[int] = [len(codes), 0]
    for function, code in zip(graph.functions, codes, strict=True):
        results = bundles.rows(result_values(function.body, cells))
        functions.append(int(function.memo))
        functions += _counted([DTYPES[v.aval.dtype.name] for v in code.control_params])
        functions += _counted([bundles.of(v) for v in bundles.rows(code.data_params)])
        functions += _counted([bundles.of(v) for v in results])
        functions += [code.num_registers, code.num_slots]
        functions += _counted(code.words)
    words = [_core.MAGIC, _core.VERSION, len(table.values)]
    for value in table.values:
        words += [DTYPES[value.aval.dtype.name], value.aval.ndim]
    words += [len(bundles.members), len(specs)]
    for spec in specs:
        words += _counted(spec.inputs)
        words += _counted(spec.outputs)
        words += _counted([DTYPES[v.aval.dtype.name] for v in spec.cell.exports])
    words.append(len(bundles.imports))
    for c in bundles.imports:
        words += [c, DTYPES[row_type(bundles.members[c]).dtype.name]]
    return words + functions


def _counted(items: Sequence[int]) -> list[int]:
    return [len(items), *items]


def _names(graph: Graph, codes: Sequence[Code], table: ArrayTable) -> str:
    known = dict(zip(graph.entry.params, graph.entry.param_names, strict=True))
    lines = [f.name for f in graph.functions]
    for function, code in zip(graph.functions, codes, strict=True):
        own = dict(zip(function.params, function.param_names, strict=True))
        lines.append(" ".join(own[v].replace(" ", "") for v in code.control_params))
    for value in table.values:
        fallback = "a captured array" if value in graph.captured else "a computed array"
        lines.append(known.get(value, fallback))
    return "\n".join(lines)


def _sure_calls(graph: Graph, cells: Cells) -> dict[Cell, int]:
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


def _bound(
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
