"""The forward program: waves in order, from the roots' arguments to their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxrec.lowering import _outers, _tapes, _waiting, _waves
from jaxrec.lowering._cell import wave_function
from jaxrec.lowering._pack import pack, unpack
from jaxrec.lowering._quick import quick
from jaxrec.lowering._read import Gather, Gathers, Place, read_wave
from jaxrec.lowering._rows import gather, gather_rows, numbers, select_rows
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._plan import LanePattern
from jaxrec.schedule._tables import BLOCKS, COUNT, FIRST, Tables
from jaxrec.split._program import CellSpec, Program


class WaveCell(NamedTuple):
    """A cell at one width.

    Attributes:
        run: `(outers, exports, inputs) -> (outputs, residuals)`.
        waits: whether it must run for calls alone, see `jaxrec/graph/_patience.py`.
    """

    run: Callable[[list[Any], list[Any], list[Any]], tuple[list[Any], list[Any]]]
    waits: bool


State = tuple[list[Any], list[list[Any]]]
"""Value tapes, and for each cell its residual tapes."""


@dataclasses.dataclass(frozen=True)
class Scheduled:
    """An invocation whose schedule is known: everything that a replay needs but the tapes.

    Attributes:
        program: the program.
        layout: its sizes.
        patterns: for each outer value, how lanes index it.
        tables: the schedule.
        outers: the outer values.
        roots: the data arguments of the roots, each `[lanes, ...]`.
    """

    program: Program
    layout: Layout
    patterns: tuple[LanePattern | None, ...]
    tables: Tables
    outers: tuple[Any, ...]
    roots: tuple[Any, ...]

    @property
    def waves_of(self) -> list[tuple[int, CellSpec, int]]:
        """Every kind of wave that there can be: its number, cell and width."""
        layout = self.layout
        return [
            (spec.cell.index * len(layout.widths) + k, spec, width)
            for spec in self.program.cells
            for k, width in enumerate(layout.widths_of(spec.cell.index))
        ]


def with_roots(at: Scheduled, tapes: Sequence[Any]) -> list[Any]:
    """Value tapes with the roots' arguments in their first rows."""
    tapes = list(tapes)
    starts = [at.layout.pad] * len(tapes)
    for c, parts in at.program.data_rows:
        rows = pack([at.roots[k] for k in parts], batch=1)
        tapes[c] = _tapes.put(tapes[c], rows, starts[c])
        starts[c] += at.layout.lanes
    return tapes


def plain_cell(at: Scheduled, spec: CellSpec, width: int, keeps_zeros: bool = False) -> WaveCell:
    """A cell without residuals; `keeps_zeros` as in `wave_function`."""
    own = _outers.outer_by_row(spec, at.patterns)
    fun = wave_function(at.program, spec, own, width, keeps_zeros=keeps_zeros)
    return WaveCell(lambda *read: (fun(*read), []), at.program.waits[spec.cell.index])


def quick_cell(at: Scheduled, spec: CellSpec, width: int) -> WaveCell:
    """The same for a program in which nothing differentiates it any more."""
    cell = plain_cell(at, spec, width)
    return cell._replace(run=quick(cell.run))


CellAt = Callable[[Scheduled, CellSpec, int], WaveCell]
"""Makes a cell at one width."""


def run_forward(
    at: Scheduled,
    cell_at: CellAt = quick_cell,
    residual_tapes: Sequence[Sequence[Any]] | None = None,
) -> State:
    """Runs all waves.

    Args:
        at: the invocation.
        cell_at: the cells to run; they may return residuals, one row a call.
        residual_tapes: for each cell, a tape for each residual.

    Returns:
        The value tapes and the residual tapes.
    """
    residuals = [list(t) for t in residual_tapes or [[]] * len(at.program.cells)]

    def body_for(spec: CellSpec, width: int) -> Any:
        cell = cell_at(at, spec, width)
        return lambda number, state: _fire(at, spec, width, cell, number, state)

    bodies = {kind: body_for(spec, width) for kind, spec, width in at.waves_of}
    tapes = _tapes.empty_tapes(at.layout.value_rows, at.program.classes)
    state = (with_roots(at, tapes), residuals)
    return _waves.run_waves(at.program, at.layout, at.tables, bodies, state)


def _fire(
    at: Scheduled, spec: CellSpec, width: int, cell: WaveCell, number: Any, state: State
) -> tuple[Any, State]:
    """Runs one wave: gathers what its calls read, computes, and writes one block a result."""
    place, given = Place(width, FIRST), reads_of(at, spec, state[0])
    ordered = is_ordered(at, spec, state)
    wave, inputs, _ = read_wave(place, at.tables.waves, number, given, is_ordered=ordered)
    rows = _waiting.calls_alone(cell.waits, numbers(width) < wave[COUNT])
    values = operands(at, spec, list(map(rows, inputs)), place.start(wave), width, rows)
    outs, kept = _waiting.in_its_wave(cell.waits, wave[COUNT] > 0, cell.run, *values)
    return wave, write(spec, outs, kept, wave, state)


def reads_of(at: Scheduled, spec: CellSpec, tapes: Sequence[Any]) -> Gathers:
    """What the calls of a cell read of tapes."""
    reads = at.tables.cells[spec.cell.index].reads
    return [Gather(tapes[c], rows) for c, rows in zip(spec.inputs, reads, strict=True)]


def is_ordered(at: Scheduled, spec: CellSpec, state: State) -> bool:
    """Whether a wave has to say when it has read.

    For the next one of a sweep; and where it writes more than one block, of which one may be made
    before all is read.
    """
    return at.layout.sweeps or len(spec.outputs) + len(state[1][spec.cell.index]) > 1


def write(
    spec: CellSpec, outs: Sequence[Any], kept: Sequence[Any], wave: Any, state: State
) -> State:
    """Writes the results and residuals of a wave, a block each."""
    tapes, residuals = list(state[0]), list(state[1])
    for k, (c, rows) in enumerate(zip(spec.outputs, outs, strict=True)):
        tapes[c] = _tapes.put(tapes[c], rows, wave[BLOCKS + k])
    mine = residuals[spec.cell.index]
    residuals[spec.cell.index] = [
        _tapes.put(tape, rows, wave[FIRST]) for tape, rows in zip(mine, kept, strict=True)
    ]
    return tapes, residuals


def operands(
    at: Scheduled,
    spec: CellSpec,
    inputs: list[Any],
    start: Any,
    width: int,
    rows: _waiting.Rows = _waiting.all_rows,
) -> tuple[list[Any], list[Any], list[Any]]:
    """The outer values, control scalars and tape inputs of `width` rows of a cell."""
    tables = at.tables.cells[spec.cell.index]
    lanes = rows(_tapes.block(tables.lane, start, width))
    exports = [rows(_tapes.block(x, start, width)) for x in tables.exports]
    return _outers.cell_outers(spec, at.outers, at.patterns, lanes), exports, inputs


def inputs_of(
    at: Scheduled,
    spec: CellSpec,
    tapes: Sequence[Any],
    start: Any,
    width: int,
    rows: _waiting.Rows = _waiting.all_rows,
) -> list[Any]:
    """The tape inputs of `width` rows of a cell, each by an operation that may be left out."""
    return [
        gather_rows(x.tape, rows(_tapes.block(x.rows, start, width)))
        for x in reads_of(at, spec, tapes)
    ]


def operands_at(
    at: Scheduled,
    spec: CellSpec,
    tapes: Sequence[Any],
    rows: Any,
    copy: Callable[[Any, Any], Any],
) -> tuple[list[Any], list[Any], list[Any]]:
    """The same for any rows of a cell; `copy` gathers from a tape."""
    tables = at.tables.cells[spec.cell.index]
    lanes = gather(tables.lane, rows)
    exports = [gather(x, rows) for x in tables.exports]
    inputs = [copy(x.tape, gather(x.rows, rows)) for x in reads_of(at, spec, tapes)]
    return _outers.cell_outers(spec, at.outers, at.patterns, lanes), exports, inputs


def results(at: Scheduled, tapes: Sequence[Any]) -> list[Any]:
    """The results of the roots, each `[lanes, ...]`, then those of every call, if collected.

    XLA gathers them: it leaves out the parts of a row that the caller does not use.
    """
    classes, tables = at.program.result_classes, at.tables
    of_roots = zip(classes, tables.result_reads, strict=True)
    outs = _unpacked(at, [gather(tapes[c], rows) for c, rows in of_roots])
    if at.layout.collect:
        valid = collected(at)
        of_calls = zip(classes, tables.collect_reads, strict=True)
        found = [select_rows(valid, gather(tapes[c], rows)) for c, rows in of_calls]
        outs += _unpacked(at, found)
    return outs


def _unpacked(at: Scheduled, rows: Sequence[Any]) -> list[Any]:
    """The results in the order of the function's, from the rows that hold them."""
    program = at.program
    found: dict[int, Any] = {}
    for (c, parts), row in zip(program.result_rows, rows, strict=True):
        found.update(zip(parts, unpack(row, program.members[c], batch=1), strict=True))
    return [found[k] for k in range(len(found))]


def collected(at: Scheduled) -> Any:
    """Which rows of the report of all calls are calls, `[max_calls]`."""
    return numbers(at.layout.max_calls) < at.tables.num_collected
