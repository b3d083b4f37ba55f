"""The backward replay: the waves of the schedule in reverse.

A call's results are read at known places. Each reader writes the cotangent of what it read into a
block of the *cotangent tape*, so the cotangent of a value is a gather from there and a sum over
its readers: no scatter, no scheduling, no predicate a second time. Rows are right-aligned: what a
wave computes in front of its first row falls on rows that an earlier wave, which runs later here,
overwrites.

Source: Jeong et al. (EuroSys 2018), section 4.2, for a backward graph that finds forward values by
call path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxrec._types import has_derivative
from jaxrec.lowering import _tapes, _waiting, _waves
from jaxrec.lowering._forward import Scheduled
from jaxrec.lowering._pack import pack, unpack
from jaxrec.lowering._quick import quick
from jaxrec.lowering._read import Place, read_wave
from jaxrec.lowering._rows import numbers, sum_over_readers
from jaxrec.schedule._plan import LanePattern
from jaxrec.schedule._tables import BLOCKS, COUNT, FIRST, cell_count, collect_start, result_start
from jaxrec.split._program import CellSpec
from jaxrec.transpose._cells import Backward, Replay, most_readers, tapes_by_cell
from jaxrec.transpose._outer import outer_cotangents, zero_of


@dataclasses.dataclass(frozen=True)
class Want:
    """Which cotangents are asked for.

    Attributes:
        outers: positions of outer values.
        roots: positions of data arguments of the root.
        lanes: for each of `outers`, how lanes index its cotangent; None for one sum over lanes.
    """

    outers: tuple[int, ...]
    roots: tuple[int, ...]
    lanes: tuple[LanePattern | None, ...]


def run_backward(
    at: Scheduled,
    backward: Backward,
    tapes: Sequence[Any],
    residuals: Sequence[Sequence[Any]],
    cotangents: Sequence[Any],
    want: Want,
) -> tuple[list[Any], list[Any]]:
    """Runs the waves in reverse.

    Args:
        at: the invocation, with the tables of its schedule.
        backward: its differentiated cells.
        tapes: value tapes of the forward pass.
        residuals: residual tapes of the forward pass.
        cotangents: of the differentiable results, `[lanes, ...]`, then of the collected ones.
        want: what to return.

    Returns:
        Cotangents of outer values and of data arguments of the roots.
    """
    replay = Replay(at, backward, tapes, residuals)
    ct_tapes = initial_cotangents(at, cotangents)
    cut_tapes = tapes_by_cell(backward, [cut_types(backward, s) for s in at.program.cells])
    bodies = {
        kind: _body(replay, spec, width) if backward.has_loop(spec) else None
        for kind, spec, width in at.waves_of
    }
    ct_tapes, cut_tapes = _waves.run_waves(
        at.program, at.layout, at.tables, bodies, (ct_tapes, cut_tapes), backward=True
    )
    cut_tapes = [
        settle_cuts(at, backward, spec, tapes)
        for spec, tapes in zip(at.program.cells, cut_tapes, strict=True)
    ]
    lanes = dict(zip(want.outers, want.lanes, strict=True))
    outer_cts = outer_cotangents(replay, ct_tapes, cut_tapes, lanes)
    root_cts = root_cotangents(at, ct_tapes, want)
    return outer_cts, [x + zero_of(at.tables, x.dtype) for x in root_cts]


def cut_types(backward: Backward, spec: CellSpec) -> tuple[Any, ...]:
    """Types of one row of the cut of a cell."""
    return backward.at(spec, backward.layout.widths[0]).cuts if backward.has_loop(spec) else ()


def settle_residuals(at: Scheduled, residuals: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Repeats the last row of each residual tape, so that a step past it finds valid rows."""

    def settled(spec: CellSpec, tape: Any) -> Any:
        end = _end(at, spec)
        last = lax.dynamic_index_in_dim(tape, end - 1, keepdims=True)
        rows = _repeated(at, spec, last)
        return _tapes.put(tape, rows, end)

    pairs = zip(at.program.cells, residuals, strict=True)
    return [[settled(spec, tape) for tape in tapes] for spec, tapes in pairs]


def settle_cuts(
    at: Scheduled, backward: Backward, spec: CellSpec, tapes: Sequence[Any]
) -> list[Any]:
    """Ends each cut tape: with zeros if it holds cotangents, else with its last row repeated."""
    if not tapes:
        return []
    end, found = _end(at, spec), []
    for tape, carries in zip(
        tapes, backward.at(spec, at.layout.widths[0]).cut_carries, strict=True
    ):
        last = lax.dynamic_index_in_dim(tape, end - 1, keepdims=True)
        row = jnp.zeros_like(last) if carries else last
        rows = _repeated(at, spec, row)
        found.append(_tapes.put(tape, rows, end))
    return found


def _repeated(at: Scheduled, spec: CellSpec, row: Any) -> Any:
    """A step of the same row, which has an axis of rows."""
    return jnp.broadcast_to(row, (at.layout.step_rows[spec.cell.index], *row.shape[1:]))


def _end(at: Scheduled, spec: CellSpec) -> Any:
    """The first row of a cell that no wave has written."""
    return at.layout.pad + cell_count(at.program, at.tables, spec.cell.index)


def initial_cotangents(at: Scheduled, cotangents: Sequence[Any]) -> list[Any]:
    """Cotangent tapes with the cotangents of the results; None for classes without."""
    program, layout, tables = at.program, at.layout, at.tables
    carrying = [c for c, aval in enumerate(program.classes) if has_derivative(aval)]
    made = _tapes.empty_tapes(
        [layout.read_rows[c] for c in carrying], [program.classes[c] for c in carrying]
    )
    tapes: list[Any] = [None] * len(program.classes)
    for c, tape in zip(carrying, made, strict=True):
        tapes[c] = tape
    starts = [result_start(tables, k) for k in range(len(program.result_classes))]
    if layout.collect:
        starts += [collect_start(program, tables, k) for k in range(len(program.result_classes))]
    classes = program.result_classes * (2 if layout.collect else 1)
    for c, rows, start in zip(classes, _packed(at, cotangents), starts, strict=True):
        if tapes[c] is not None:
            tapes[c] = _tapes.put(tapes[c], rows, start)
    return tapes


def _packed(at: Scheduled, cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of results by tape row; None for rows without."""
    program = at.program
    given = iter(cotangents)
    found = []
    for _ in range(2 if at.layout.collect else 1):
        by_result = [next(given) if has_derivative(a) else None for a in program.result_avals]
        for c, parts in program.result_rows:
            carries = has_derivative(program.classes[c])
            found.append(pack([by_result[k] for k in parts], batch=1) if carries else None)
    return found


def _body(replay: Replay, spec: CellSpec, width: int) -> Any:
    vjp = replay.backward.at(spec, width)
    first_read = BLOCKS + replay.at.program.max_outputs
    classes = replay.at.program.classes
    slots = [(k, c) for k, c in enumerate(spec.inputs) if has_derivative(classes[c])]

    place = Place(width, FIRST, COUNT)
    waves = replay.at.tables.waves

    def run(number: Any, state: Any) -> tuple[Any, Any]:
        ct_tapes, cut_tapes = list(state[0]), list(state[1])
        ordered = replay.at.layout.sweeps or len(slots) + len(cut_tapes[spec.cell.index]) > 1
        sums = replay.sums(spec, ct_tapes)
        wave, _, cotangents = read_wave(place, waves, number, sums=sums, is_ordered=ordered)
        shift, start = wave[COUNT] - width, place.start(wave)
        rows = _waiting.calls_alone(vjp.waits, numbers(width) + shift >= 0)
        given = (
            replay.values(spec, start, width, rows),
            list(map(rows, replay.saved(spec, start, width))),
            list(map(rows, cotangents)),
        )
        d_inputs, cuts = _waiting.in_its_wave(vjp.waits, wave[COUNT] > 0, quick(vjp.loop), *given)
        # The last block first: what falls in front of a block is overwritten by the one before it.
        for (k, c), made in reversed(list(zip(slots, d_inputs, strict=True))):
            ct_tapes[c] = _tapes.put(ct_tapes[c], made, wave[first_read + k] + shift)
        index = spec.cell.index
        cut_tapes[index] = [
            _tapes.put(tape, made, start) for tape, made in zip(cut_tapes[index], cuts, strict=True)
        ]
        return wave, (ct_tapes, cut_tapes)

    return run


def root_cotangents(at: Scheduled, ct_tapes: Sequence[Any], want: Want) -> list[Any]:
    """The cotangents of the roots' data arguments that are asked for."""
    program, tables = at.program, at.tables
    found: dict[int, Any] = {}
    given = zip(program.data_rows, tables.root_readers, most_readers(at)[-1], strict=True)
    for (c, parts), pointers, most in given:
        if set(parts).intersection(want.roots):
            rows = sum_over_readers(ct_tapes[c], tables.reader_rows[c], pointers, most)
            found.update(zip(parts, unpack(rows, program.members[c], batch=1), strict=True))
    return [found[position] for position in want.roots]
