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
    quick_cell,
    with_roots,
    write,
    writes_several,
)
from jaxrec.lowering._read import Place, read_wave
from jaxrec.schedule._plan import PlanInputs
from jaxrec.schedule._step import Stepping, begin_stepping
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
        scheduled: whether the schedule is asked for; else of its tables only those that say where
            results are.

    Returns:
        The invocation with its schedule, the value tapes and the residual tapes.
    """
    program, layout = at.program, at.layout
    residuals = [list(t) for t in residual_tapes or [[]] * len(program.cells)]
    stepping = begin_stepping(program, layout, inputs)
    bodies = {kind: _body(at, stepping, spec, width, cell_at) for kind, spec, width in at.waves_of}
    tapes = with_roots(at, _tapes.empty_tapes(layout.value_rows, program.classes))
    wave, (tapes, residuals) = _run_waves(bodies, (stepping.first(tapes), (tapes, residuals)))
    if scheduled:
        tables = stepping.end(wave)
    else:
        tables = dataclasses.replace(at.tables, result_reads=stepping.results(wave))
    return dataclasses.replace(at, tables=tables), tapes, residuals


def _body(at: Scheduled, stepping: Stepping, spec: CellSpec, width: int, cell_at: CellAt) -> Body:
    cell = cell_at(at, spec, width)

    def run(wave: Any, state: State) -> tuple[Any, State]:
        rows = stepping.operands(spec, width, wave)
        given = [(state[0][c], x) for c, x in zip(spec.inputs, rows.reads, strict=True)]
        several = writes_several(spec, state)
        wave, inputs, _ = read_wave(Place(width), wave[None], 0, given, is_ordered=several)
        outers = _outers.cell_outers(spec, at.outers, at.patterns, rows.lanes)
        values = outers, list(rows.exports), inputs
        outs, kept = _waiting.in_its_wave(cell.waits, rows.lanes[0] >= 0, cell.run, *values)
        state = write(spec, outs, kept, wave, state)
        return stepping.after(rows.lanes, state[0]), state

    return run


def _run_waves(bodies: dict[int, Body], carry: tuple[Any, State]) -> tuple[Any, State]:
    """Loops inside a loop, as `run_waves` has them for a schedule that is known."""

    def sweep(carry: tuple[Any, State]) -> tuple[Any, State]:
        for kind, body in sorted(bodies.items()):
            carry = lax.while_loop(
                lambda c, kind=kind: c[0][0] == kind, lambda c, body=body: body(*c), carry
            )
        return carry

    return lax.while_loop(lambda c: c[0][0] >= 0, sweep, carry)
