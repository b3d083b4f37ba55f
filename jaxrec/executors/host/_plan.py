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

from jaxrec.schedule._layout import Layout, Tables, bucket, flat_tables
from jaxrec.split._program import CellSpec, Program

_FEWEST_ROWS = 64


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
        copies: the copies between them, numbered after the cells.
        counts: firings of each numbered cell.
        waves: a wave a row, as in `Tables.waves`.
        tables: the tables of all domains.
        num_calls: calls made.
        together: of each kind of wave, a cell and a width, how many are launched together at most.
    """

    layout: Layout
    domains: int
    copies: tuple[Copy, ...]
    counts: tuple[int, ...]
    waves: np.ndarray[Any, np.dtype[np.int32]]
    tables: Tables
    num_calls: int
    together: tuple[int, ...]

    @property
    def max_outputs(self) -> int:
        """Columns of a wave for the blocks that it writes."""
        return self.waves.shape[1] - 3 - self.max_inputs

    @property
    def max_inputs(self) -> int:
        """Columns of a wave for the blocks that it reads."""
        return max((len(reads) for reads in self.tables.reads), default=0)

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
    copies: Sequence[Copy] = (),
) -> HostPlan:
    """Takes a schedule out of the core."""
    tables = _blank_tables(program, layout, core, domains)
    buffers = flat_tables(tables)
    core.fill(buffers, [], layout.readers)
    return HostPlan(
        layout=layout,
        domains=domains,
        copies=tuple(copies),
        counts=tuple(core.cell_rows),
        waves=np.asarray(core.waves),
        tables=tables,
        num_calls=core.num_calls,
        together=tuple(together),
    )


def host_layout(program: Program, sized: Layout, core: Any, domains: int = 1) -> Layout:
    """The sizes of every domain of a schedule, as few different ones as memory allows.

    Args:
        program: the program.
        sized: number of lanes, widths, and what is wanted.
        core: the schedule.
        domains: how many domains it has.
    """
    classes, cells = len(program.classes), len(program.cells)
    pad = 2 * sized.pad

    def most(counts: Sequence[int], size: int, more: Sequence[int] | int = 0) -> list[int]:
        apart = np.asarray(counts[: domains * size], np.int64).reshape(domains, size) + more
        return [roomy(int(n)) + pad for n in apart.max(axis=0, initial=0)]

    fired = most(core.cell_rows, cells)
    # The report of `collect` has more rows than there are calls, and so have its cotangents.
    blank = sized.max_calls - core.num_collected if sized.collect else 0
    unused = [blank * (c in program.result_classes) for c in range(classes)]
    layout = dataclasses.replace(
        sized,
        max_calls=sized.max_calls if sized.collect else bucket(2 * max(fired, default=0)),
        cell_rows=tuple(fired),
        value_rows=tuple(most(core.value_rows, classes)),
        read_rows=tuple(most(core.read_rows, classes, unused)),
        max_waves=1,
        costs=(),  # kernels do not depend on them
    )
    if not sized.readers:
        return layout
    more = max(layout.step_rows - layout.pad, 0)
    return dataclasses.replace(layout, cell_rows=tuple(n + more for n in layout.cell_rows))


def roomy(rows: int) -> int:
    """The next power of two: kernels are compiled for each size of their tapes."""
    return max(_FEWEST_ROWS, 1 << (rows - 1).bit_length())


def _blank_tables(program: Program, layout: Layout, core: Any, domains: int) -> Tables:
    cells = [(spec, n) for spec, n in zip(program.cells, layout.cell_rows, strict=True)] * domains
    moved = [n + 2 * layout.pad for n in core.cell_rows[len(cells) :]]
    reader, results = int(layout.readers), len(program.result_classes)
    columns = np.asarray(core.waves).shape[1]
    control = [program.graph.entry.params[k].aval.dtype for k in program.control]
    calls = layout.max_calls if layout.collect else 0
    return Tables(
        info=_ints(core.info_size),
        waves=_ints(max(core.num_waves, 1), columns),
        reads=tuple(
            [tuple(_ints(n) for _ in s.inputs) for s, n in cells] + [(_ints(n),) for n in moved]
        ),
        readers=tuple(
            [tuple(_ints((n + 1) * reader) for _ in s.outputs) for s, n in cells]
            + [(_ints((n + 1) * reader),) for n in moved]
        ),
        exports=tuple(
            [tuple(_zeros(n, v.aval.dtype) for v in s.cell.exports) for s, n in cells]
            + [() for _ in moved]
        ),
        lane=tuple([_ints(n) for _, n in cells] + [_ints(n) for n in moved]),
        root_readers=tuple(_ints((layout.lanes + 1) * reader) for _ in program.data_rows),
        result_reads=tuple(_ints(layout.lanes) for _ in range(results)),
        collect_reads=tuple(_ints(calls) for _ in range(results)) if layout.collect else (),
        reader_rows=tuple(_ints(n * reader) for n in layout.read_rows * domains),
        calls_lane=_ints(calls) if layout.collect else None,
        calls_args=tuple(_zeros(calls, t) for t in control) if layout.collect else (),
    )


def _ints(*shape: int) -> Any:
    return np.zeros(shape, np.int32)


def _zeros(size: int, dtype: Any) -> Any:
    return np.zeros(size, dtype)


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
        reads = [column[rows] for column in tables.reads[cell]]
        exports = [column[rows] for column in tables.exports[cell]]
        parts = self.words(tables.lane[cell][rows], reads, exports)
        if self._readers:
            parts += [column[pointers] for column in tables.readers[cell]]
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
        cells = len(program.cells)
        return blank(
            reads=only(cells, index, reads),
            exports=only(cells, index, exports),
            lane=tuple(lane if k == index else None for k in range(cells)),
            readers=only(cells, index, readers),
        )


def blank(**known: Any) -> Tables:
    """Tables of which only some are there."""
    names = [field.name for field in dataclasses.fields(Tables)]
    return Tables(**{name: known.get(name, ()) for name in names})


def only(cells: int, index: int, items: Any) -> tuple[Any, ...]:
    """What tables have of every cell, there for one of them."""
    return tuple(items if k == index else () for k in range(cells))


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
