"""An invocation from its operands to its tapes, planned or stepped."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxrec.lowering._forward import CellAt, Scheduled, quick_cell, run_forward
from jaxrec.lowering._stepped import run_stepped
from jaxrec.schedule._plan import PlanInputs, plan_in_program


def run(
    waiting: Scheduled,
    inputs: PlanInputs,
    cell_at: CellAt = quick_cell,
    residual_tapes: Sequence[Sequence[Any]] | None = None,
    *,
    scheduled: bool = True,
) -> tuple[Scheduled, list[Any], list[list[Any]]]:
    """Schedules and runs an invocation inside the program that is being traced.

    Args:
        waiting: the invocation, with the types of its tables in their place.
        inputs: what the scheduler reads.
        cell_at: the cells to run; they may return residuals, one row a call.
        residual_tapes: for each cell, a tape for each residual.
        scheduled: whether more than results is asked for, those of collected calls included;
            without, a stepped invocation leaves no schedule.

    Returns:
        The invocation with its schedule, the value tapes and the residual tapes.
    """
    if waiting.program.is_stepped:
        return run_stepped(waiting, inputs, cell_at, residual_tapes, scheduled=scheduled)
    tables = plan_in_program(waiting.program, waiting.layout, inputs)
    at = dataclasses.replace(waiting, tables=tables)
    tapes, residuals = run_forward(at, cell_at, residual_tapes)
    return at, tapes, residuals
