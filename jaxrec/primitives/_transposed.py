"""Transposes of the primitives that are linear in tangents or cotangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.core import ShapedArray
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.primitives._cotangents import with_lanes_apart
from jaxrec.primitives._rec_remade import remade
from jaxrec.primitives._stacking import zeros_of


def avals_of(operands: Sequence[Any]) -> list[Any]:
    """The types of operands of which some are unknown."""
    return [x.aval if _compat.is_undefined_primal(x) else _compat.aval_of(x) for x in operands]


def filled(cts: Sequence[Any], types: Sequence[ShapedArray]) -> list[Any]:
    """Cotangents of results of these types, zeros where there is none."""
    pairs = zip(cts, types, strict=True)
    return [zeros_of(a) if type(ct) is _compat.Zero else ct for ct, a in pairs]


def wanted_of(operands: Sequence[Any], found: Sequence[Any]) -> list[Any]:
    """Of the cotangents of the last operands those of unknown ones; None for all others."""
    known = len(operands) - len(found)
    pairs = zip(operands[known:], found, strict=True)
    return [None] * known + [ct if _compat.is_undefined_primal(x) else None for x, ct in pairs]


def transposed(
    other: Primitive, known: Sequence[Any], given: Sequence[Any], params: Params, wrt: Wrt
) -> list[Any]:
    """The transpose of a linear primitive is another one, on the cotangents of its results.

    Args:
        other: that one.
        known: what the primitive is not linear in.
        given: what the other one is linear in.
        params: the parameters of both.
        wrt: of the other one.
    """
    vma = _compat.common_vma([_compat.aval_of(x) for x in [*known, *given]])
    given = [_compat.vary_over(x, vma) for x in given]
    return other.bind(*known, *given, params=params, wrt=wrt)


def apart_by_lane(
    known: Sequence[Any], params: Params, wrt: Wrt
) -> tuple[list[Any], Params, tuple[int, ...]]:
    """The invocation that has every operand once for each cotangent of it.

    Lanes that share an outer value may have cotangents of it each, as gradients under `jax.vmap`
    do; transposed, these are tangents. So the lanes share the value no more.

    Args:
        known: its operands and residuals.
        params: its parameters.
        wrt: the cotangents.

    Returns:
        Its operands and residuals, its parameters, and which operands have lanes in front now.
    """
    count = params.num_operands
    own, operands, apart = with_lanes_apart(params, wrt, known[:count])
    if not apart:
        return list(known), params, ()
    residuals, own = remade(known[count], operands, own, Wrt.of(wrt.positions))
    return [*operands, *residuals[: len(known) - count]], own, tuple(apart)
