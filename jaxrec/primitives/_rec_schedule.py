"""The primitive `rec_schedule`: state, operands to the tables of their schedule, for replays.

The residuals hold a schedule too, but what `vmap` makes of them is no schedule: it makes residuals
afresh wherever they are read. A replay reads its schedule by operations of JAX, which `vmap` maps
one by one, so it gets one that has an axis of examples like any other value.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._order import zero_tangent
from jaxrec._values import replaced
from jaxrec.invocation._params import Params, plan_inputs, run_invocation
from jaxrec.primitives._primitives import (
    check_compilable,
    rec_schedule_p,
    register_batching,
    run_compiled,
)
from jaxrec.primitives._residuals import MADE, UNTAKEN, was_run
from jaxrec.schedule._plan import plan_in_program
from jaxrec.schedule._tables import Tables, table_types


def schedule_of(params: Params, operands: Sequence[Any], state: Any = MADE) -> Tables:
    """The schedule of an invocation whose capacity is decided, for the layout `params.layout()`.

    It has no waves if the state of the invocation is `UNTAKEN`.
    """
    still = jax.lax.stop_gradient(list(operands))
    flat = rec_schedule_p.bind(state, *still, params=params, surely=was_run(state))
    like = table_types(params.program, params.layout())
    return jax.tree.unflatten(jax.tree.structure(like), flat)


def _run_schedule(state: Any, *operands: Any, params: Params, surely: bool) -> list[Any]:
    check_compilable(params)
    layout = params.layout()

    def make() -> list[Any]:
        if params.program.is_stepped:  # it is found by running
            return jax.tree.leaves(run_invocation(params, layout, operands)[0].tables)
        inputs = plan_inputs(params, operands)
        return jax.tree.leaves(plan_in_program(params.program, layout, inputs))

    def nothing() -> list[Any]:
        tables = table_types(params.program, layout)
        return [jnp.zeros(t.shape, t.dtype) for t in jax.tree.leaves(tables)]

    return make() if surely else jax.lax.cond(state != UNTAKEN, make, nothing)


@rec_schedule_p.def_impl
def _schedule_impl(*operands: Any, params: Params, surely: bool) -> list[Any]:
    run = functools.partial(_run_schedule, surely=surely)
    kind = "rec_schedule" if surely else "rec_schedule_if"
    return run_compiled(kind, run, params, operands)


@rec_schedule_p.def_abstract_eval
def _schedule_types(*avals: Any, params: Params, surely: bool) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    types = jax.tree.leaves(table_types(params.program, params.layout()))
    return [_compat.with_vma(ShapedArray(t.shape, t.dtype), vma) for t in types]


_compat.register_lowering(rec_schedule_p, _run_schedule)


def _schedule_jvp(primals: Any, tangents: Any, *, params: Params, surely: bool) -> Any:
    outs = rec_schedule_p.bind(*primals, params=params, surely=surely)
    return outs, list(map(zero_tangent, outs))


_compat.register_jvp(rec_schedule_p, _schedule_jvp)


def _schedule_batch(operands: Any, dims: Any, *, params: Params, surely: bool) -> Any:
    """A schedule an example, or one for all where no control depends on the example."""
    mapped = [k for k, d in enumerate(dims) if d is not _compat.not_mapped]
    examples = [jnp.moveaxis(operands[k], dims[k], 0) for k in mapped]

    def one(values: Sequence[Any]) -> list[Any]:
        given = replaced(operands, mapped, values)
        return rec_schedule_p.bind(*given, params=params, surely=surely)

    deciding = {0, *(1 + k for k in params.controlling)}
    alike = not params.program.is_stepped and not deciding.intersection(mapped)
    if alike and examples[0].shape[0] > 0:
        outs = one([x[0] for x in examples])
        return outs, [_compat.not_mapped] * len(outs)
    outs = jax.lax.map(one, examples)
    return outs, [0] * len(outs)


register_batching(rec_schedule_p, _schedule_batch)
