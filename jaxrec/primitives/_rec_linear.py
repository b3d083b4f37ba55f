"""The primitive `rec_linear`: tangents of the results, linear in the tangents of operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._order import hidden_zero
from jaxrec._types import has_derivative
from jaxrec._values import replaced
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params, with_schedule
from jaxrec.invocation._results import differentiable, outcome_types
from jaxrec.lowering._forward import Scheduled, WaveCell, plain_cell, results, run_forward
from jaxrec.primitives._batching import axis_size
from jaxrec.primitives._cotangents import lay_out_tangent, stacked
from jaxrec.primitives._primitives import (
    check_compilable,
    over_stack,
    rec_backward_p,
    rec_linear_p,
    register_batching,
    run_compiled,
)
from jaxrec.primitives._rec_remade import batch_taken, remade
from jaxrec.primitives._rec_schedule import schedule_of
from jaxrec.primitives._residuals import LinearCall, jvp_of_replay, moving, replayed, was_run
from jaxrec.primitives._second_order import (
    by_given,
    dual_invocation,
    has_dual,
    moved_operands,
    sum_of_tangents,
)
from jaxrec.primitives._stacking import (
    call_on_graph,
    collect_lanes,
    stack_given,
    tangents_on_graph,
    with_residuals,
    zeros_of,
)
from jaxrec.primitives._transposed import avals_of, filled, transposed, wanted_of
from jaxrec.schedule._tables import Tables
from jaxrec.split._program import CellSpec
from jaxrec.split._resting import moved_in_part
from jaxrec.transpose._outer import zero_of


def _run_linear(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    check_compilable(params)
    call = LinearCall(operands, params, wrt, len(wrt.positions))

    backward, tables = call.backward(), call.tables()

    def cell_at(at: Scheduled, spec: CellSpec, width: int) -> WaveCell:
        keeps_zeros = spec.cell.index in moved_in_part(at.program, wrt.positions)
        cell = plain_cell(at, spec, width, keeps_zeros)
        # A rule of a derivative may have operations that the function does not have.
        moves = backward.keeps_residuals(spec)
        return cell._replace(waits=cell.waits or (moves and backward.at(spec, width).waits))

    asked = params.asked_by(wrt.positions)

    def run(*changed: Any) -> list[Any]:
        operands = replaced(call.primals, wrt.positions, changed)
        at = with_schedule(asked, backward.layout, tables, operands)
        return [x for x in results(at, run_forward(at, cell_at)[0]) if has_derivative(x)]

    def once(*given: Any) -> list[Any]:
        tangents = jax.jvp(run, call.changed, list(given))[1]
        return [x + zero_of(tables, x.dtype) for x in tangents]

    return over_stack(once, wrt.stack)(*call.given)


@rec_linear_p.def_impl
def _linear_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    if not was_run(operands[params.num_operands]):
        return list(map(zeros_of, _linear_types(*operands, params=params, wrt=wrt)))
    if params.executor == "host":
        known, on = call_on_graph(operands, params, wrt, len(wrt.positions))
        assert params.host is not None
        made = run_compiled("rec_linear", _run_linear, on, known, wrt)
        # What is divided over a mesh stays: the mesh around is made of its devices.
        return [params.host.at_home(x) if len(x.devices()) == 1 else x for x in made]
    known = with_residuals(operands, params, wrt, len(wrt.positions))
    return run_compiled("rec_linear", _run_linear, params, known, wrt)


@rec_linear_p.def_abstract_eval
def _linear_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    pairs = zip(outcome_types(params), differentiable(params), strict=True)
    return [_compat.with_vma(stacked(a, avals, wrt), vma) for a, c in pairs if c]


_compat.register_lowering(rec_linear_p, _run_linear)


def _linear_transpose(cts: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    types, given = _linear_types(*avals_of(operands), params=params, wrt=wrt), len(wrt.positions)
    without = tuple(k for k, ct in enumerate(cts) if type(ct) is _compat.Zero)
    wrt = dataclasses.replace(wrt, without=without)
    found = transposed(rec_backward_p, operands[:-given], filled(cts, types), params, wrt)
    return wanted_of(operands, found)


_compat.register_transpose(rec_linear_p, _linear_transpose)


def _linear_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    given = len(wrt.positions)
    if params.executor == "host":
        primals, tangents, params = tangents_on_graph(primals, tangents, params, wrt, given)
    if not has_dual(params) or params.program.is_stepped:
        return _jvp_of_replay(primals, tangents, params, wrt)
    outs = rec_linear_p.bind(*primals, params=params, wrt=wrt)
    linear = by_given(rec_linear_p, primals, tangents, params, wrt, given)
    other = _by_operands(primals, tangents, params, wrt)
    return outs, sum_of_tangents(outs, linear, other)


def _by_operands(
    primals: Sequence[Any], tangents: Sequence[Any], params: Params, wrt: Wrt
) -> list[Any] | None:
    """The derivative by the operands of the invocation: a tangent of the program with tangents."""
    call = LinearCall(primals, params, wrt, len(wrt.positions))
    moved = moved_operands(params, call.primals, tangents[: params.num_operands])
    if not moved:
        return None

    def once(*given: Any) -> list[Any]:
        dual, full = dual_invocation(params, wrt.positions, call.primals, given)
        first, more = params.num_outers, dual.num_outers - params.num_outers
        positions = tuple(k if k < first else k + more for k in moved)
        wide = Wrt.of(positions)
        residuals, sized = remade(call.state, full, dual, wide)
        dots = [
            t if k < first else jnp.stack([t, jnp.zeros_like(t)], axis=1) for k, t in moved.items()
        ]
        made = rec_linear_p.bind(*full, *residuals, *dots, params=sized, wrt=wide)
        return [both[:, 1] for both in made]

    return over_stack(once, wrt.stack)(*call.given)


def _jvp_of_replay(
    primals: Sequence[Any], tangents: Sequence[Any], params: Params, wrt: Wrt
) -> Any:
    """The rule where there is no program with tangents, or it would have to run to be scheduled."""
    call = LinearCall(primals, params, wrt, len(wrt.positions))
    positions = moving(params, wrt.positions, list(map(_compat.aval_of, call.primals)))
    tables = schedule_of(params, call.primals, call.state)

    def run(params: Params, tables: Tables, operands: list[Any], given: list[Any]) -> list[Any]:
        at = replayed(params, tables, operands, positions)

        def once(*given: Any) -> list[Any]:
            rest = [hidden_zero(operands[k], given[0]) for k in positions[len(given) :]]
            return jax.jvp(at, [operands[k] for k in positions], [*given, *rest])[1]

        return over_stack(once, wrt.stack)(*given)

    return jvp_of_replay("linear", run, call, tables, positions, tangents)


_compat.register_jvp(rec_linear_p, _linear_jvp)


def _linear_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    given = len(wrt.positions)
    if all(d is _compat.not_mapped for d in dims[: len(dims) - given]):
        return stack_given(rec_linear_p, operands, dims, given, params, wrt)
    moving = list(zip(wrt.positions, operands[-given:], dims[-given:], strict=True))
    apart = [k for k, _, d in moving if d is not _compat.not_mapped]
    size = axis_size(operands, dims)
    batch, state = batch_taken(params, operands[:-given], dims[:-given], size, apart)
    tangents = [lay_out_tangent(batch, k, x, d, wrt.stack) for k, x, d in moving]
    residuals, sized = remade(state, batch.operands, batch.params, wrt)
    outs = rec_linear_p.bind(*batch.operands, *residuals, *tangents, params=sized, wrt=wrt)
    reports = collect_lanes(batch, state, wrt, residuals)

    def split(*outs: Any) -> list[Any]:
        return batch.split_linear(outs, reports)[0]

    return over_stack(split, wrt.stack)(*outs), [wrt.stack] * len(outs)


register_batching(rec_linear_p, _linear_batch)
