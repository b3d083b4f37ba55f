"""What the linear primitives do where residuals are missing or shared: under `vmap`, on "graph"."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec._order import zero_tangent
from jaxrec.executors.host._run import plan_of
from jaxrec.invocation._differentiated import Wrt, backward_of
from jaxrec.invocation._params import Params
from jaxrec.invocation._results import outcome_types
from jaxrec.primitives._alike import Batched
from jaxrec.primitives._batching import axis_size
from jaxrec.primitives._capacity import on_graph
from jaxrec.primitives._primitives import rec_forward_p
from jaxrec.primitives._rec_schedule import schedule_of
from jaxrec.primitives._residuals import BLANK, MADE, split_residuals, state_of


def stack_given(
    primitive: Primitive, operands: Any, dims: Any, given: int, params: Params, wrt: Wrt
) -> tuple[list[Any], list[int]]:
    """Batches over tangents or cotangents alone: the same schedule, one more leading axis."""
    fixed, moving = operands[:-given], operands[-given:]
    size = axis_size(moving, dims[-given:])
    fronted = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is _compat.not_mapped else jnp.moveaxis(x, d, 0)
        for x, d in zip(moving, dims[-given:], strict=True)
    ]
    deeper = dataclasses.replace(wrt, stack=wrt.stack + 1)
    outs = primitive.bind(*fixed, *fronted, params=params, wrt=deeper)
    return outs, [0] * len(outs)


def with_residuals(operands: Sequence[Any], params: Params, wrt: Wrt, given: int) -> list[Any]:
    """Known operands of a linear primitive, with residuals made afresh if they are blank."""
    count, last = params.num_operands, len(operands) - given
    if state_of(operands[count:last]) != BLANK:
        return list(operands)
    made = rec_forward_p.bind(*operands[:count], params=params, wrt=wrt)
    return [*operands[:count], *made[len(outcome_types(params)) :], *operands[last:]]


def call_on_graph(
    operands: Sequence[Any], params: Params, wrt: Wrt, given: int
) -> tuple[list[Any], Params]:
    """A call of a linear primitive on executor "host", as one on executor "graph".

    For derivatives of derivatives and for forward mode, which are written for the tables and tapes
    of that executor.

    Args:
        operands: of the primitive: operands of the invocation, residuals, given values.
        params: of the invocation.
        wrt: which operands are differentiated.
        given: how many values are given.

    Returns:
        Operands and parameters of the other call.
    """
    count, last = params.num_operands, len(operands) - given
    on = on_graph(params, operands[:count])
    made = rec_forward_p.bind(*operands[:count], params=on, wrt=wrt)
    return [*operands[:count], *made[len(outcome_types(on)) :], *operands[last:]], on


def tangents_on_graph(
    primals: Sequence[Any], tangents: Sequence[Any], params: Params, wrt: Wrt, given: int
) -> tuple[list[Any], list[Any], Params]:
    """`call_on_graph` with the tangents of its operands: those of residuals are zero."""
    count, last = params.num_operands, len(primals) - given
    operands, on = call_on_graph(primals, params, wrt, given)
    residuals = operands[count : len(operands) - given]
    return operands, [*tangents[:count], *map(zero_tangent, residuals), *tangents[last:]], on


def collect_lanes(
    batch: Batched, state: Any, wrt: Wrt, residuals: Sequence[Any]
) -> tuple[Any, Any] | None:
    """The lane of each reported call and their number, of a batched invocation.

    Residuals tell only where they are surely of a run: another `vmap` around leaves blank ones.

    Args:
        batch: the invocation.
        state: what its residuals are of.
        wrt: which of its operands are differentiated.
        residuals: made afresh.
    """
    params = batch.params
    if not params.collect:
        return None
    if state_of(residuals) != MADE:
        on = dataclasses.replace(params, executor="graph", host=None)
        tables = schedule_of(on, batch.operands, state)
    elif params.executor == "host":
        tables = plan_of(residuals[1:]).tables
    else:
        backward = backward_of(params, wrt, list(map(_compat.aval_of, batch.operands)))
        tables, _, _ = split_residuals(params, backward, residuals)
    return jnp.asarray(tables.calls_lane), jnp.asarray(tables.num_collected)


def zeros_of(aval: Any) -> Any:
    """Zeros of a type."""
    return jnp.zeros(aval.shape, aval.dtype)
