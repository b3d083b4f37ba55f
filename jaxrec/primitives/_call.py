"""The equations that a recursive call, a choice between calls and a call path become in a body.

They exist only in the jaxprs that tracing hands to the graph stage: they are never evaluated, and
no transformation of an invocation reaches them, since those act on the whole invocation. What does
reach them is a transformation inside a body. Under `jax.vmap` each lane makes its own call, and
each lane makes its own choice: a choice between calls never becomes a selection among the results
of all of them, which would make calls that no lane asked for. So it is with the `cond` and the
`while_loop` of JAX where they make calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun, jaxprs_in_params

from jaxrec import _compat
from jaxrec._errors import UnsupportedError

MAX_UNROLLED = 8
"""The most lanes of a `jax.vmap` that become a call site each; more are a loop over lanes."""

rec_call_p = Primitive("rec_call")
rec_call_p.multiple_results = True

rec_switch_p = Primitive("rec_switch")
rec_switch_p.multiple_results = True

call_path_p = Primitive("call_path")
call_path_p.multiple_results = True


def rec_call(callee: Any, operands: Sequence[Any], result: Sequence[ShapedArray]) -> list[Any]:
    """Stages a call of `callee` (an `Instance`) whose results have the types `result`."""
    return rec_call_p.bind(*operands, callee=callee, result=tuple(result))


def rec_switch(index: Any, branches: Sequence[ClosedJaxpr]) -> list[Any]:
    """Stages a choice between jaxprs without arguments, whose constants become its operands.

    Args:
        index: an `int32` scalar within the range of `branches`.
        branches: what each choice computes; all have results of the same types.
    """
    operands = [const for branch in branches for const in branch.consts]
    return rec_switch_p.bind(index, *operands, branches=tuple(b.jaxpr for b in branches))


def closed_branches(branches: Sequence[Jaxpr], operands: Sequence[Any]) -> list[ClosedJaxpr]:
    """The branches of a `rec_switch` with their share of its operands."""
    rest = list(operands)
    closed = []
    for branch in branches:
        count = len(branch.constvars)
        closed.append(ClosedJaxpr(branch, rest[:count]))
        rest = rest[count:]
    return closed


def calls_in(eqn: JaxprEqn) -> Iterator[Any]:
    """The callees of the recursive calls that an equation makes, those of inner jaxprs included."""
    if eqn.primitive is rec_call_p:
        yield eqn.params["callee"]
    for jaxpr in jaxprs_in_params(eqn.params):
        for inner in jaxpr.eqns:
            yield from calls_in(inner)


def makes_calls(eqn: JaxprEqn) -> bool:
    """Whether an equation makes a recursive call or asks for its path, also in an inner jaxpr."""
    return eqn.primitive in (rec_call_p, call_path_p) or _calls_inside(eqn.params)


def _calls_inside(params: dict[str, Any]) -> bool:
    return any(makes_calls(inner) for jaxpr in jaxprs_in_params(params) for inner in jaxpr.eqns)


def call_path() -> list[Any]:
    """Stages the path of the call whose body is running, as two words."""
    return call_path_p.bind(within=())


@rec_call_p.def_abstract_eval
def _call_avals(*_: Any, callee: Any, result: tuple[ShapedArray, ...]) -> list[ShapedArray]:
    del callee
    return list(result)


@rec_switch_p.def_abstract_eval
def _switch_avals(*_: Any, branches: tuple[Jaxpr, ...]) -> list[ShapedArray]:
    avals = [[v.aval for v in branch.outvars] for branch in branches]
    return [
        ShapedArray(a.shape, a.dtype, weak_type=all(b.weak_type for b in (a, *others)))
        for a, *others in zip(*avals, strict=True)
    ]


@call_path_p.def_abstract_eval
def _path_avals(within: tuple[int, ...]) -> list[ShapedArray]:
    del within
    return [ShapedArray((), np.dtype(np.uint32))] * 2


def _each_lane(
    fun: Callable[..., list[Any]], operands: Sequence[Any], dims: Sequence[int | None]
) -> list[Any]:
    """Runs `fun` for each lane of the operands and stacks its results along a first axis."""
    lanes = [jnp.moveaxis(x, d, 0) for x, d in zip(operands, dims, strict=True) if d is not None]

    def run(one: Sequence[Any]) -> list[Any]:
        rest = iter(one)
        return fun(*(x if d is None else next(rest) for x, d in zip(operands, dims, strict=True)))

    size = lanes[0].shape[0]
    if size > MAX_UNROLLED or size == 0:
        return jax.lax.map(run, lanes)
    outs = [run([x[k] for x in lanes]) for k in range(size)]
    return [jnp.stack(parts) for parts in zip(*outs, strict=True)]


def _batch_call(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    outs = _each_lane(lambda *one: rec_call_p.bind(*one, **params), operands, dims)
    return outs, [0] * len(outs)


def _batch_switch(
    operands: Sequence[Any], dims: Sequence[int | None], branches: tuple[Jaxpr, ...]
) -> Any:
    if dims[0] is not _compat.not_mapped:
        outs = _each_lane(lambda *one: rec_switch_p.bind(*one, branches=branches), operands, dims)
        return outs, [0] * len(outs)
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    rest = list(zip(operands[1:], dims[1:], strict=True))
    batched = []
    for branch in branches:
        mine, rest = rest[: len(branch.constvars)], rest[len(branch.constvars) :]
        batched.append(jax.make_jaxpr(_all_lanes(branch, mine, size))())
    outs = rec_switch(operands[0], batched)
    return outs, [0] * len(outs)


def _all_lanes(
    branch: Jaxpr, operands: Sequence[tuple[Any, int | None]], size: int
) -> Callable[[], list[Any]]:
    """A branch for all lanes, which agree on the choice; its results have a first axis of lanes."""

    def run() -> list[Any]:
        def one(values: Sequence[Any]) -> list[Any]:
            return jaxpr_as_fun(ClosedJaxpr(branch, list(values)))()

        values, dims = [x for x, _ in operands], [d for _, d in operands]
        if all(d is None for d in dims):
            return [jnp.broadcast_to(x, (size, *x.shape)) for x in map(jnp.asarray, one(values))]
        return jax.vmap(one, (dims,))(values)

    return run


def _batch_cond(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    """`jax.lax.cond` in lanes that choose apart: JAX would run all branches for each of them."""
    if dims[0] is _compat.not_mapped or not _calls_inside(params):
        return None
    outs = _each_lane(lambda *one: jax.lax.cond_p.bind(*one, **params), operands, dims)
    return outs, [0] * len(outs)


def _batch_while(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    """`jax.lax.while_loop` in lanes that end apart: JAX would go on with all of them."""
    if not _calls_inside(params) or not _end_apart(dims, **params):
        return None
    outs = _each_lane(lambda *one: jax.lax.while_p.bind(*one, **params), operands, dims)
    return outs, [0] * len(outs)


def _end_apart(
    dims: Sequence[int | None],
    cond_jaxpr: ClosedJaxpr,
    body_jaxpr: ClosedJaxpr,
    cond_nconsts: int,
    body_nconsts: int,
) -> bool:
    """Whether the predicate of a loop may differ between lanes."""
    mapped = [d is not _compat.not_mapped for d in dims]
    of_cond, mapped = mapped[:cond_nconsts], mapped[cond_nconsts:]
    of_body, state = mapped[:body_nconsts], mapped[body_nconsts:]
    while True:
        after = _follows(body_jaxpr.jaxpr, [*of_body, *state])
        grown = [a or b for a, b in zip(state, after, strict=True)]
        if grown == state:
            return _follows(cond_jaxpr.jaxpr, [*of_cond, *state])[0]
        state = grown


def _follows(jaxpr: Jaxpr, mapped: Sequence[bool]) -> list[bool]:
    """Which results follow from the inputs marked so."""
    marked = {v for v, is_mapped in zip(jaxpr.invars, mapped, strict=True) if is_mapped}
    for eqn in jaxpr.eqns:
        if any(not _compat.is_literal(v) and v in marked for v in eqn.invars):
            marked.update(eqn.outvars)
    return [not _compat.is_literal(v) and v in marked for v in jaxpr.outvars]


def _unsupported(what: str) -> Any:
    def rule(*_: Any, **params: Any) -> Any:
        callee = params.get("callee") or next(
            call for branch in params["branches"] for eqn in branch.eqns for call in calls_in(eqn)
        )
        raise UnsupportedError(
            f"{what} is applied to a recursive call of {callee.name} inside a recursive body. "
            f"Apply the transformation to the whole function, outside: {what}({callee.name})."
        )

    return rule


_compat.register_jvp(rec_call_p, _unsupported("jax.grad"))
_compat.register_jvp(rec_switch_p, _unsupported("jax.grad"))
_compat.register_batching(rec_call_p, _batch_call)
_compat.register_batching(rec_switch_p, _batch_switch)
_compat.batch_apart(jax.lax.cond_p, _batch_cond)
_compat.batch_apart(jax.lax.while_p, _batch_while)
rec_call_p.def_impl(_unsupported("immediate evaluation"))
rec_switch_p.def_impl(_unsupported("immediate evaluation"))
