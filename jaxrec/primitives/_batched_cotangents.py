"""`vmap` of the primitives that give cotangents: `rec_backward` and `rec_second`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.invocation._results import differentiable
from jaxrec.primitives._batching import axis_size
from jaxrec.primitives._cotangents import (
    by_example,
    indexed_by_lane,
    kept_apart,
    lay_out_cotangents,
    lay_out_tangent,
    repeated_by_lane,
)
from jaxrec.primitives._rec_remade import batch_taken, remade
from jaxrec.primitives._stacking import collect_lanes, stack_given


def batched_cotangents(
    primitive: Primitive,
    operands: Sequence[Any],
    dims: Sequence[Any],
    params: Params,
    wrt: Wrt,
    residuals: int | None = None,
) -> tuple[list[Any], list[int]]:
    """The rule of a primitive.

    Args:
        primitive: that takes the operands of the invocation, residuals, cotangents of the results,
            and tangents of the operands `wrt.by`.
        operands: all that it takes.
        dims: the axes of examples.
        params: of the invocation of one example.
        wrt: which cotangents are asked for.
        residuals: how many of the residuals it takes; None: all.
    """
    tangents, cotangents = len(operands) - len(wrt.by), sum(differentiable(params))
    first = tangents - cotangents
    if all(d is _compat.not_mapped for d in dims[:first]):
        return stack_given(primitive, operands, dims, len(operands) - first, params, wrt)
    size = axis_size(operands, dims)
    own, axes = operands[:tangents], dims[:tangents]
    dots, dot_axes = operands[tangents:], dims[tangents:]
    axis_of = [*enumerate(axes[: params.num_operands]), *zip(wrt.by, dot_axes, strict=True)]
    mapped = {k for k, d in axis_of if d is not _compat.not_mapped}
    repeated = {k: p for k, p in kept_apart(params, wrt).items() if k in mapped}
    own, axes = repeated_by_lane(own, axes, repeated, size)
    of_dots = {n: repeated[k] for n, k in enumerate(wrt.by) if k in repeated}
    dots, dot_axes = repeated_by_lane(dots, dot_axes, of_dots, size, wrt.stack)
    params = indexed_by_lane(params, repeated)
    outers = [k for k in wrt.positions if k < params.num_outers]
    apart = [k for k in outers if params.patterns[k] is not None]
    apart += [k for k in wrt.by if k in mapped]
    batch, state = batch_taken(params, own[:first], axes[:first], size, apart, outers)
    made, sized = remade(state, batch.operands, batch.params, Wrt.of(wrt.positions))
    reports = collect_lanes(batch, state, wrt, made)
    cts = lay_out_cotangents(batch, wrt.stack, reports, own[first:], axes[first:])
    moved = zip(wrt.by, dots, dot_axes, strict=True)
    laid = [lay_out_tangent(batch, k, x, d, wrt.stack) for k, x, d in moved]
    wide = dataclasses.replace(wrt, lanes=tuple(batch.cotangent_lanes(k, p) for k, p in wrt.pairs))
    values = [*batch.operands, *made[:residuals], *cts, *laid]
    outs = primitive.bind(*values, params=sized, wrt=wide)
    return by_example(batch, wrt)(*outs), [wrt.stack] * len(outs)
