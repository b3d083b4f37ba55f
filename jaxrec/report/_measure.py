"""Where the time and the memory of a call go: measured now, on this machine.

Cells are measured alone: each one is compiled by itself and run, in a loop, on the operands of its
first wave, and that time is multiplied by the number of its waves. What the program does around
the cells (gathering operands, writing tapes, its loops) is therefore in the time of the waves and
not in that of the cells.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrec._types import has_derivative
from jaxrec.executors.host._call import HostCall
from jaxrec.executors.host._run import traced_backward, traced_run
from jaxrec.executors.host._schedule import plan_call
from jaxrec.invocation._differentiated import Wrt, backward_of
from jaxrec.invocation._params import Params, plan_inputs, with_schedule
from jaxrec.lowering._forward import Scheduled, inputs_of, operands, quick_cell, run_forward
from jaxrec.lowering._rows import numbers
from jaxrec.lowering._waiting import calls_alone
from jaxrec.primitives._capacity import decide_capacity, plan_now
from jaxrec.primitives._native import is_native
from jaxrec.primitives._primitives import compiled_programs
from jaxrec.primitives._rules import rec
from jaxrec.report._profile import CellTime, Launch, Profile, WorkerTime, launched_cells
from jaxrec.report._schedule import Schedule
from jaxrec.schedule._layout import Layout, bucket
from jaxrec.schedule._plan import plan_in_program
from jaxrec.schedule._tables import COUNT, FIRST, KIND, Tables, table_types
from jaxrec.split._program import Program

_REPEATS, _LOOPS = 5, 20


def schedule_of(params: Params, operands: Sequence[Any]) -> Schedule:
    """The schedule of an invocation.

    Args:
        params: of the invocation.
        operands: known values.
    """
    plan = plan_now(dataclasses.replace(params, max_calls=None), operands, waves=False)
    sized = dataclasses.replace(params, max_calls=bucket(plan.num_calls))
    return Schedule(params.program, sized.layout(), plan_now(sized, operands, sized.layout()))


def profile_call(params: Params, operands: Sequence[Any]) -> Profile:
    """Runs an invocation several times and measures it.

    Args:
        params: of the invocation.
        operands: known values.
    """
    if params.executor == "host":
        return _profile_host(params, operands)
    compiled, first, call = _measured_call(params, operands)
    params = decide_capacity(params, operands)
    layout = params.layout()
    core = plan_now(params, operands, layout)
    tables = _filled(params.program, layout, core)
    run = jax.jit(lambda *given: run_forward(with_schedule(params, layout, tables, given))[0])
    at, tapes = with_schedule(params, layout, tables, operands), run(*operands)
    has_tapes = params.executor != "reference"
    stages = {
        **_planning(params, layout, operands),
        "compilation (first call less a later one)": max(first - call, 0.0) if compiled else 0.0,
        f"whole call (median of {_REPEATS})": call,
    }
    if has_tapes:
        stages["waves (as one program, given the schedule)"] = _median(lambda: run(*operands))
    return Profile(
        executor=params.executor,
        schedule=Schedule(params.program, layout, core),
        stages=stages,
        cells=tuple(_cell_times(at, tapes, np.asarray(core.waves))),
        compilations=compiled,
        value_bytes=sum(map(_nbytes, tapes)) if has_tapes else 0,
        residual_bytes=_residual_bytes(params, operands) if has_tapes else 0,
        on_machine=is_native(params),
    )


def _planning(params: Params, layout: Layout, operands: Sequence[Any]) -> dict[str, float]:
    """The time of the scheduler; that of a stepped program works between the waves."""
    if params.program.is_stepped:
        return {}
    plan = jax.jit(
        lambda *given: plan_in_program(params.program, layout, plan_inputs(params, given))
    )
    return {"scheduling (as in the program, by itself)": _median(lambda: plan(*operands))}


def _measured_call(params: Params, operands: Sequence[Any]) -> tuple[int, float, float]:
    """Programs compiled by the first call, its seconds, and those of a later one."""
    compiled = compiled_programs(params.program)
    first = _seconds(lambda: rec(operands, params))
    compiled = compiled_programs(params.program) - compiled
    return compiled, first, _median(lambda: rec(operands, params))


def _profile_host(params: Params, operands: Sequence[Any]) -> Profile:
    """Measures an invocation of executor "host", once with every launch waited for."""
    compiled, first, call = _measured_call(params, operands)
    host = traced_run(params, operands)
    calls = bucket(host.plan.num_calls)
    on = dataclasses.replace(params, executor="graph", host=None, max_calls=calls)
    launches = tuple(_launches(host))
    reverse = traced_backward(params, operands)
    backward = tuple(_launches(reverse)) if reverse is not None else ()
    workers = tuple(_workers(host, launches))
    return Profile(
        executor="host",
        schedule=Schedule(params.program, on.layout(), plan_now(on, operands, on.layout())),
        stages={
            **_scheduling(params, operands, workers),
            "compilation (first call less a later one)": max(first - call, 0.0)
            if compiled
            else 0.0,
            f"whole call (median of {_REPEATS})": call,
            "tasks (one run, every launch waited for)": _ended(launches),
            **({"tasks of a backward pass (likewise)": _ended(backward)} if backward else {}),
        },
        cells=tuple(launched_cells(launches)),
        compilations=compiled,
        value_bytes=host.plan.domains
        * sum(
            rows * _nbytes(aval)
            for rows, aval in zip(host.layout.value_rows, params.program.classes, strict=True)
        ),
        residual_bytes=_residual_bytes(on, operands),
        launches=launches,
        backward=backward,
        workers=workers,
        on_machine=is_native(params),
    )


def _scheduling(
    params: Params, operands: Sequence[Any], workers: Sequence[WorkerTime]
) -> dict[str, float]:
    if params.program.is_stepped:
        return {"scheduling (between launches)": workers[0].idle}
    return {"scheduling (on the host, by itself)": _median(lambda: plan_call(params, operands))}


def _workers(host: HostCall, launches: Sequence[Launch]) -> Iterator[WorkerTime]:
    assert host.trace is not None
    for k, (tasks, steals, idle) in enumerate(host.trace.workers):
        busy = sum(x.seconds for x in launches if x.worker == k)
        yield WorkerTime(tasks, steals, busy, idle * 1e-9)


def _launches(host: HostCall) -> Iterator[Launch]:
    assert host.trace is not None
    for label, worker, start, end in host.trace.launches:
        device = str(host.device(label.domain) or host.options.devices[0])
        taken = (start * 1e-9, (end - start) * 1e-9)
        yield Launch(label.name, worker, label.domain, device, label.calls, label.width, *taken)


def _ended(launches: Sequence[Launch]) -> float:
    """Seconds from the beginning of a run to its end."""
    return max((x.start + x.seconds for x in launches), default=0.0)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def _median(run: Callable[[], Any]) -> float:
    """The median time of several runs, after one that does not count."""
    _seconds(run)
    return statistics.median(_seconds(run) for _ in range(_REPEATS))


def _filled(program: Program, layout: Layout, core: Any) -> Tables:
    """The tables of a schedule, as the compiled program gets them."""
    types = table_types(program, layout)
    buffers = [np.zeros(t.shape, t.dtype) for t in jax.tree.leaves(types)]
    core.fill(buffers, [*layout.value_rows, *layout.read_rows], layout.readers)
    return jax.tree.unflatten(jax.tree.structure(types), [jnp.asarray(x) for x in buffers])


def _cell_times(at: Scheduled, tapes: Sequence[Any], waves: Any) -> Iterator[CellTime]:
    """Times each cell at each width on the operands of its first wave there."""
    for kind, spec, width in at.waves_of:
        mine = waves[waves[:, KIND] == kind]
        fired = mine[mine[:, COUNT] > 0]
        if len(fired):
            cell = quick_cell(at, spec, width)
            rows = calls_alone(cell.waits, numbers(width) < int(fired[0, COUNT]))
            first = int(fired[0, FIRST])
            inputs = inputs_of(at, spec, tapes, first, width, rows)
            values = operands(at, spec, inputs, first, width, rows)
            looped = jax.jit(_looped(cell.run))
            seconds = _median(lambda run=looped, values=values: run(*values)) / _LOOPS
            yield CellTime(spec.cell.name, width, len(mine), int(mine[:, COUNT].sum()), seconds)


def _looped(cell: Callable[..., Any]) -> Callable[..., list[Any]]:
    """Runs a cell many times in one program, so that the launch from Python does not count."""

    def run(outers: list[Any], exports: list[Any], inputs: list[Any]) -> list[Any]:
        # Each round reads one of two copies: else XLA sees that all compute the same.
        copies = jax.tree.map(lambda x: jnp.stack([x, x]), (exports, inputs))

        def again(number: Any, before: list[Any]) -> list[Any]:
            del before
            return cell(outers, *jax.tree.map(lambda x: x[number % 2], copies))[0]

        return lax.fori_loop(1, _LOOPS, again, cell(outers, exports, inputs)[0])

    return run


def _residual_bytes(params: Params, operands: Sequence[Any]) -> int:
    """Memory of the residual tapes of a gradient for every outer value that has one."""
    outers = operands[: params.num_outers]
    wrt = Wrt.of(tuple(k for k, x in enumerate(outers) if has_derivative(x)))
    backward = backward_of(params, wrt, operands)
    return sum(
        backward.layout.cell_rows[spec.cell.index] * _nbytes(row)
        for spec in params.program.cells
        for row in backward.residual_types(spec)
    )


def _nbytes(array: Any) -> int:
    return int(np.prod(array.shape, dtype=np.int64)) * array.dtype.itemsize
