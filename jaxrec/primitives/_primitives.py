"""The invocation of a recursive function as JAX primitives.

    rec           outer values, roots' arguments -> results
    rec_forward   the same, and the residuals: schedule, value tapes, residual tapes
    rec_linear    operands, residuals, tangents -> tangents of the results; linear in the tangents
    rec_backward  operands, residuals, cotangents -> cotangents of the operands
    rec_second    operands, schedule, cotangents, tangents -> tangents of rec_backward's results by
                  those of the operands; linear in the tangents
    rec_example   as rec with one lane, whose axis is left out; `vmap` makes it rec at once
    rec_remade    state, operands -> the residuals once more, where there were some
    rec_schedule  state, operands -> the tables of their schedule, for replays

The derivative rule of `rec` runs `rec_forward` and stages `rec_linear`, whose transpose is
`rec_backward`: so forward mode, reverse mode and rematerialisation all work, and the cotangents of
parameters are summed inside one schedule however many roots there are.

The residuals are a cache: mathematically `rec_linear` and `rec_backward` are functions of the
operands, which they also take. That is what makes the other rules simple. Batching recomputes the
residuals with more lanes, since a tape has no axis for `vmap` to see, so what it makes of the
residuals of an example is blank; and derivatives of these primitives are those of another program
(`_second_order.py`), or go through `replay`, which JAX differentiates, on a schedule that is a
constant.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec._checks import checks
from jaxrec._errors import RUN_TIME_ERRORS, UnsupportedError, from_runtime
from jaxrec.executors.host._tasks import Kernel
from jaxrec.invocation._bounds import derived_bound
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.lowering._cell import ROWS
from jaxrec.lowering._example_cell import EXAMPLES
from jaxrec.primitives._native import is_native
from jaxrec.split._program import Program

rec_p = Primitive("rec")
rec_forward_p = Primitive("rec_forward")
rec_linear_p = Primitive("rec_linear")
rec_backward_p = Primitive("rec_backward")
rec_second_p = Primitive("rec_second")
rec_example_p = Primitive("rec_example")
rec_remade_p = Primitive("rec_remade")
rec_schedule_p = Primitive("rec_schedule")
for _primitive in (
    rec_p,
    rec_forward_p,
    rec_linear_p,
    rec_backward_p,
    rec_second_p,
    rec_example_p,
    rec_remade_p,
    rec_schedule_p,
):
    _primitive.multiple_results = True
    _compat.leaves_keys(_primitive)
_compat.keep_weakly(Params)  # which lead to the program


DIRECTIONS = "directions of a derivative"
"""The name of the axis of tangents or cotangents, where there are several on one schedule."""


def warn_of_copies(devices: int, *, params: Params, **_: Any) -> None:
    """Warns where several devices compute the same, since XLA does not divide what a loop runs.

    Where control is computed from arrays that is an error, see `jaxrec.schedule._step`.
    """
    if devices > 1 and params.lanes > 1 and not params.program.is_stepped:
        warnings.warn(
            f"{params.program.name} runs as a whole on each of {devices} devices: jax.jit gathers "
            "the arrays that are divided among them. To divide the work, call it in jax.shard_map "
            f"with an axis of the mesh over its {params.lanes} examples.",
            stacklevel=2,
        )


def register_batching(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Sets the `vmap` rule of a primitive of this file.

    Where the calls of a wave, their examples, or directions that a cell is differentiated in,
    invoke a function, it is one for each.
    """

    def batched(
        name: Any, size: int, operands: Sequence[Any], dims: Sequence[Any], **how: Any
    ) -> Any:
        if all(dim is _compat.not_mapped for dim in dims):
            outs = primitive.bind(*operands, **how)
            return outs, [_compat.not_mapped] * len(outs)
        if name in (ROWS, EXAMPLES, DIRECTIONS):
            how["params"] = _one_each(primitive, how["params"], name, size, dims)
        return rule(list(map(_compat.typed, operands)), dims, **how)

    _compat.register_batching_by_axis(primitive, batched)


def _one_each(
    primitive: Primitive, params: Params, name: Any, size: int, dims: Sequence[Any]
) -> Params:
    """An invocation for each of some calls: what bounds one of them does so for each."""
    own = dims[1:] if primitive in (rec_remade_p, rec_schedule_p) else dims  # behind the state
    is_apart = any(own[k] is not _compat.not_mapped for k in params.controlling)
    if name == DIRECTIONS and not (is_apart or params.program.is_stepped):
        return params  # one schedule, whose calls count once
    needs_none = primitive in (rec_p, rec_example_p) and is_native(params)
    if is_apart and params.declared is None and not needs_none:
        params = dataclasses.replace(params, declared=derived_bound(params))
    return params.of_rows(size)


def compiled(kind: str, fun: Any, params: Params, wrt: Wrt | None = None) -> Any:
    """The jitted program of a primitive, made once for its parameters."""

    def make() -> Any:
        how = {"params": params} if wrt is None else {"params": params, "wrt": wrt}
        name = f"{kind}_{params.program.name}"

        def run(*operands: Any) -> list[Any]:
            return fun(*operands, **how)

        run.__name__ = run.__qualname__ = name
        return jax.jit(run)

    # Where JAX looks through results for NaN, tapes have rows of zeros; it would not compile again.
    return params.program.cache.once((kind, params, wrt, checks()), make)


def run_compiled(
    kind: str, fun: Any, params: Params, operands: Sequence[Any], wrt: Wrt | None = None
) -> list[Any]:
    """Runs the jitted program of a primitive on known operands.

    What is wrong with the arguments of a stepped invocation is found while it runs, so it is waited
    for. A jitted function that has run before raises it as a `ValueError` (`RUN_TIME_ERRORS`).

    Raises:
        JaxRecError: as the scheduler of a stepped invocation reports it, in its own class.
        FloatingPointError: a result is what `jax_debug_nans` or `jax_debug_infs` looks for.
    """
    run = compiled(kind, fun, params, wrt)
    try:
        made = _compat.as_if_alone(run, operands)
        return jax.block_until_ready(made) if params.program.is_stepped else made
    except FloatingPointError as error:
        raise FloatingPointError(
            f'in {params.program.name}: {error}. On jr.executor("host") the error tells which '
            "call made it."
        ) from None
    except RUN_TIME_ERRORS as error:
        own = from_runtime(error)
        if own is None:
            error.add_note(_where(params, error))
            raise
        raise own from None


def _where(params: Params, error: Exception) -> str:
    """What a failure of a compiled program that is not one of the scheduler comes from."""
    name, calls = params.program.name, params.max_calls
    if "RESOURCE_EXHAUSTED" in str(error):
        return (
            f"This is from {name}, with room for {calls} calls. There was not enough memory: call "
            "it on fewer roots at a time, declare fewer max_calls=, or take the gradient under "
            "jax.checkpoint."
        )
    return f'This is from {name}. On jaxrec.executor("host") the error tells which call made it.'


def compiled_programs(program: Program) -> int:
    """XLA programs compiled so far for eager calls of a program, and of those made from it."""
    made = list(program.cache.values())
    jitted = sum(map(_compat.compiled_count, made))
    kernels = sum(isinstance(fun, Kernel) for fun in made)
    return jitted + kernels + sum(compiled_programs(p) for p in made if isinstance(p, Program))


def check_compilable(params: Params) -> None:
    """Checks that an invocation can be a part of a compiled program.

    Raises:
        UnsupportedError: its waves are launched from the host, or it prints.
    """
    if params.program.graph.shows:
        raise UnsupportedError(
            f"{params.program.name} prints (jax.debug.print or jax.debug.callback) and was called "
            "under jit, or another transformation that compiles, as vmap of a gradient may. It "
            "prints in eager calls alone: call it outside of that."
        )
    if params.executor == "host":
        raise UnsupportedError(
            f"{params.program.name} was called under jit (or scan, or another transformation that "
            'compiles) on executor "host", which launches each wave from the host and so runs '
            'eager calls alone. Use jr.executor("graph") there, or call it outside of jit.'
        )


def over_stack(fun: Any, axes: int) -> Any:
    """Maps a function over the leading axes of all its arguments."""
    for _ in range(axes):
        fun = jax.vmap(fun, axis_name=DIRECTIONS)
    return fun
