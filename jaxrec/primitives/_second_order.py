"""What the derivative rules of `rec_linear` and `rec_backward` share.

Both are linear in what they are given, tangents or cotangents. By the operands of the invocation
their derivatives are first derivatives of the program with tangents (`jaxrec/split/_dual.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec._order import zero_tangent
from jaxrec._types import has_derivative
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.split._axes import Tangents
from jaxrec.split._dual import with_tangents

_FORWARD_TWICE = {"random_gamma"}
"""Operations whose derivative is a loop, which JAX differentiates in forward mode only."""


def has_dual(params: Params) -> bool:
    """Whether there is such a program: derivatives are symmetric, and these are the first taken."""
    program = params.program
    is_first = not program.has_rules and not any(isinstance(a, Tangents) for a in program.axes)
    return is_first and _FORWARD_TWICE.isdisjoint(program.operations)


def dual_invocation(
    params: Params, by: Sequence[int], operands: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Params, list[Any]]:
    """The invocation with tangents, and its operands.

    Args:
        params: of the invocation without.
        by: its operands that have tangents.
        operands: all of them.
        tangents: of those.
    """
    first, given = params.num_outers, dict(zip(by, tangents, strict=True))
    moved = [k for k in by if k < first]
    roots = [
        jnp.stack([x, given.get(k, jnp.zeros_like(x))], axis=1) if has_derivative(x) else x
        for k, x in enumerate(operands)
        if k >= params.first_data
    ]
    dual = dataclasses.replace(
        params,
        program=with_tangents(params.program, tuple(by)),
        patterns=(*params.patterns, *(params.patterns[k] for k in moved)),
    )
    control = operands[first : params.first_data]
    return dual, [*operands[:first], *(given[k] for k in moved), *control, *roots]


def moved_operands(
    params: Params, operands: Sequence[Any], tangents: Sequence[Any]
) -> dict[int, Any]:
    """The tangents of the operands of an invocation that have some, by number."""
    return {
        k: t
        for k, (x, t) in enumerate(zip(operands, tangents, strict=True))
        if type(t) is not _compat.Zero and params.moves(k, _compat.aval_of(x))
    }


def by_given(
    primitive: Primitive,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    params: Params,
    wrt: Wrt,
    given: int,
) -> list[Any] | None:
    """The derivative of a primitive by its last operands, in which it is linear; None by none."""
    moved = tangents[-given:]
    if all(type(t) is _compat.Zero for t in moved):
        return None
    pairs = zip(moved, primals[-given:], strict=True)
    full = [jnp.zeros_like(x) if type(t) is _compat.Zero else t for t, x in pairs]
    return primitive.bind(*primals[:-given], *full, params=params, wrt=wrt)


def sum_of_tangents(
    outs: Sequence[Any], one: Sequence[Any] | None, other: Sequence[Any] | None
) -> list[Any]:
    """The sum of two derivatives of the same results, of which there may be none."""
    if one and other:
        return [a + b for a, b in zip(one, other, strict=True)]
    return list(one or other or map(zero_tangent, outs))
