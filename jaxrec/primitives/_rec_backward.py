"""The primitive `rec_backward`: cotangents of the operands from those of the results."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec.executors.host._run import run_host_backward
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params, with_schedule
from jaxrec.invocation._results import differentiable
from jaxrec.primitives._batched_cotangents import batched_cotangents
from jaxrec.primitives._cotangents import (
    cotangent_types,
    pulled_back,
    wanted,
)
from jaxrec.primitives._primitives import (
    check_compilable,
    over_stack,
    rec_backward_p,
    rec_linear_p,
    register_batching,
    run_compiled,
)
from jaxrec.primitives._rec_schedule import schedule_of
from jaxrec.primitives._rec_second import second
from jaxrec.primitives._residuals import LinearCall, jvp_of_replay, moving, split_residuals, was_run
from jaxrec.primitives._second_order import by_given, has_dual, sum_of_tangents
from jaxrec.primitives._stacking import (
    tangents_on_graph,
    with_residuals,
    zeros_of,
)
from jaxrec.primitives._transposed import (
    apart_by_lane,
    avals_of,
    filled,
    transposed,
    wanted_of,
)
from jaxrec.schedule._tables import Tables
from jaxrec.transpose._backward import run_backward
from jaxrec.transpose._unread import without_unread


def _run_backward(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    check_compilable(params)
    call = LinearCall(operands, params, wrt, sum(differentiable(params)))
    backward = call.backward()
    tables, tapes, kept = split_residuals(params, backward, call.residuals)
    backward, kept = without_unread(backward, wrt.without, kept)
    at = with_schedule(params, backward.layout, tables, call.primals)
    want = wanted(params, wrt)

    def once(*given: Any) -> list[Any]:
        outer_cts, root_cts = run_backward(at, backward, tapes, kept, given, want)
        return [*outer_cts, *root_cts]

    return over_stack(once, wrt.stack)(*call.given)


@rec_backward_p.def_impl
def _backward_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    given = sum(differentiable(params))
    if not was_run(operands[params.num_operands]) or 0 in operands[-1].shape[: wrt.stack]:
        return list(map(zeros_of, cotangent_types(operands, params, wrt)))
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
    return cotangent_types(avals, params, wrt)


_compat.register_lowering(rec_backward_p, _run_backward)


def _backward_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    given = sum(differentiable(params))
    if params.executor == "host":
        primals, tangents, params = tangents_on_graph(primals, tangents, params, wrt, given)
    if not has_dual(params):
        return _jvp_of_replay(primals, tangents, params, wrt, given)
    outs = rec_backward_p.bind(*primals, params=params, wrt=wrt)
    linear = by_given(rec_backward_p, primals, tangents, params, wrt, given)
    return outs, sum_of_tangents(outs, linear, second(primals, tangents, params, wrt))


def _jvp_of_replay(
    primals: Sequence[Any], tangents: Sequence[Any], params: Params, wrt: Wrt, given: int
) -> Any:
    """The rule where there is no program with tangents."""
    call = LinearCall(primals, params, wrt, given)
    positions = moving(params, wrt.positions, list(map(_compat.aval_of, call.primals)))
    tables = schedule_of(params, call.primals, call.state)

    def run(params: Params, tables: Tables, operands: list[Any], given: list[Any]) -> list[Any]:
        def once(*cts: Any) -> list[Any]:
            return pulled_back(params, wrt, tables, operands, positions, cts)

        return over_stack(once, wrt.stack)(*given)

    return jvp_of_replay("backward", run, call, tables, positions, tangents)


_compat.register_jvp(rec_backward_p, _backward_jvp)


def _backward_transpose(cts: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    types, given = cotangent_types(avals_of(operands), params, wrt), sum(differentiable(params))
    known, params, _ = apart_by_lane(operands[:-given], params, wrt)
    wrt = dataclasses.replace(Wrt.of(wrt.positions), stack=wrt.stack)
    found = transposed(rec_linear_p, known, filled(cts, types), params, wrt)
    return wanted_of(operands, found)


_compat.register_transpose(rec_backward_p, _backward_transpose)


def _backward_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    return batched_cotangents(rec_backward_p, operands, dims, params, wrt)


register_batching(rec_backward_p, _backward_batch)
