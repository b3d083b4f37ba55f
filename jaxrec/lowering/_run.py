"""An invocation from its operands to its tapes, planned or stepped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrec.lowering._forward import Bound, CellAt, plain_cell, run_forward
from jaxrec.lowering._stepped import run_stepped
from jaxrec.schedule._layout import Layout, table_types
from jaxrec.schedule._plan import LanePattern, PlanInputs, plan_in_program
from jaxrec.split._program import Program


def run(
    program: Program,
    layout: Layout,
    patterns: tuple[LanePattern | None, ...],
    inputs: PlanInputs,
    outers: Sequence[Any],
    roots: Sequence[Any],
    cell_at: CellAt = plain_cell,
    residual_tapes: Sequence[Sequence[Any]] | None = None,
    *,
    scheduled: bool = True,
) -> tuple[Bound, list[Any], list[list[Any]]]:
    """Schedules and runs an invocation inside the program that is being traced.

    Args:
        program: the program.
        layout: its sizes.
        patterns: for each outer value, how lanes index it.
        inputs: what the scheduler reads.
        outers: the outer values.
        roots: the data arguments of the roots, each `[lanes, ...]`.
        cell_at: the cells to run; they may return residuals, one row a call.
        residual_tapes: for each cell, a tape for each residual.
        scheduled: whether more than results is asked for; without, a stepped invocation leaves no
            schedule.

    Returns:
        The invocation with its schedule, the value tapes and the residual tapes.
    """
    types = table_types(program, layout)
    bound = Bound(program, layout, patterns, types, tuple(outers), tuple(roots))
    if program.is_stepped:
        return run_stepped(bound, inputs, cell_at, residual_tapes, scheduled=scheduled)
    tables = plan_in_program(program, layout, inputs)
    bound = Bound(program, layout, patterns, tables, tuple(outers), tuple(roots))
    tapes, residuals = run_forward(bound, cell_at, residual_tapes)
    return bound, tapes, residuals
