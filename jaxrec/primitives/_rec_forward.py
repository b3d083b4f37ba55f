"""The primitive `rec_forward`: as `rec`, with the residuals of the backward pass."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._checks import check_results, checks
from jaxrec._order import zero_tangent
from jaxrec.executors.host._run import run_host_forward
from jaxrec.invocation._differentiated import Wrt, backward_of
from jaxrec.invocation._params import Params, run_invocation
from jaxrec.invocation._results import outcome, outcome_types
from jaxrec.lowering._forward import results
from jaxrec.primitives._capacity import batch_of
from jaxrec.primitives._primitives import (
    check_compilable,
    rec_forward_p,
    register_batching,
    run_compiled,
    warn_of_copies,
)
from jaxrec.primitives._rec import rec, rec_jvp
from jaxrec.primitives._residuals import MADE, blank_residuals, residual_types
from jaxrec.transpose._backward import settle_residuals
from jaxrec.transpose._cells import residual_cell, residual_tapes


def run_forward(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    """The invocation as a part of a compiled program, with its residuals."""
    check_compilable(params)
    backward = backward_of(params, wrt, [_compat.aval_of(x) for x in operands])
    cells = residual_cell(backward), residual_tapes(backward)
    at, tapes, kept = run_invocation(params, backward.layout, operands, *cells)
    flat = [x for tape in settle_residuals(at, kept) for x in tape]
    made = MADE, *jax.tree.leaves(at.tables), *tapes, *flat
    return [*outcome(at, results(at, tapes)), *made]


@rec_forward_p.def_impl
def _forward_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    count = len(outcome_types(params))
    if params.executor == "host":
        made = _compat.as_if_alone(lambda *own: run_host_forward(params, wrt, own), operands)
        return [*made[:count], jnp.int32(MADE), *made[count:]]
    if not any(checks()):
        return run_compiled("rec_forward", run_forward, params, operands, wrt)
    with _compat.without_checks():  # a residual may be of a branch that its call does not take
        made = run_compiled("rec_forward", run_forward, params, operands, wrt)
    check_results(params.program.name, made[:count])
    return made


@rec_forward_p.def_abstract_eval
def _forward_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    with _compat.without_mesh():
        types = [*outcome_types(params), *residual_types(params, wrt, avals)]
    return [_compat.with_vma(a, vma) for a in types]


_compat.register_lowering(rec_forward_p, run_forward, warn_of_copies)


def _forward_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    outs = rec_forward_p.bind(*primals, params=params, wrt=wrt)
    count = len(outcome_types(params))
    _, dots = rec_jvp(primals, tangents, params=params.differentiated(wrt.positions))
    return outs, [*dots, *(zero_tangent(x) for x in outs[count:])]


_compat.register_jvp(rec_forward_p, _forward_jvp)


def _forward_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    batch = batch_of(params, operands, dims)
    run = batch.params.differentiated(wrt.positions)
    outs, out_dims = batch.split_outcome(rec(batch.operands, run))
    types = residual_types(params, wrt, batch.examples)
    blank = blank_residuals(types)
    return [*outs, *blank], [*out_dims, *(_compat.not_mapped for _ in blank)]


register_batching(rec_forward_p, _forward_batch)
