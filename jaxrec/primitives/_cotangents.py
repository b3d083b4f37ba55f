"""Cotangents of the operands of an invocation: their types and lanes, and how `vmap` has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.primitives._alike import Batched
from jaxrec.primitives._primitives import over_stack
from jaxrec.primitives._residuals import replayed
from jaxrec.schedule._plan import LanePattern
from jaxrec.schedule._tables import Tables
from jaxrec.transpose._backward import Want


def stacked(aval: ShapedArray, avals: Sequence[Any], wrt: Wrt) -> ShapedArray:
    """The type of a tangent or cotangent with the axes of several on one schedule."""
    return ShapedArray((*avals[-1].shape[: wrt.stack], *aval.shape), aval.dtype)


def cotangent_types(avals: Sequence[Any], params: Params, wrt: Wrt) -> list[ShapedArray]:
    """The types of the cotangents that a primitive gives, from those of all that it takes."""
    vma = _compat.common_vma(avals)
    types = []
    for k, pattern in wrt.pairs:
        own = k < params.num_outers and params.patterns[k] is None
        lead = (pattern[1],) if own and pattern is not None else ()
        aval = ShapedArray((*lead, *avals[k].shape), avals[k].dtype)
        types.append(stacked(aval, avals, wrt))
    return [_compat.with_vma(a, vma) for a in types]


def wanted(params: Params, wrt: Wrt) -> Want:
    """What a backward pass is asked for."""
    outers = [(k, p) for k, p in wrt.pairs if k < params.num_outers]
    roots = [k for k in wrt.positions if k >= params.num_outers]
    return Want(
        tuple(k for k, _ in outers),
        tuple(k - params.first_data for k in roots),
        tuple(p for _, p in outers),
    )


def kept_apart(params: Params, wrt: Wrt) -> dict[int, LanePattern]:
    """The outer values that lanes share although their cotangents are kept apart by lane."""
    return {k: p for k, p in wrt.pairs if p is not None and params.patterns[k] is None}


def indexed_by_lane(params: Params, apart: dict[int, LanePattern]) -> Params:
    """The invocation whose lanes index outer values that they share."""
    patterns = tuple(apart.get(k, p) for k, p in enumerate(params.patterns))
    return dataclasses.replace(params, patterns=patterns)


def with_lanes_apart(
    params: Params, wrt: Wrt, operands: Sequence[Any]
) -> tuple[Params, list[Any], dict[int, LanePattern]]:
    """The invocation whose lanes share no outer value that they have a cotangent of each.

    Returns:
        Its parameters, its operands, and how lanes index those that are repeated.
    """
    apart = kept_apart(params, wrt)
    repeated = [
        jnp.broadcast_to(x, (apart[k][1], *x.shape)) if k in apart else x
        for k, x in enumerate(operands)
    ]
    return indexed_by_lane(params, apart), repeated, apart


def pulled_back(
    params: Params,
    wrt: Wrt,
    tables: Tables,
    operands: Sequence[Any],
    positions: Sequence[int],
    cotangents: Sequence[Any],
) -> list[Any]:
    """The cotangents of operands by JAX's derivative of a replay.

    Args:
        params: of the invocation.
        wrt: which cotangents are asked for.
        tables: the schedule.
        operands: of the invocation.
        positions: the operands that the derivative is taken by: those asked for, then others.
        cotangents: of the results.
    """
    params, repeated, _ = with_lanes_apart(params, wrt, operands)
    at = replayed(params, tables, repeated, positions)

    def read(xs: Sequence[Any]) -> list[Any]:
        return [x for k, x in enumerate(xs) if k not in wrt.without]

    _, pull = jax.vjp(lambda *xs: read(at(*xs)), *(repeated[k] for k in positions))
    return list(pull(read(cotangents)))[: len(wrt.positions)]


def repeated_by_lane(
    xs: Sequence[Any], dims: Sequence[Any], apart: dict[int, LanePattern], size: int, stack: int = 0
) -> tuple[list[Any], list[Any]]:
    """Repeats by lane what differs by example, and whose cotangents are kept apart by lane.

    Args:
        xs: operands, or tangents of them.
        dims: the axes of examples.
        apart: by number, how lanes index the cotangent.
        size: how many examples there are.
        stack: leading axes of several on one schedule.
    """
    xs, dims = list(xs), list(dims)
    for k, (_, lanes) in apart.items():
        unmapped = dims[k] is _compat.not_mapped
        x = _repeated(xs[k], stack, size) if unmapped else jnp.moveaxis(xs[k], dims[k], stack)
        xs[k], dims[k] = _repeated(x, stack + 1, lanes), stack
    return xs, dims


def _repeated(x: Any, axis: int, size: int) -> Any:
    shape = (*x.shape[:axis], size, *x.shape[axis:])
    return jnp.broadcast_to(jnp.expand_dims(x, axis), shape)


def lay_out_tangent(batch: Batched, k: int, x: Any, dim: Any, stack: int) -> Any:
    """Lays out a tangent of operand `k`, below the stacked axes."""
    if dim is not _compat.not_mapped:
        x, dim = jnp.moveaxis(x, dim, stack), 0
    return over_stack(lambda x: batch.operand(k, x, dim), stack)(x)


def lay_out_cotangents(
    batch: Batched, stack: int, reports: Any, given: Sequence[Any], dims: Sequence[Any]
) -> list[Any]:
    """Lays out cotangents of the results, below the stacked axes."""
    fronted = [
        x if d is _compat.not_mapped else jnp.moveaxis(x, d, stack)
        for x, d in zip(given, dims, strict=True)
    ]
    axes = [d if d is _compat.not_mapped else 0 for d in dims]

    def lay_out(*cts: Any) -> list[Any]:
        return batch.like_results(cts, axes, reports)

    return over_stack(lay_out, stack)(*fronted)


def by_example(batch: Batched, wrt: Wrt) -> Callable[..., list[Any]]:
    """Takes the cotangents of operands of a batched invocation apart by example."""

    def split(*outs: Any) -> list[Any]:
        parts = zip(wrt.positions, outs, wrt.lanes, strict=True)
        return [batch.split_operand(k, x, p) for k, x, p in parts]

    return over_stack(split, wrt.stack)
