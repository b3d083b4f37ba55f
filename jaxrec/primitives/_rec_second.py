"""The primitive `rec_second`: how cotangents of the operands change with the operands.

With a result f(x), a cotangent c and a tangent v it is the derivative by x of c . f'(x) v: the
backward pass of the program that computes tangents (`jaxrec/split/_dual.py`). Since second
derivatives are symmetric, that is both the tangent of `rec_backward` and, with what it is taken by
and what it is asked for exchanged, its own transpose.

Of the residuals it has the state and the schedule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._values import replaced
from jaxrec.invocation._differentiated import Wrt, backward_cells
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
    rec_second_p,
    register_batching,
    run_compiled,
)
from jaxrec.primitives._rec_schedule import schedule_of
from jaxrec.primitives._residuals import LinearCall, jvp_of_replay, was_run
from jaxrec.primitives._second_order import dual_invocation, moved_operands
from jaxrec.primitives._stacking import with_residuals, zeros_of
from jaxrec.primitives._transposed import (
    apart_by_lane,
    avals_of,
    filled,
    transposed,
    wanted_of,
)
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._tables import Tables, table_types
from jaxrec.transpose._second import run_second


def second(
    primals: Sequence[Any], tangents: Sequence[Any], params: Params, wrt: Wrt
) -> list[Any] | None:
    """The derivative of `rec_backward` by the operands of the invocation; None by none of them.

    Args:
        primals: of `rec_backward`.
        tangents: of those.
        params: its parameters.
        wrt: likewise.
    """
    moved = moved_operands(params, primals[: params.num_operands], tangents[: params.num_operands])
    if not moved:
        return None
    call = LinearCall(primals, params, wrt, sum(differentiable(params)))
    stack = _compat.aval_of(call.given[0]).shape[: wrt.stack]
    dots = [jnp.broadcast_to(t, (*stack, *t.shape)) for t in moved.values()]
    schedule = call.residuals[: 1 + _num_tables(params)]
    wrt = dataclasses.replace(wrt, by=tuple(moved))
    return rec_second_p.bind(*call.primals, *schedule, *call.given, *dots, params=params, wrt=wrt)


def _num_tables(params: Params) -> int:
    return len(jax.tree.leaves(table_types(params.program, _layout(params))))


def _layout(params: Params) -> Layout:
    return params.layout(readers=True)


def _num_given(params: Params, wrt: Wrt) -> int:
    """How many cotangents and tangents it takes."""
    return sum(differentiable(params)) + len(wrt.by)


def _run_second(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    check_compilable(params)
    call = LinearCall(operands, params, wrt, _num_given(params, wrt))
    layout, cotangents = _layout(params), sum(differentiable(params))
    tree = jax.tree.structure(table_types(params.program, layout))
    tables = jax.tree.unflatten(tree, call.residuals[1:])

    def once(*given: Any) -> list[Any]:
        dual, full = dual_invocation(params, wrt.by, call.primals, given[cotangents:])
        own = tuple(k for k in wrt.positions if k < params.num_outers)
        types = list(map(_compat.aval_of, full))
        backward = backward_cells(dual, layout, Wrt.of(own), types)
        at = with_schedule(dual, layout, tables, full)
        want = wanted(params, wrt)
        outer_cts, root_cts = run_second(at, backward, given[:cotangents], want, wrt.without)
        return [*outer_cts, *root_cts]

    return over_stack(once, wrt.stack)(*call.given)


@rec_second_p.def_impl
def _second_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    if not was_run(operands[params.num_operands]) or 0 in operands[-1].shape[: wrt.stack]:
        return list(map(zeros_of, cotangent_types(operands, params, wrt)))
    given, last = _num_given(params, wrt), params.num_operands + 1 + _num_tables(params)
    known = with_residuals(operands, params, Wrt.of(wrt.positions), given)
    return run_compiled("rec_second", _run_second, params, [*known[:last], *known[-given:]], wrt)


@rec_second_p.def_abstract_eval
def _second_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    return cotangent_types(avals, params, wrt)


_compat.register_lowering(rec_second_p, _run_second)


def _second_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    call = LinearCall(primals, params, wrt, _num_given(params, wrt))
    positions = (*wrt.positions, *(k for k in wrt.by if k not in wrt.positions))
    tables = schedule_of(params, call.primals, call.state)
    cotangents = sum(differentiable(params))

    def run(params: Params, tables: Tables, operands: list[Any], given: list[Any]) -> list[Any]:
        def once(*given: Any) -> list[Any]:
            def pull(*moved: Any) -> list[Any]:
                full = replaced(operands, wrt.by, moved)
                cts = given[:cotangents]
                return pulled_back(params, wrt, tables, full, wrt.positions, cts)

            moved = [operands[k] for k in wrt.by]
            return jax.jvp(pull, moved, list(given[cotangents:]))[1]

        return over_stack(once, wrt.stack)(*given)

    return jvp_of_replay("second", run, call, tables, positions, tangents)


_compat.register_jvp(rec_second_p, _second_jvp)


def _second_transpose(cts: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    types, given = cotangent_types(avals_of(operands), params, wrt), len(wrt.by)
    cotangents = sum(differentiable(params))
    first = len(operands) - given - cotangents
    known, params, apart = apart_by_lane(operands[:first], params, wrt)
    exchanged = dataclasses.replace(wrt, positions=wrt.by, lanes=(None,) * given, by=wrt.positions)
    values = [*operands[first:-given], *filled(cts, types)]
    found = transposed(rec_second_p, known, values, params, exchanged)
    of_shared = [
        jnp.sum(x, wrt.stack) if k in apart else x for k, x in zip(wrt.by, found, strict=True)
    ]
    return wanted_of(operands, of_shared)


_compat.register_transpose(rec_second_p, _second_transpose)


def _second_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    return batched_cotangents(rec_second_p, operands, dims, params, wrt, 1 + _num_tables(params))


register_batching(rec_second_p, _second_batch)
