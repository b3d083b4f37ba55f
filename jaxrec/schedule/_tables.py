"""A schedule as arrays: what the scheduler writes, and programs of XLA read."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np

from jaxrec.schedule._layout import Layout
from jaxrec.split._program import CellSpec, Program


@dataclasses.dataclass(frozen=True)
class CellTables:
    """What a cell reads each time that it is fired, a row a firing; a JAX pytree.

    Attributes:
        reads: for each input, the value row that is read.
        readers: for each output, where its readers start in `reader_rows`.
        exports: the control scalars.
        lane: the lane.
    """

    reads: tuple[jax.Array, ...]
    readers: tuple[jax.Array, ...]
    exports: tuple[jax.Array, ...]
    lane: jax.Array


KIND, COUNT, FIRST, BLOCKS = range(4)
"""Columns of a wave: its kind (a cell at a width), how many calls it has, and its first cell row.
From `BLOCKS` on: the first rows of the blocks that it writes, a column for each output of the cell
that has the most; then of those that it reads, a column for each input."""


def wave_columns(program: Program) -> int:
    """How many columns a wave has."""
    return BLOCKS + program.max_outputs + program.max_inputs


@dataclasses.dataclass(frozen=True)
class Tables:
    """A schedule as arrays, a JAX pytree; see `csrc/core` for how rows are numbered.

    Its leaves are the output buffers of the scheduler, in their order.

    Attributes:
        info: counters, and where results are read.
        waves: a wave a row; see `KIND`, `COUNT`, `FIRST` and `BLOCKS`.
        cells: what each cell reads.
        root_readers: for each data argument of the root, as `readers` of a cell, by lane.
        result_reads: for each result, the value row of each lane.
        collect_reads: for each result, the value row of each call.
        reader_rows: for each class, read rows grouped by the value that they read.
        calls_lane: the lane of each call.
        calls_args: the control arguments of each call.
    """

    info: jax.Array
    waves: jax.Array
    cells: tuple[CellTables, ...]
    root_readers: tuple[jax.Array, ...]
    result_reads: tuple[jax.Array, ...]
    collect_reads: tuple[jax.Array, ...]
    reader_rows: tuple[jax.Array, ...]
    calls_lane: jax.Array | None
    calls_args: tuple[jax.Array, ...]

    @property
    def num_waves(self) -> jax.Array:
        """How many waves there are."""
        return self.info[0]

    @property
    def num_calls(self) -> jax.Array:
        """How many calls there are."""
        return self.info[1]

    @property
    def num_collected(self) -> jax.Array:
        """How many calls `collect` reports."""
        return self.info[2]


jax.tree_util.register_dataclass(CellTables)
jax.tree_util.register_dataclass(Tables)


_HEAD = 3
"""Counts in `Tables.info` before where results start; firings a cell come last."""


def result_start(tables: Tables, k: int) -> jax.Array:
    """The first read row of result `k`, in its class."""
    return tables.info[_HEAD + k]


def collect_start(program: Program, tables: Tables, k: int) -> jax.Array:
    """The first read row of result `k` of the reported calls, in its class."""
    return tables.info[_HEAD + len(program.result_classes) + k]


def cell_count(program: Program, tables: Tables, cell: int) -> jax.Array:
    """How often a cell is fired."""
    return tables.info[cell - len(program.cells)]


def table_types(program: Program, layout: Layout) -> Tables:
    """The types of the tables."""
    cells, reader = program.cells, int(layout.readers)
    results, calls = range(len(program.result_classes)), layout.max_calls
    control = [program.graph.entry.params[k] for k in program.control]
    info = _HEAD + len(results) * (2 if layout.collect else 1) + len(cells)
    pairs = zip(cells, layout.cell_rows, strict=True)
    return Tables(
        info=ints(info),
        waves=ints(layout.max_waves, wave_columns(program)),
        cells=tuple(_cell_types(spec, rows, layout.readers) for spec, rows in pairs),
        root_readers=tuple(ints((layout.lanes + 1) * reader) for _ in program.data_rows),
        result_reads=tuple(ints(layout.lanes) for _ in results),
        collect_reads=tuple(ints(calls) for _ in results) if layout.collect else (),
        reader_rows=tuple(ints(n * reader) for n in layout.read_rows),
        calls_lane=ints(calls) if layout.collect else None,
        calls_args=tuple(_array(v.aval.dtype, calls) for v in control) if layout.collect else (),
    )


def without_waves(types: Tables) -> Tables:
    """The types of tables that tell the results alone."""
    parts = types.cells, types.root_readers, types.reader_rows
    cells, root_readers, reader_rows = jax.tree.map(_none_of, parts)
    return dataclasses.replace(
        types,
        waves=_none_of(types.waves),
        cells=cells,
        root_readers=root_readers,
        reader_rows=reader_rows,
    )


def _none_of(array: Any) -> Any:
    return jax.ShapeDtypeStruct((0, *array.shape[1:]), array.dtype)


def _cell_types(spec: CellSpec, rows: int, readers: bool) -> CellTables:
    """The types of the tables of a cell that is fired up to `rows` times."""
    return CellTables(
        reads=tuple(ints(rows) for _ in spec.inputs),
        readers=tuple(ints((rows + 1) * int(readers)) for _ in spec.outputs),
        exports=tuple(_array(v.aval.dtype, rows) for v in spec.cell.exports),
        lane=ints(rows),
    )


def ints(*shape: int) -> Any:
    """The type of an array of row numbers."""
    return jax.ShapeDtypeStruct(shape, np.int32)


def _array(dtype: Any, *shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)
