"""The schedule of an invocation on executor "host", as NumPy arrays.

Firings are divided into *domains*. A domain has tapes of its own, on one device, and its waves are
a chain; the waves of different domains run at the same time. The core numbers the cells and tape
classes of all domains through: cell `c` of domain `d` is number `d * cells + c`. A value that
another domain reads is carried over by a *copy*, which the schedule knows as one more cell: its
input is in one domain and its output in another. Domain 0 has the roots' arguments and results.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec.schedule._layout import Layout
from jaxrec.schedule._tables import CellTables, Tables, ints, table_types
from jaxrec.split._program import CellSpec, Program


@dataclasses.dataclass(frozen=True)
class Copy:
    """Values of one tape class that one domain makes and another reads."""

    source: int
    target: int
    tape_class: int


@dataclasses.dataclass(frozen=True)
class HostPlan:
    """A schedule over domains.

    Attributes:
        layout: the sizes of each domain; the same for all, so that they share kernels.
        domains: how many there are.
        shards: how many of them are on a device, one behind the other.
        copies: the copies between them, numbered after the cells.
        counts: firings of each numbered cell.
        waves: a wave a row, as in `Tables.waves`.
        tables: the tables of all domains.
        num_calls: calls made.
        together: of each kind of wave, a cell and a width, how many are launched together at most.
    """

    layout: Layout
    domains: int
    shards: int
    copies: tuple[Copy, ...]
    counts: tuple[int, ...]
    waves: np.ndarray[Any, np.dtype[np.int32]]
    tables: Tables
    num_calls: int
    together: tuple[int, ...]

    @property
    def first_read(self) -> int:
        """The first column of a wave for the blocks that it reads."""
        return self.waves.shape[1] - self.max_inputs

    @property
    def max_inputs(self) -> int:
        """Columns of a wave for the blocks that it reads."""
        return max((len(cell.reads) for cell in self.tables.cells), default=0)

    def to_bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """The plan as an array, so that it can be a residual."""
        return np.frombuffer(pickle.dumps(self, protocol=5), np.uint8)

    @staticmethod
    def from_bytes(data: Any) -> HostPlan:
        """The inverse of `to_bytes`."""
        return pickle.loads(np.asarray(data).tobytes())


def host_plan(
    program: Program,
    core: Any,
    layout: Layout,
    together: Sequence[int],
    domains: int = 1,
    shards: int = 1,
    copies: Sequence[Copy] = (),
) -> HostPlan:
    """Takes a schedule out of the core."""
    tables = _blank_tables(program, layout, core, domains)
    buffers = jax.tree.leaves(tables)
    core.fill(buffers, [], layout.readers)
    return HostPlan(
        layout=layout,
        domains=domains,
        shards=shards,
        copies=tuple(copies),
        counts=tuple(core.cell_rows),
        waves=np.asarray(core.waves),
        tables=tables,
        num_calls=core.num_calls,
        together=tuple(together),
    )


def _blank_tables(program: Program, layout: Layout, core: Any, domains: int) -> Tables:
    usual = table_types(program, layout)
    cells = usual.cells * domains
    moved = [n + 2 * layout.pad for n in core.cell_rows[len(cells) :]]
    types = dataclasses.replace(
        usual,
        info=ints(core.info_size),
        waves=ints(max(core.num_waves, 1), np.asarray(core.waves).shape[1]),
        cells=(*cells, *(_copy_types(rows, layout.readers) for rows in moved)),
        reader_rows=usual.reader_rows * domains,
    )
    return jax.tree.map(lambda t: np.zeros(t.shape, t.dtype), types)


def _copy_types(rows: int, readers: bool) -> CellTables:
    """The types of the tables of a copy between domains."""
    return CellTables((ints(rows),), (ints((rows + 1) * int(readers)),), (), ints(rows))


class Rows:
    """What some rows of a cell read, as one array of 32-bit words, and how to read it there.

    A wave's rows go to its kernel as one small array: so kernels do not depend on the size of
    tables, and a wave can be launched before the next one is known.
    """

    def __init__(self, spec: CellSpec, by_lane: bool, readers: bool) -> None:
        self._spec = spec
        self._by_lane = by_lane
        self._readers = readers
        self._dtypes = [np.dtype(v.aval.dtype) for v in spec.cell.exports]

    def pack(
        self, tables: Tables, cell: int, rows: Any, pointers: Any = None
    ) -> list[np.ndarray[Any, np.dtype[np.int32]]]:
        """Words of rows of numbered cell `cell`, wave by wave.

        Args:
            tables: the schedule.
            cell: the number of the cell over all domains.
            rows: of each wave, in the tables of the cell.
            pointers: of each wave the rows and the one behind them; if readers are packed.

        Returns:
            Arrays of words with an axis of waves in front.
        """
        own = tables.cells[cell]
        reads = [column[rows] for column in own.reads]
        exports = [column[rows] for column in own.exports]
        parts = self.words(own.lane[rows], reads, exports)
        if self._readers:
            parts += [column[pointers] for column in own.readers]
        return parts

    def words(self, lane: Any, reads: Sequence[Any], exports: Sequence[Any]) -> list[Any]:
        """Arrays of words of rows without readers, from what they read."""
        parts = [lane] if self._by_lane else []
        return [*parts, *reads, *map(_to_words, exports)]

    def unpack(self, program: Program, words: Any, width: int) -> Tables:
        """Tables with these rows alone, numbered from 0; traced."""
        index, at = self._spec.cell.index, 0

        def take(count: int) -> Any:
            nonlocal at
            at += count
            return words[at - count : at]

        lane = take(width) if self._by_lane else jnp.zeros(width, jnp.int32)
        reads = tuple(take(width) for _ in self._spec.inputs)
        exports = tuple(_from_words(take(width * max(t.itemsize // 4, 1)), t) for t in self._dtypes)
        readers = tuple(take(width + 1) for _ in self._spec.outputs) if self._readers else ()
        own = CellTables(reads, readers, exports, lane)
        cells = range(len(program.cells))
        return blank(cells=tuple(own if k == index else () for k in cells))


def blank(**known: Any) -> Tables:
    """Tables of which only some are there."""
    names = [field.name for field in dataclasses.fields(Tables)]
    return Tables(**{name: known.get(name, ()) for name in names})


def _to_words(values: Any) -> Any:
    if values.dtype.itemsize < 4:
        return values.astype(np.int32)
    return values.view(np.int32)


def _from_words(words: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.itemsize < 4:
        return words.astype(dtype)
    if dtype.itemsize == 4:
        return jax.lax.bitcast_convert_type(words, dtype)
    return jax.lax.bitcast_convert_type(words.reshape(-1, 2), dtype)
