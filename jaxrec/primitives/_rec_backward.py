"""The primitive `rec_backward`: cotangents of the operands from those of the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec.executors.host._run import run_host_backward
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params, with_schedule
from jaxrec.invocation._results import differentiable
from jaxrec.primitives._batching import Batch, axis_size
from jaxrec.primitives._primitives import (
    check_compilable,
    over_stack,
    rec_backward_p,
    rec_linear_p,
    register_batching,
    run_compiled,
)
from jaxrec.primitives._rec_linear import avals_of, stacked, transposed
from jaxrec.primitives._rec_remade import batch_taken, remade
from jaxrec.primitives._rec_schedule import schedule_of
from jaxrec.primitives._residuals import (
    LinearCall,
    jvp_of_replay,
    moving,
    replayed,
    split_residuals,
)
from jaxrec.primitives._stacking import (
    collect_lanes,
    stack_given,
    tangents_on_graph,
    was_made,
    with_residuals,
    zeros_of,
)
from jaxrec.schedule._layout import Tables
from jaxrec.schedule._plan import LanePattern
from jaxrec.transpose._backward import Want, run_backward
from jaxrec.transpose._unread import without_unread


def _run_backward(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    check_compilable(params)
    call = LinearCall(operands, params, wrt, sum(differentiable(params)))
    backward = call.backward()
    tables, tapes, kept = split_residuals(params, backward, call.residuals)
    backward, kept = without_unread(backward, wrt.without, kept)
    pairs = wrt.pairs
    outers = [(k, p) for k, p in pairs if k < params.num_outers]
    roots = [k for k, _ in pairs if k >= params.num_outers]
    want = Want(
        tuple(k for k, _ in outers),
        tuple(k - params.first_data for k in roots),
        tuple(p for _, p in outers),
    )
    at = with_schedule(params, backward.layout, tables, call.primals)

    def once(*given: Any) -> list[Any]:
        outer_cts, root_cts = run_backward(at, backward, tapes, kept, given, want)
        return [*outer_cts, *root_cts]

    return over_stack(once, wrt.stack)(*call.given)


@rec_backward_p.def_impl
def _backward_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    given = sum(differentiable(params))
    if not was_made(operands, params) or 0 in operands[-1].shape[: wrt.stack]:
        return list(map(zeros_of, _backward_types(*operands, params=params, wrt=wrt)))
    known = with_residuals(operands, params, wrt, given)
    if params.executor == "host":

        def on_host(*known: Any) -> list[Any]:
            call = LinearCall(known, params, wrt, given)
            return run_host_backward(params, wrt, call.primals, call.residuals[1:], call.given)

        made = _compat.as_if_alone(on_host, known)
    else:
        made = run_compiled("rec_backward", _run_backward, params, known, wrt)
    if wrt.stack or any(pattern is not None for pattern in wrt.lanes):
        return made
    return [_compat.with_axes_of(x, operands[k]) for x, k in zip(made, wrt.positions, strict=True)]


@rec_backward_p.def_abstract_eval
def _backward_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    types = []
    for k, pattern in wrt.pairs:
        own = k < params.num_outers and params.patterns[k] is None
        lead = (pattern[1],) if own and pattern is not None else ()
        aval = ShapedArray((*lead, *avals[k].shape), avals[k].dtype)
        types.append(stacked(aval, avals, wrt))
    return [_compat.with_vma(a, vma) for a in types]


_compat.register_lowering(rec_backward_p, _run_backward)


def _backward_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    given = sum(differentiable(params))
    if params.executor == "host":
        primals, tangents, params = tangents_on_graph(primals, tangents, params, wrt, given)
    call = LinearCall(primals, params, wrt, given)
    apart = _kept_apart(params, wrt)
    positions = moving(params, wrt.positions, list(map(_compat.aval_of, call.primals)))
    tables = schedule_of(params, call.primals, call.state)

    def run(params: Params, tables: Tables, operands: list[Any], given: list[Any]) -> list[Any]:
        repeated = [
            jnp.broadcast_to(x, (apart[k][1], *x.shape)) if k in apart else x
            for k, x in enumerate(operands)
        ]
        at = replayed(_indexed_by_lane(params, apart), tables, repeated, positions)

        def read(xs: Sequence[Any]) -> list[Any]:
            return [x for k, x in enumerate(xs) if k not in wrt.without]

        _, pull = jax.vjp(lambda *xs: read(at(*xs)), *(repeated[k] for k in positions))
        asked = len(wrt.positions)
        return over_stack(lambda *cts: list(pull(read(cts)))[:asked], wrt.stack)(*given)

    return jvp_of_replay("backward", run, call, tables, positions, tangents)


_compat.register_jvp(rec_backward_p, _backward_jvp)


def _backward_transpose(cts: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    if any(pattern is not None for pattern in wrt.lanes):
        raise UnsupportedError(
            f"transposition of jax.vmap of a pullback of {params.program.name}. Transpose the "
            "pullback and map that, or differentiate it: jax.vjp(pullback, ...)."
        )
    types = _backward_types(*avals_of(operands), params=params, wrt=wrt)
    given = sum(differentiable(params))
    return transposed(rec_linear_p, types, cts, operands, given, params, wrt)


_compat.register_transpose(rec_backward_p, _backward_transpose)


def _kept_apart(params: Params, wrt: Wrt) -> dict[int, LanePattern]:
    """The outer values that lanes share although their cotangents are kept apart by lane."""
    return {k: p for k, p in wrt.pairs if p is not None and params.patterns[k] is None}


def _indexed_by_lane(params: Params, apart: dict[int, LanePattern]) -> Params:
    """The invocation whose lanes index outer values that they share."""
    patterns = tuple(apart.get(k, p) for k, p in enumerate(params.patterns))
    return dataclasses.replace(params, patterns=patterns)


def _backward_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    given = sum(differentiable(params))
    if all(d is _compat.not_mapped for d in dims[: len(dims) - given]):
        return stack_given(rec_backward_p, operands, dims, given, params, wrt)
    size = axis_size(operands, dims)
    operands, dims, params = _repeated_by_lane(operands, dims, params, wrt)
    apart = [k for k in wrt.positions if k < params.num_outers and params.patterns[k] is not None]
    batch, state = batch_taken(params, operands[:-given], dims[:-given], size, apart)
    lanes = tuple(batch.cotangent_lanes(k, p) for k, p in wrt.pairs)
    wide = dataclasses.replace(wrt, lanes=lanes)
    residuals = remade(state, batch.operands, batch.params, wrt)
    reports = collect_lanes(batch, state, wrt, residuals)
    cts = _lay_out_cotangents(batch, wrt.stack, reports, operands[-given:], dims[-given:])
    outs = rec_backward_p.bind(*batch.operands, *residuals, *cts, params=batch.params, wrt=wide)

    def split(*outs: Any) -> list[Any]:
        parts = zip(wrt.positions, outs, wrt.lanes, strict=True)
        return [batch.split_operand(k, x, p) for k, x, p in parts]

    return over_stack(split, wrt.stack)(*outs), [wrt.stack] * len(outs)


def _repeated_by_lane(
    operands: Sequence[Any], dims: Sequence[Any], params: Params, wrt: Wrt
) -> tuple[list[Any], list[Any], Params]:
    """Repeats by lane what differs by example, and whose cotangents are kept apart by lane."""
    operands, dims = list(operands), list(dims)
    apart = {k: p for k, p in _kept_apart(params, wrt).items() if dims[k] is not _compat.not_mapped}
    for k, (_, lanes) in apart.items():
        x = jnp.moveaxis(operands[k], dims[k], 0)[:, None]
        operands[k], dims[k] = jnp.broadcast_to(x, (x.shape[0], lanes, *x.shape[2:])), 0
    return operands, dims, _indexed_by_lane(params, apart)


def _lay_out_cotangents(
    batch: Batch, stack: int, reports: Any, given: Sequence[Any], dims: Sequence[Any]
) -> list[Any]:
    """Lays out cotangents of the results, below the stacked axes."""
    fronted = [
        x if d is _compat.not_mapped else jnp.moveaxis(x, d, stack)
        for x, d in zip(given, dims, strict=True)
    ]
    axes = [d if d is _compat.not_mapped else 0 for d in dims]

    def lay_out(*cts: Any) -> list[Any]:
        return batch.like_results(cts, axes, reports)

    return over_stack(lay_out, stack)(*fronted)


register_batching(rec_backward_p, _backward_batch)
