"""What the primitives call: an invocation, its forward pass with residuals, its backward pass."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec.executors.host._backward import BackwardRun
from jaxrec.executors.host._call import HostCall, Trace
from jaxrec.executors.host._failure import bad_values, unlocated
from jaxrec.executors.host._forward import Forward, Tapes
from jaxrec.executors.host._plan import HostPlan
from jaxrec.executors.host._schedule import plan_call
from jaxrec.executors.host._stepped import step_forward
from jaxrec.executors.host._tasks import TaskList
from jaxrec.invocation._differentiated import Wrt, backward_cells
from jaxrec.invocation._params import Params
from jaxrec.invocation._results import differentiable
from jaxrec.transpose._cells import Backward
from jaxrec.transpose._unread import without_unread


def run_host(params: Params, operands: Sequence[Any]) -> list[Any]:
    """Runs an invocation: its outcome."""
    forward = _forward(params, operands)
    slots = forward.outcome()
    forward.call.run()
    return [forward.call.tasks.values[slot] for slot in slots]


def traced_run(params: Params, operands: Sequence[Any]) -> HostCall:
    """Runs an invocation to measure it: what ran, with a record of every launch."""
    forward = _forward(params, operands, trace=Trace())
    forward.outcome()
    forward.call.run()
    return forward.call


def _forward(
    params: Params, operands: Sequence[Any], wrt: Wrt | None = None, trace: Trace | None = None
) -> Forward:
    """The forward pass: a stepped one has run, of a planned one the tasks are there."""
    if params.program.is_stepped:
        return step_forward(params, operands, reuse=wrt is None, wrt=wrt, trace=trace)[0]
    call = _call(params, operands, plan_call(params, operands, readers=wrt is not None))
    call.trace = trace
    forward = Forward(call, None if wrt is None else differentiated(call, wrt), wrt)
    forward.add_waves()
    return forward


def run_host_forward(params: Params, wrt: Wrt, operands: Sequence[Any]) -> list[Any]:
    """Runs an invocation: its outcome, then the residuals that `run_host_backward` takes."""
    forward = _forward(params, operands, wrt)
    call = forward.call
    forward.settle()
    slots = forward.outcome()
    call.run()
    for tapes in forward.tapes:
        slots += [*tapes.values, *(slot for kept in tapes.residuals for slot in kept)]
    values = [call.tasks.values[slot] for slot in slots]
    count = len(values) - sum(_tape_count(tapes) for tapes in forward.tapes)
    assert params.host is not None
    # As many residuals for every schedule, since tracing asks how many there are.
    per_domain = (len(values) - count) // len(forward.tapes)
    missing = (params.host.domains - len(forward.tapes)) * per_domain
    none = [jnp.zeros(0, np.uint8)] * missing
    # `jnp.asarray` would compile for its size.
    plan = jax.device_put(call.plan.to_bytes())
    return [*values[:count], plan, *values[count:], *none]


def run_host_backward(
    params: Params,
    wrt: Wrt,
    operands: Sequence[Any],
    residuals: Sequence[Any],
    cotangents: Sequence[Any],
) -> list[Any]:
    """The cotangents of the operands, from those of the results.

    Raises:
        JaxRecError: a cell failed.
        FloatingPointError: a cotangent is what `jax_debug_nans` or `jax_debug_infs` looks for.
    """
    if wrt.stack:
        below = dataclasses.replace(wrt, stack=wrt.stack - 1)
        rows = [
            run_host_backward(params, below, operands, residuals, [x[k] for x in cotangents])
            for k in range(cotangents[0].shape[0])
        ]
        return [jnp.stack(column) for column in zip(*rows, strict=True)]
    # A wave may make what is looked for where no cotangent that was asked for comes of it. So waves
    # are searched only when there is something to be found.
    for looks in (False, True):
        run = _backward(params, wrt, operands, residuals, cotangents)
        run.call.looks = looks
        slots = run.add_all()
        run.call.run()
        values = [run.call.tasks.values[slot] for slot in slots]
        bad = bad_values(values, run.call.tasks.checks)
        if not bad:
            return values
    raise unlocated(params.program.name, [_names(params, wrt)[k] for k in bad])


def _names(params: Params, wrt: Wrt) -> list[str]:
    """What the user calls the operands that are differentiated."""
    program = params.program
    entry = program.graph.entry
    known = dict(zip(entry.params, entry.param_names, strict=True))
    roots = [entry.param_names[k] for k in program.roots]
    names = [*(known.get(v, "a value that it closes over") for v in program.outers), *roots]
    return [names[k] for k in wrt.positions]


def traced_backward(params: Params, operands: Sequence[Any]) -> HostCall | None:
    """Runs the backward pass for all that has a cotangent, to measure it: what ran, if any."""
    positions = tuple(k for k, x in enumerate(operands) if params.moves(k, x))
    wrt, carries = Wrt.of(positions), differentiable(params)
    if not positions or not any(carries):
        return None
    made = run_host_forward(params, wrt, operands)
    cotangents = [jnp.ones_like(x) for x, c in zip(made, carries, strict=False) if c]
    run = _backward(params, wrt, operands, made[len(carries) :], cotangents)
    run.call.trace = Trace()
    run.add_all()
    run.call.run()
    return run.call


def _backward(
    params: Params,
    wrt: Wrt,
    operands: Sequence[Any],
    residuals: Sequence[Any],
    cotangents: Sequence[Any],
) -> BackwardRun:
    """The backward pass, whose tasks are still to be added."""
    plan = plan_of(residuals)
    call = _call(params, operands, plan)
    backward = differentiated(call, wrt)
    values = (call.tasks.value(x) for x in residuals[1:])
    tapes = [
        Tapes(
            [next(values) for _ in call.program.classes],
            [[next(values) for _ in backward.residual_types(s)] for s in call.program.cells],
        )
        for _ in range(plan.domains)
    ]
    narrow = [without_unread(backward, wrt.without, x.residuals) for x in tapes]
    tapes = [Tapes(x.values, kept) for x, (_, kept) in zip(tapes, narrow, strict=True)]
    return BackwardRun(call, narrow[0][0], wrt, tapes, cotangents)


def plan_of(residuals: Sequence[Any]) -> HostPlan:
    """The plan among the residuals of an invocation."""
    return HostPlan.from_bytes(residuals[0])


def _call(params: Params, operands: Sequence[Any], plan: HostPlan) -> HostCall:
    assert params.host is not None
    tasks = TaskList(params.program.cache, one_thread=params.host.fills_cores(plan.domains))
    return HostCall(params, operands, plan, tasks)


def _tape_count(tapes: Tapes) -> int:
    return len(tapes.values) + sum(map(len, tapes.residuals))


def differentiated(call: HostCall, wrt: Wrt) -> Backward:
    """The differentiated cells, made once for their types and sizes."""
    avals = [jax.typeof(x) for x in call.operands]
    return backward_cells(call.params, call.layout, wrt, avals)
