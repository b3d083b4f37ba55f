"""The primitive `rec`: outer values and arguments of the roots to results."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._equation import varying_together
from jaxrec._errors import JaxRecError, UnsupportedError
from jaxrec._order import hidden_zero, zero_tangent
from jaxrec._values import replaced
from jaxrec.executors._reference_lanes import run_reference
from jaxrec.executors.host._run import run_host
from jaxrec.invocation._bounds import has_no_bound, is_countable, is_plannable
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params, run_invocation, with_schedule
from jaxrec.invocation._results import differentiable, outcome, outcome_types
from jaxrec.lowering._forward import results
from jaxrec.lowering._replay import replay
from jaxrec.primitives._alike import batched
from jaxrec.primitives._capacity import batch_of, decide_capacity, grow
from jaxrec.primitives._native import (
    is_native,
    on_device,
    prepared,
    run_native,
    run_native_now,
)
from jaxrec.primitives._native_jvp import MOST_DIRECTIONS, native_jvp
from jaxrec.primitives._primitives import (
    check_compilable,
    compiled,
    rec_example_p,
    rec_linear_p,
    rec_p,
    register_batching,
    run_compiled,
    warn_of_copies,
)
from jaxrec.primitives._rec_schedule import schedule_of
from jaxrec.primitives._residuals import moving
from jaxrec.primitives._room import forward_pass, with_room
from jaxrec.primitives._second_order import moved_operands
from jaxrec.primitives._spread import Spread, is_spread, most_directions


def rec(operands: Sequence[Any], params: Params) -> list[Any]:
    """Invokes a recursive function; see `jaxrec/primitives/_primitives.py`."""
    if _compat.evaluates_now() and all(map(_compat.is_concrete, operands)):
        return _rec_impl(*operands, params=params)
    if _has_to_be_bounded(params, operands) and is_countable(params, operands):
        with contextlib.suppress(JaxRecError):  # perhaps it never runs
            params = decide_capacity(params, operands)
    return rec_p.bind(*varying_together(operands), params=params)


def _has_to_be_bounded(params: Params, operands: Sequence[Any]) -> bool:
    """Whether the invocation becomes a part of a program, in which nothing is known any more."""
    if is_native(params) or is_spread(params, operands):
        return False
    return _compat.is_staged() and params.executor != "host"


@rec_p.def_impl
def _rec_impl(*operands: Any, params: Params) -> list[Any]:
    if params.executor == "reference":
        return run_reference(params, operands)
    if is_native(params):
        return _run_native(params, operands)
    if is_spread(params, operands):
        lanes = Spread(params, operands)
        return lanes.together(rec(lanes.operands, lanes.params))
    if params.executor == "host":
        return _compat.as_if_alone(lambda *own: run_host(params, own), operands)
    if params.program.is_stepped and not params.collect and has_no_bound(params):
        return grow(params, operands, "rec", run_rec)[1]
    return run_compiled("rec", run_rec, with_room(params, operands), operands)


def _run_native(params: Params, operands: Sequence[Any]) -> list[Any]:
    try:
        made = run_native_now(prepared(params), operands)
    except FloatingPointError:
        if params.executor == "host":
            run_host(params, operands)  # tells which call made it
        raise
    if params.host is None:
        home = _committed_to(operands)
    else:
        home = None if params.host.is_default else params.host.devices[0]
    return made if home is None else jax.device_put(made, home)


def _committed_to(operands: Sequence[Any]) -> Any:
    """The device that an operand was put on by name; None if there is none, or several."""
    found = {d for x in operands if isinstance(x, jax.Array) and x.committed for d in x.devices()}
    return found.pop() if len(found) == 1 else None


def run_rec(*operands: Any, params: Params) -> list[Any]:
    """The invocation as a part of a compiled program."""
    check_compilable(params)
    if is_native(params):
        return run_native(prepared(params), operands)
    if is_spread(params, operands):
        lanes = Spread(params, operands)
        return lanes.together(run_native(prepared(lanes.params), lanes.operands))
    params = decide_capacity(params, operands)
    if params.executor == "reference":
        return _run_replay(params, operands)
    at, tapes, _ = run_invocation(params, params.layout(), operands, scheduled=False)
    return outcome(at, results(at, tapes))


def _run_replay(params: Params, operands: Sequence[Any]) -> list[Any]:
    """One call at a time; a schedule that depends on computed values is found by running first."""
    at = with_schedule(params, params.layout(), schedule_of(params, operands), operands)
    return outcome(at, replay(at))


@rec_p.def_abstract_eval
def _rec_types(*avals: Any, params: Params) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    return [_compat.with_vma(a, vma) for a in outcome_types(params)]


_compat.register_lowering(rec_p, run_rec, warn_of_copies)


def rec_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, params: Params) -> Any:
    positions = tuple(moved_operands(params, primals, tangents))
    _check_rules(params, positions)
    if not positions:
        outs = rec_p.bind(*primals, params=params)
        return outs, [zero_tangent(x) for x in outs]
    made = _native_jvp(primals, tangents, positions, params)
    if made is not None:
        return made
    known = all(map(_compat.is_concrete, primals)) and not _compat.is_staged()
    # A schedule that is found by running comes from the compiled program, with waves of one call.
    if params.executor == "reference" and (known or not params.program.is_stepped):
        return _reference_jvp(primals, tangents, positions, params)
    wrt = Wrt.of(positions)
    made, params = forward_pass(params, primals, wrt)
    count = len(outcome_types(params))
    outs, residuals = made[:count], made[count:]
    given = [tangents[k] for k in positions]
    dots = iter(rec_linear_p.bind(*primals, *residuals, *given, params=params, wrt=wrt))
    carries = differentiable(params)
    return outs, [next(dots) if c else zero_tangent(x) for x, c in zip(outs, carries, strict=True)]


def _native_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], positions: tuple[int, ...], params: Params
) -> tuple[list[Any], list[Any]] | None:
    """Results and their tangents; None where the native machine does not run the derivative."""
    most = most_directions(params, primals, MOST_DIRECTIONS)
    if not most:
        return None
    lanes = Spread(params, primals)
    dots = [lanes.operand(k, t) if k in positions else t for k, t in enumerate(tangents)]
    made = native_jvp(lanes.operands, dots, positions, lanes.params, most)
    if made is None:
        return None
    outs, of_lanes = lanes.together(made[0]), made[1]
    moved = [t for t in of_lanes if type(t) is not _compat.Zero]
    found = iter(lanes.together(moved))
    pairs = zip(outs, of_lanes, strict=True)
    return outs, [zero_tangent(x) if type(t) is _compat.Zero else next(found) for x, t in pairs]


def _check_rules(params: Params, positions: Sequence[int]) -> None:
    """Checks that no rule leaves out what the functions that it calls close over."""
    for position, name in params.program.closed_over_in_rules.items():
        if position in positions:
            raise UnsupportedError(
                f"{name} closes over a value that is differentiated, and a custom_vjp or "
                f"custom_jvp calls {name}. Its rule gives derivatives with respect to its "
                f"arguments alone: make that value an argument of {name}, and of the function "
                "with the rule."
            )


def _reference_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], asked: Sequence[int], params: Params
) -> Any:
    """Differentiates the interpreter, or under `jit` the replay with waves of one call."""
    positions = moving(params, asked, list(map(_compat.aval_of, primals)))
    is_known = is_plannable(params, primals) and not _compat.is_staged()

    def run(*changed: Any) -> list[Any]:
        operands = replaced(primals, positions, changed)
        if params.program.is_stepped or is_known:
            return run_reference(params, operands)
        return compiled("rec", run_rec, decide_capacity(params, operands))(*operands)

    given = [
        tangents[k] if k in asked else hidden_zero(primals[k], tangents[asked[0]])
        for k in positions
    ]
    outs, dots = jax.jvp(run, [primals[k] for k in positions], given)
    carries = differentiable(params)
    return outs, [t if c else zero_tangent(x) for x, t, c in zip(outs, dots, carries, strict=True)]


_compat.register_jvp(rec_p, rec_jvp)


def _rec_transpose(cts: Any, *operands: Any, params: Params) -> list[Any]:
    name = params.program.name
    raise UnsupportedError(
        f"jax.linear_transpose of {name}: a recursive function is not known to be linear. If it "
        f"is, its transpose is its derivative at any point: _, transpose = jax.vjp({name}, zeros)."
    )


_compat.register_transpose(rec_p, _rec_transpose)


def _rec_batch(operands: Sequence[Any], dims: Sequence[Any], *, params: Params) -> Any:
    batch = batch_of(params, operands, dims)
    outs = rec(batch.operands, batch.params)
    return batch.split_outcome(outs)


register_batching(rec_p, _rec_batch)


def rec_example(operands: Sequence[Any], params: Params) -> list[Any]:
    """Invokes a recursive function on one example of the `vmap` that maps over an operand.

    As `rec`, but the one lane's arguments and results have no axis of lanes: what the examples
    become when they are lanes is what `vmap` wants, so nothing has to be put in another shape.
    """
    return rec_example_p.bind(*operands, params=params)


def _rec_example_batch(operands: Sequence[Any], dims: Sequence[Any], *, params: Params) -> Any:
    batch = batched(params, operands, dims, bare=True)
    return batch.split_example(on_device(rec(batch.operands, batch.params)))


register_batching(rec_example_p, _rec_example_batch)
