"""The forward program of stepped recursion: each wave is chosen when the one before it has run.

The loops are those of a planned program, but the next wave comes from the scheduler, which reads
the values that control depends on from their tapes. What is left at the end, if it is asked for, is
a schedule like any other: the backward pass, reports and replays cannot tell the difference.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jax import lax

from jaxrec.lowering import _outers, _tapes, _waiting
from jaxrec.lowering._forward import (
    CellAt,
    Scheduled,
    State,
    is_ordered,
    quick_cell,
    with_roots,
    write,
)
from jaxrec.lowering._read import Gather, Place, read_wave
from jaxrec.lowering._waves import after
from jaxrec.schedule._plan import PlanInputs
from jaxrec.schedule._step import Stepping, WaveRows, begin_stepping
from jaxrec.schedule._tables import COUNT, KIND
from jaxrec.split._program import CellSpec

Body = Callable[[Any, State], tuple[Any, State]]


def run_stepped(
    at: Scheduled,
    inputs: PlanInputs,
    cell_at: CellAt = quick_cell,
    residual_tapes: Sequence[Sequence[Any]] | None = None,
    *,
    scheduled: bool = True,
) -> tuple[Scheduled, list[Any], list[list[Any]]]:
    """Runs an invocation whose schedule is not known yet.

    Args:
        at: the invocation; of its tables only the types are looked at.
        inputs: what the scheduler starts from.
        cell_at: the cells to run; they may return residuals, one row a call.
        residual_tapes: for each cell, a tape for each residual.
        scheduled: whether the schedule is asked for; else of its tables only those that tell the
            results, of collected calls too.

    Returns:
        The invocation with its schedule, the value tapes and the residual tapes.
    """
    program, layout = at.program, at.layout
    residuals = [list(t) for t in residual_tapes or [[]] * len(program.cells)]
    stepping = begin_stepping(program, layout, inputs)
    tapes = with_roots(at, _tapes.empty_tapes(layout.value_rows, program.classes))
    run = _run_sweeps if layout.sweeps else _run_waves
    wave, (tapes, residuals) = run(at, stepping, cell_at, (tapes, residuals))
    if scheduled or layout.collect:
        tables = stepping.end(wave, waves=scheduled)
    else:
        tables = dataclasses.replace(at.tables, result_reads=stepping.results(wave))
    return dataclasses.replace(at, tables=tables), tapes, residuals


Fire = Callable[[Any, WaveRows, State], tuple[Any, State]]
"""Runs a wave, given as a row of the wave table, with what it reads: as a `Body` of `run_waves`."""


def _fire(at: Scheduled, spec: CellSpec, width: int, cell_at: CellAt) -> Fire:
    cell = cell_at(at, spec, width)

    def run(wave: Any, rows: WaveRows, state: State) -> tuple[Any, State]:
        given = [Gather(state[0][c], x) for c, x in zip(spec.inputs, rows.reads, strict=True)]
        ordered = is_ordered(at, spec, state)
        wave, inputs, _ = read_wave(Place(width), wave[None], 0, given, is_ordered=ordered)
        outers = _outers.cell_outers(spec, at.outers, at.patterns, rows.lanes)
        values = outers, list(rows.exports), inputs
        outs, kept = _waiting.in_its_wave(cell.waits, wave[COUNT] > 0, cell.run, *values)
        return wave, write(spec, outs, kept, wave, state)

    return run


def _run_sweeps(
    at: Scheduled, stepping: Stepping, cell_at: CellAt, state: State
) -> tuple[Any, State]:
    """One loop, in which a wave of each cell runs."""
    cells = [_fire(at, spec, width, cell_at) for _, spec, width in at.waves_of]

    def sweep(carry: tuple[Any, State]) -> tuple[Any, State]:
        waves, state = carry
        before: Any = 0
        for fire, (wave, rows) in zip(cells, stepping.waves(waves), strict=True):
            wave, state = fire(wave + before, rows, state)
            before = after(wave)
        return stepping.sweep(state[0]), state

    return lax.while_loop(lambda c: c[0][KIND] >= 0, sweep, (stepping.sweep(state[0]), state))


def _run_waves(
    at: Scheduled, stepping: Stepping, cell_at: CellAt, state: State
) -> tuple[Any, State]:
    """Loops inside a loop, as `run_waves` has them for a schedule that is known."""

    def body(spec: CellSpec, width: int) -> Body:
        fire = _fire(at, spec, width, cell_at)

        def run(wave: Any, state: State) -> tuple[Any, State]:
            rows = stepping.operands(spec, width, wave)
            _, state = fire(wave, rows, state)
            return stepping.after(rows.lanes, state[0]), state

        return run

    bodies = {kind: body(spec, width) for kind, spec, width in at.waves_of}

    def sweep(carry: tuple[Any, State]) -> tuple[Any, State]:
        for kind, body in sorted(bodies.items()):
            carry = lax.while_loop(
                lambda c, kind=kind: c[0][KIND] == kind, lambda c, body=body: body(*c), carry
            )
        return carry

    return lax.while_loop(lambda c: c[0][KIND] >= 0, sweep, (stepping.first(state[0]), state))
