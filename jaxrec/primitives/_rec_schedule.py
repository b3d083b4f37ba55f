"""The primitive `rec_schedule`: operands to the tables of their schedule, for replays.

The residuals hold a schedule too, but what `vmap` makes of them is no schedule: it makes residuals
afresh wherever they are read. A replay reads its schedule by operations of JAX, which `vmap` maps
one by one, so it gets one that has an axis of examples like any other value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec.primitives._moved import replaced
from jaxrec.primitives._params import Params, plan_inputs, run_invocation
from jaxrec.primitives._primitives import (
    check_compilable,
    rec_schedule_p,
    run_compiled,
    zero_tangent,
)
from jaxrec.schedule._layout import Tables, flat_tables, table_types, unflatten_tables
from jaxrec.schedule._plan import plan_in_program


def schedule_of(params: Params, operands: Sequence[Any]) -> Tables:
    """The schedule of an invocation whose capacity is decided, for the layout `params.layout()`."""
    still = jax.lax.stop_gradient(list(operands))
    flat = rec_schedule_p.bind(*still, params=params)
    return unflatten_tables(table_types(params.program, params.layout()), flat)


def _run_schedule(*operands: Any, params: Params) -> list[Any]:
    check_compilable(params)
    layout = params.layout()
    if params.program.is_stepped:  # it is found by running
        return flat_tables(run_invocation(params, layout, operands)[0].tables)
    return flat_tables(plan_in_program(params.program, layout, plan_inputs(params, operands)))


@rec_schedule_p.def_impl
def _schedule_impl(*operands: Any, params: Params) -> list[Any]:
    return run_compiled("rec_schedule", _run_schedule, params, operands)


@rec_schedule_p.def_abstract_eval
def _schedule_types(*avals: Any, params: Params) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    types = flat_tables(table_types(params.program, params.layout()))
    return [_compat.with_vma(ShapedArray(t.shape, t.dtype), vma) for t in types]


_compat.register_lowering(rec_schedule_p, _run_schedule)


def _schedule_jvp(primals: Any, tangents: Any, *, params: Params) -> Any:
    outs = rec_schedule_p.bind(*primals, params=params)
    return outs, list(map(zero_tangent, outs))


_compat.register_jvp(rec_schedule_p, _schedule_jvp)


def _schedule_batch(operands: Any, dims: Any, *, params: Params) -> Any:
    """A schedule an example, or one for all where no control depends on the example."""
    mapped = [k for k, d in enumerate(dims) if d is not _compat.not_mapped]
    examples = [jnp.moveaxis(operands[k], dims[k], 0) for k in mapped]

    def one(values: Sequence[Any]) -> list[Any]:
        return rec_schedule_p.bind(*replaced(operands, mapped, values), params=params)

    alike = not params.program.is_stepped and not set(mapped) & set(params.controlling)
    if alike and examples[0].shape[0] > 0:
        outs = one([x[0] for x in examples])
        return outs, [_compat.not_mapped] * len(outs)
    outs = jax.lax.map(one, examples)
    return outs, [0] * len(outs)


_compat.register_batching(rec_schedule_p, _schedule_batch)
