"""Operations whose derivative may be infinite, or nothing is known of it."""

from __future__ import annotations

from jaxrec.graph._ir import Const, Op, Prim, within
from jaxrec.graph._patience import waits

_STEEP = {"acos", "acosh", "asin", "atan2", "atanh", "cbrt", "cosh", "div", "erf_inv", "exp"}
_STEEP |= {"exp2", "expm1", "igamma", "igammac", "lgamma", "digamma", "log", "log1p", "log2"}
_STEEP |= {"polygamma", "pow", "regularized_incomplete_beta", "rem", "rsqrt", "sinh", "sqrt"}
_STEEP |= {"tan", "zeta"}
_STEEP |= {"cholesky", "eig", "eigh", "householder_product", "lu", "qr", "svd", "triangular_solve"}
_STEEP |= {"cumprod", "integer_pow", "one_minus_square", "polynomial", "reduce_prod", "square"}
_STEEP |= {"tridiagonal_solve"}
_STEEP |= {"custom_jvp_call", "custom_vjp_call"}
"""Operations that at some finite operand have an infinite derivative, perhaps as it overflows, or
none; and functions with a rule for reverse mode, or with one that cannot be looked into."""


def is_steep(op: Prim) -> bool:
    """Whether an operation is one of them, or holds one."""
    if op.name in ("div", "rem") and isinstance(op.inputs[1], Const):
        return False
    return any(primitive.name in _STEEP or waits(primitive) for primitive in op.in_derivative)


def has_steep(op: Op) -> bool:
    """Whether a branch of a choice holds one of them."""
    return any(is_steep(inner) for inner in within(op) if isinstance(inner, Prim))
