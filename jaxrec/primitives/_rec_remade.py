"""The primitive `rec_remade`: state, operands to residuals, if there was a run to have them of.

Where `grad` of a choice of JAX is mapped, the operands of a branch are zeros for an example that
did not take it. A recursion whose arguments are replaced by zeros may have no end: it is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._equation import varying_together
from jaxrec._order import zero_tangent
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.invocation._results import outcome_types
from jaxrec.lowering._rows import row_mask
from jaxrec.primitives._alike import Batched
from jaxrec.primitives._batching import example
from jaxrec.primitives._capacity import batch_of
from jaxrec.primitives._primitives import (
    rec_forward_p,
    rec_remade_p,
    register_batching,
)
from jaxrec.primitives._rec_forward import run_forward
from jaxrec.primitives._residuals import (
    BLANK,
    MADE,
    UNTAKEN,
    blank_residuals,
    residual_types,
    was_run,
)
from jaxrec.primitives._room import forward_pass


def remade(
    state: Any, operands: Sequence[Any], params: Params, wrt: Wrt
) -> tuple[list[Any], Params]:
    """Residuals made afresh, zeros if `state` is `UNTAKEN`; and parameters with their capacity."""
    if was_run(state):
        made, params = forward_pass(params, operands, wrt)
        return made[len(outcome_types(params)) :], params
    varying = varying_together([state, *operands])
    return rec_remade_p.bind(*varying, params=params, wrt=wrt), params


def _run_remade(state: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    def run() -> list[Any]:
        made = run_forward(*operands, params=params, wrt=wrt)
        return [jnp.asarray(x) for x in made[len(outcome_types(params)) :]]

    def nothing() -> list[Any]:
        avals = [_compat.aval_of(x) for x in operands]
        return [jnp.zeros(a.shape, a.dtype) for a in residual_types(params, wrt, avals)]

    return lax.cond(state != UNTAKEN, run, nothing)


@rec_remade_p.def_impl
def _remade_impl(state: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    if not was_run(state):
        types = residual_types(params, wrt, [_compat.aval_of(x) for x in operands])
        return [jnp.zeros(a.shape, a.dtype) for a in types]
    return rec_forward_p.bind(*operands, params=params, wrt=wrt)[len(outcome_types(params)) :]


@rec_remade_p.def_abstract_eval
def _remade_types(state: Any, *avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma([state, *avals])
    with _compat.without_mesh():
        types = residual_types(params, wrt, avals)
    return [_compat.with_vma(a, vma) for a in types]


_compat.register_lowering(rec_remade_p, _run_remade)


def _remade_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    outs = rec_remade_p.bind(*primals, params=params, wrt=wrt)
    return outs, list(map(zero_tangent, outs))


_compat.register_jvp(rec_remade_p, _remade_jvp)


def _remade_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    avals = [example(x, d) for x, d in zip(operands[1:], dims[1:], strict=True)]
    state = jnp.where(operands[0] == UNTAKEN, jnp.int32(UNTAKEN), jnp.int32(BLANK))
    blank = blank_residuals(residual_types(params, wrt, avals))[1:]
    return [state, *blank], [dims[0], *(_compat.not_mapped for _ in blank)]


register_batching(rec_remade_p, _remade_batch)


def batch_taken(
    params: Params,
    operands: Sequence[Any],
    dims: Sequence[Any],
    size: int,
    apart: Sequence[int],
    asked: Sequence[int] = (),
) -> tuple[Batched, Any]:
    """Batches the invocation that residuals are of.

    Examples that did not run it get the operands of one that did: their cotangents are not used.

    Args:
        params: of the invocation.
        operands: its own, then the residuals.
        dims: their mapped axes.
        size: of the new axis.
        apart: outer values that get the axis although they do not have it.
        asked: outer values that each example has a cotangent of, see `batched`.

    Returns:
        The batched invocation, and its state.
    """
    count = params.num_operands
    state, primals, axes = operands[count], list(operands[:count]), list(dims[:count])
    if dims[count] is not _compat.not_mapped and not size:
        state = jnp.int32(UNTAKEN)
    elif dims[count] is not _compat.not_mapped:
        ran = state != UNTAKEN
        first, state = jnp.argmax(ran), jnp.where(ran.any(), jnp.int32(MADE), jnp.int32(UNTAKEN))
        for k, axis in enumerate(axes):
            if axis is not _compat.not_mapped:
                rows = jnp.moveaxis(primals[k], axis, 0)
                primals[k] = jnp.where(row_mask(ran, rows), rows, rows[first])
                axes[k] = 0
    return batch_of(params, primals, axes, size, apart, asked, ran=was_run(state)), state
