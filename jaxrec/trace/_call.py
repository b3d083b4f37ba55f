"""The equations that a recursive call, a choice between calls and a call path become in a body.

They exist only in the jaxprs that tracing hands to the graph stage: they are never evaluated, and
no transformation of an invocation reaches them, since those act on the whole invocation. What does
reach them is a transformation inside a body. Under `jax.vmap` each lane makes its own call, and
each lane makes its own choice: a choice between calls never becomes a selection among the results
of all of them, which would make calls that no lane asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun, jaxprs_in_params

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec._jaxprs import within

T = TypeVar("T")

MAX_UNROLLED = 8
"""The most lanes of a `jax.vmap` that become a call site each; more are a loop over lanes."""

rec_call_p = Primitive("rec_call")
rec_call_p.multiple_results = True

rec_switch_p = Primitive("rec_switch")
rec_switch_p.multiple_results = True

call_path_p = Primitive("call_path")
call_path_p.multiple_results = True

# Many calls may get one key, from which each makes its own.
_compat.leaves_keys(rec_call_p, rec_switch_p)


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
    opened = tuple(map(_compat.opened, branches))  # which hold no tracer
    return rec_switch_p.bind(index, *operands, branches=opened)


def branches_of(eqn: JaxprEqn, operands: Sequence[T]) -> list[tuple[ClosedJaxpr, Sequence[T]]]:
    """The branches of a choice, each with its arguments; none if the equation is no choice.

    Args:
        eqn: the equation.
        operands: what stands for its operands, the index included.
    """
    branches, rest = eqn.params.get("branches", ()), operands[1:]
    if eqn.primitive.name == "cond":
        return [(branch, rest) for branch in branches]
    return _with_shares(branches, rest) if eqn.primitive is rec_switch_p else []


def _with_shares(
    branches: Sequence[ClosedJaxpr], operands: Sequence[T]
) -> list[tuple[ClosedJaxpr, Sequence[T]]]:
    """The branches of a `rec_switch`, each with those of its operands that are for it."""
    rest = iter(operands)
    return [(branch, [next(rest) for _ in branch.in_avals]) for branch in branches]


def calls_made(eqn: JaxprEqn) -> Iterator[tuple[Any, tuple[int, tuple[ShapedArray, ...]]]]:
    """The callees of the recursive calls that an equation makes, those of inner jaxprs included.

    Each with the number of operands that it gets and the types of its results.
    """
    for x in within(eqn):
        if x.primitive is rec_call_p:
            yield x.params["callee"], (len(x.invars), x.params["result"])


def calls_in(eqn: JaxprEqn) -> Iterator[Any]:
    """The callees alone."""
    return (callee for callee, _ in calls_made(eqn))


def makes_calls(eqn: JaxprEqn) -> bool:
    """Whether an equation makes a recursive call or asks for its path, also in an inner jaxpr."""
    return any(inner.primitive in (rec_call_p, call_path_p) for inner in within(eqn))


def calls_inside(params: Mapping[str, Any]) -> bool:
    """Whether the inner jaxprs of an equation with these parameters make recursive calls."""
    return any(makes_calls(eqn) for jaxpr in jaxprs_in_params(params) for eqn in jaxpr.eqns)


def call_path() -> list[Any]:
    """Stages the path of the call whose body is running, as two words."""
    return call_path_p.bind(within=())


@rec_call_p.def_abstract_eval
def _call_avals(*_: Any, callee: Any, result: tuple[ShapedArray, ...]) -> list[ShapedArray]:
    del callee
    return list(result)


@rec_switch_p.def_abstract_eval
def _switch_avals(*_: Any, branches: tuple[ClosedJaxpr, ...]) -> list[ShapedArray]:
    avals = [branch.out_avals for branch in branches]
    return [
        ShapedArray(a.shape, a.dtype, weak_type=all(b.weak_type for b in (a, *others)))
        for a, *others in zip(*avals, strict=True)
    ]


@call_path_p.def_abstract_eval
def _path_avals(within: tuple[int, ...]) -> list[ShapedArray]:
    del within
    return [ShapedArray((), np.dtype(np.uint32))] * 2


def each_lane(
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
    outs = each_lane(lambda *one: rec_call_p.bind(*one, **params), operands, dims)
    return outs, [0] * len(outs)


def _batch_switch(
    operands: Sequence[Any], dims: Sequence[int | None], branches: tuple[ClosedJaxpr, ...]
) -> Any:
    if dims[0] is not _compat.not_mapped:
        outs = each_lane(lambda *one: rec_switch_p.bind(*one, branches=branches), operands, dims)
        return outs, [0] * len(outs)
    size = next(x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not None)
    mapped = _with_shares(branches, list(zip(operands[1:], dims[1:], strict=True)))
    batched = [jax.make_jaxpr(_all_lanes(branch, mine, size))() for branch, mine in mapped]
    outs = rec_switch(operands[0], batched)
    return outs, [0] * len(outs)


def _all_lanes(
    branch: ClosedJaxpr, operands: Sequence[tuple[Any, int | None]], size: int
) -> Callable[[], list[Any]]:
    """A branch for all lanes, which agree on the choice; its results have a first axis of lanes."""

    def run() -> list[Any]:
        def one(values: Sequence[Any]) -> list[Any]:
            return jaxpr_as_fun(branch)(*values)

        values, dims = [x for x, _ in operands], [d for _, d in operands]
        if all(d is None for d in dims):
            return [jnp.broadcast_to(x, (size, *x.shape)) for x in map(jnp.asarray, one(values))]
        return jax.vmap(one, (dims,))(values)

    return run


def _callee(params: Mapping[str, Any]) -> Any:
    return params.get("callee") or next(
        call for branch in params["branches"] for eqn in branch.eqns for call in calls_in(eqn)
    )


def no_derivative(name: str) -> str:
    """What is wrong with a derivative of a function inside its own recursion."""
    return (
        f"a derivative (jax.grad, jvp, vjp, linearize or the like) is taken of a recursive call of "
        f"{name} inside the recursion that {name} is a part of. Take it of the whole function, "
        f"outside: jax.grad({name})."
    )


def _no_derivative(*_: Any, **params: Any) -> Any:
    raise UnsupportedError(no_derivative(_callee(params).name))


def _no_evaluation(*_: Any, **params: Any) -> Any:
    name = _callee(params).name
    raise UnsupportedError(
        f"a recursive call of {name} inside a recursive body is to be evaluated while the body is "
        "traced, by a program of its own (under jax.ensure_compile_time_eval). Call it without "
        "jax.jit and loops of JAX there, or before, outside of the body."
    )


_compat.register_jvp(rec_call_p, _no_derivative)
_compat.register_jvp(rec_switch_p, _no_derivative)
_compat.register_batching(rec_call_p, _batch_call)
_compat.register_batching(rec_switch_p, _batch_switch)
for _primitive in (rec_call_p, rec_switch_p):
    _primitive.def_impl(_no_evaluation)
    _compat.register_lowering_rule(_primitive, _no_evaluation)
