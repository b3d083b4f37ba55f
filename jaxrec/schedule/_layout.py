"""How large the tables and tapes of an invocation are: everything that `jit` must know beforehand.

Every row space has `pad` free rows before its first row and after its last: a wave is computed at
a fixed width, and rows past its count land there (forward behind, backward in front).
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrec._errors import CapacityError
from jaxrec.schedule._platform import CPU, Platform
from jaxrec.split._program import CellSpec, Program

_FEWEST = 4
"""The least calls that are worth a batch size between one call and the widest."""

_CALLS_PER_ROW = 64
"""How much wider than the number of roots waves become in a recursion of many calls."""

_NARROWER = 16
"""How many times narrower the narrow waves of an accelerator are."""

_FEW_CELLS = 8
"""Up to how many cells are compiled at three batch sizes; more at two."""

_MANY_CELLS_WIDE = 32
"""How wide waves of many cells become in a recursion of many calls, whatever the roots."""

_CALLS_PER_SWEPT_ROW = 16
"""How many calls there are in a recursion for each row of a wave of a sweep, at least."""

_FEWEST_SWEPT_ROWS = 32
"""The least width of a wave of a sweep: narrower ones take as long."""

_MOST_SWEPT = 1 << 16
"""The most calls of an invocation whose waves come in sweeps: tables have room for empty waves."""

_FEWEST_STEP_ROWS = 8
"""What the rows of a step are a multiple of, unless a cell is fired less often."""

_ROW_FLOPS = 50.0
"""Arithmetic that takes as long as gathering what a row reads."""

_ENOUGH_WAVES = 64
"""How many times that a wave computes at most, so that its launch does not count."""

_READ_FLOPS = 50.0
"""Arithmetic that takes as long as reading an element of a matrix from memory."""

_CACHED_ELEMENTS = 1 << 19
"""Elements of a matrix that stay in a cache from wave to wave."""

_BUCKET_RATIO = 1.25

_MOST_ROWS = (1 << 31) - (1 << 20)
"""The most rows of an array of an invocation: they are numbered by 32-bit integers."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Static sizes of one invocation.

    Attributes:
        lanes: number of roots.
        max_calls: the largest number of calls that fits.
        widths: widths of waves, ascending.
        costs: relative cost of a wave of each width, of all cells alike or of cell after cell;
            infinite: it has none of that width.
        sweeps: whether waves come in sweeps, one of each cell in order, some of them empty.
        collect: whether every call is reported.
        readers: whether the tables that the backward pass reads are made.
        fires: how often each cell is fired at most.
        ready: of those, how many may be ready at once.
        cell_rows: rows of each cell, padding included.
        step_rows: of each cell, rows of a step of the contraction that makes the cotangents of
            outer values; 0 without `readers`.
        value_rows: value rows of each tape class, padding included.
        read_rows: read rows of each tape class, padding included.
        max_waves: the largest number of waves.
        platform: what they are sizes for.
    """

    lanes: int
    max_calls: int
    widths: tuple[int, ...]
    costs: tuple[float, ...]
    sweeps: bool
    collect: bool
    readers: bool
    fires: tuple[int, ...]
    ready: tuple[int, ...]
    cell_rows: tuple[int, ...]
    step_rows: tuple[int, ...]
    value_rows: tuple[int, ...]
    read_rows: tuple[int, ...]
    max_waves: int
    platform: Platform = CPU

    @property
    def pad(self) -> int:
        """Free rows on either side of a row space."""
        return self.widths[-1]

    def widths_of(self, cell: int) -> tuple[int, ...]:
        """Those of the waves of a cell: none is wider than the first that all ready calls fit."""
        return _that_fit(self.ready[cell], self.widths)


def _that_fit(calls: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """The widths up to the first that so many calls fit."""
    return widths[: bisect.bisect_left(widths, calls) + 1]


def widths_of(
    program: Program,
    lanes: int,
    max_calls: int,
    *,
    platform: Platform = CPU,
) -> tuple[int, ...]:
    """The batch sizes for an invocation of a program: one call, the widest, and one between.

    Few sizes, since each is compiled. On CPU a wave of one call multiplies a matrix and a vector,
    which takes half as long as two rows do; on an accelerator it takes as long as some hundred. Of
    many cells few calls of each are ready, and compiling takes as long as there are cells times
    sizes, so there is none between; nor where it would compute little less than the widest. A
    recursion in a cell is compiled at its own sizes for each of these: there are two, one of them a
    quarter as wide as otherwise, since that recursion takes time for all the calls of each row.
    None is wider than the calls that are ready at once.

    Args:
        program: whose calls are batched.
        lanes: number of roots.
        max_calls: the largest number of calls.
        platform: where they run.
    """
    widest = _widest(program, lanes, max_calls, platform)
    if program.nests:
        widest = max(widest // 4, 2)
    ready = [lanes * most for most in program.most_ready if most is not None]
    if ready and len(ready) == len(program.most_ready):
        widest = min(widest, power_of_two(max(ready)))
    has_narrow = platform.has_narrow or any(program.calls_host)  # a call of Python a row
    sizes = {1, widest} if has_narrow else {widest}
    between = _between(lanes, widest) if has_narrow else max(widest // _NARROWER, 1)
    saved = (widest - between) * (program.row_flops + _ROW_FLOPS)
    if _has_few_cells(program) and not program.nests and saved > platform.little_flops:
        sizes.add(between)
    return tuple(sorted(sizes))


def sweep_width(
    program: Program, lanes: int, max_calls: int, *, platform: Platform = CPU
) -> int | None:
    """The batch size of an invocation whose waves come in sweeps; None if they should not.

    An accelerator's host waits for it to see which wave comes next, a look for each cell. To
    compute a wave of every cell instead takes one look, and less time if they compute little. Not
    if few looks are needed: where one cell alone waits for others like it, as in a fold of a tree,
    its waves follow each other. A stepped program looks after each wave, whatever its kind.

    Args:
        program: whose calls are batched.
        lanes: number of roots.
        max_calls: the largest number of calls.
        platform: where they run.
    """
    if not platform.sweep_flops or max_calls > _MOST_SWEPT:
        return None
    if not program.cells or not _has_few_cells(program) or any(program.waits):
        return None
    if not program.is_stepped and program.num_recurrent < 2:
        return None
    wanted = power_of_two(
        max(lanes, math.ceil(max_calls / _CALLS_PER_SWEPT_ROW), _FEWEST_SWEPT_ROWS)
    )
    wanted = min(wanted, platform.widest, power_of_two(max(max_calls, 2)))
    rows = platform.sweep_flops / (len(program.cells) * (program.row_flops + _ROW_FLOPS))
    rows = min(rows, platform.wave_bytes / max(program.call_bytes, 1))
    return min(wanted, 2 ** int(math.log2(rows))) if rows >= max(wanted / 4, 1) else None


def _widest(program: Program, lanes: int, max_calls: int, platform: Platform) -> int:
    """The largest batch size: four times about the number of roots, if that pays.

    In a batch of trees about as many calls as there are roots are ready once the leaves are done,
    and the waves narrow towards the end. A wave that computes for long enough is no faster a row
    if it is wider, and takes more memory; and none holds more than all calls.
    """
    few = _has_few_cells(program)
    wide = min(max_calls / _CALLS_PER_ROW, platform.widest if few else _MANY_CELLS_WIDE)
    ready = max(2 ** round(math.log2(max(lanes, wide, 1))), _FEWEST) * (4 if few else 1)
    enough = min(
        _ENOUGH_WAVES * _wave_flops(program, platform) / (program.row_flops + 1.0),
        platform.wave_bytes / max(program.call_bytes, 1),
    )
    enough = 2 ** round(math.log2(min(max(enough, _FEWEST), platform.widest)))
    return min(ready, enough, power_of_two(max(max_calls, 2)))


def _between(lanes: int, widest: int) -> int:
    """A quarter of the widest; or the number of roots, which nest in step, if that is less."""
    quarter = max(widest // 4, 2)
    return quarter if lanes == 1 else min(quarter, max(power_of_two(lanes), _FEWEST))


def power_of_two(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()


def _has_few_cells(program: Program) -> bool:
    return len(program.cells) <= _FEW_CELLS


def make_layout(
    program: Program,
    lanes: int,
    max_calls: int,
    *,
    widths: tuple[int, ...] | None = None,
    sweeps: bool = False,
    collect: bool = False,
    readers: bool = False,
    platform: Platform = CPU,
) -> Layout:
    """Sizes the tables of an invocation of at most `max_calls` calls."""
    widths = widths or widths_of(program, lanes, max_calls, platform=platform)
    pad = 2 * widths[-1]
    fires = [max_calls // max(spec.calls, 1) for spec in program.cells]
    # A cell of a recursion with a base case and one recursive branch fires for about half the
    # calls.
    expected = [min(n, max_calls // 2) for n in fires]
    for k, most in enumerate(program.most_fired):
        if most is not None:
            fires[k] = expected[k] = min(fires[k], lanes * most)
    pairs = zip(fires, program.most_ready, strict=True)
    ready = [n if most is None else min(n, lanes * most) for n, most in pairs]
    costs = _wave_costs(program, widths, platform)
    if ready != fires:
        costs = tuple(x for n in ready for x in _up_to(n, widths, costs))
    values = [lanes * program.data_classes.count(c) for c in range(len(program.classes))]
    reads = [
        (lanes + (max_calls if collect else 0)) * program.result_classes.count(c)
        for c in range(len(program.classes))
    ]
    for c in range(len(program.classes)):
        made = sum(n * spec.outputs.count(c) for n, spec in zip(fires, program.cells, strict=True))
        taken = sum(n * spec.inputs.count(c) for n, spec in zip(fires, program.cells, strict=True))
        values[c] += min(made, max_calls * program.writes[c]) + pad
        reads[c] += min(taken, max_calls * program.reads[c]) + pad
    layout = Layout(
        lanes=lanes,
        max_calls=max_calls,
        widths=widths,
        costs=costs,
        sweeps=sweeps,
        collect=collect,
        readers=readers,
        fires=tuple(fires),
        ready=tuple(ready),
        cell_rows=tuple(n + pad for n in fires),
        step_rows=(0,) * len(fires),
        value_rows=tuple(values),
        read_rows=tuple(reads),
        max_waves=(min(sum(fires), max_calls * program.fires) + 1) * (len(fires) if sweeps else 1),
        platform=platform,
    )
    rows = max((*layout.cell_rows, *layout.value_rows, *layout.read_rows, max_calls))
    if rows > _MOST_ROWS:
        raise CapacityError(
            f"room for {max_calls} calls of {program.name} takes arrays of {rows} rows, more than "
            f"{_MOST_ROWS}. Bound the calls of one invocation by fewer: rec_fn(max_calls=...)."
        )
    return with_step_rows(program, layout, expected) if readers else layout


def _wave_costs(program: Program, widths: Sequence[int], platform: Platform) -> tuple[float, ...]:
    wave = _wave_flops(program, platform)
    # A row costs something even of a cell of scalars: of two widths that fit, the narrow one.
    return tuple(wave + width * (program.row_flops + 1.0) for width in widths)


def _up_to(calls: int, widths: tuple[int, ...], costs: Sequence[float]) -> list[float]:
    """The costs of the widths that so many calls need; infinite for wider ones."""
    count = len(_that_fit(calls, widths))
    return [*costs[:count], *[math.inf] * (len(widths) - count)]


def _wave_flops(program: Program, platform: Platform) -> float:
    """Arithmetic that takes as long as what a wave does once, however wide it is."""
    return platform.wave_flops + _READ_FLOPS * max(program.shared_elements - _CACHED_ELEMENTS, 0)


def with_step_rows(program: Program, layout: Layout, expected: Sequence[int]) -> Layout:
    """The same sizes with room for a whole step behind the last row of a cell.

    Args:
        program: whose calls they are.
        layout: the sizes without.
        expected: how often each cell is fired, about.
    """
    most = max(layout.platform.step_rows // program.examples, _FEWEST_STEP_ROWS)
    steps = tuple(_step_rows(n, most) for n in expected)
    rows = zip(layout.cell_rows, steps, strict=True)
    cell_rows = tuple(n + max(step - layout.pad, 0) for n, step in rows)
    return dataclasses.replace(layout, step_rows=steps, cell_rows=cell_rows)


def _step_rows(expected: int, most: int) -> int:
    """Rows of a step: few steps, since each adds to whole weights; little padding in the last."""
    if expected < _FEWEST_STEP_ROWS:
        return max(expected, 2)
    steps = math.ceil(expected / most)
    return _FEWEST_STEP_ROWS * math.ceil(expected / steps / _FEWEST_STEP_ROWS)


def bucket(count: int) -> int:
    """Rounds a number of calls up to a geometric series, so that few sizes are compiled."""
    size = 16
    while size < count:
        size = int(np.ceil(size * _BUCKET_RATIO / 16)) * 16
    return size


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
