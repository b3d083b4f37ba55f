"""The primitive `multiple`: a tangent times a derivative, and zero where one of them is.

What a loss does not depend on has a cotangent of zero. JAX's reverse mode carries this zero back
through the operations, whose derivatives are often finite where the whole derivative is not: a
number that has overflowed, and that the loss leaves out. It never carries the cotangent of one
result to what another one depends on, infinite as it may be. Here the whole derivative is known
alone, zero where there is no dependence, and zero times infinity would be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec._equation import varying_together
from jaxrec.primitives._batching import at_front, axis_size

multiple_p = Primitive("multiple")
multiple_p.multiple_results = True
_compat.define_impl(multiple_p)


def multiple(tangent: Any, x: Any) -> Any:
    """A tangent times a derivative of its type, element by element; linear in the tangent."""
    return multiple_p.bind(*varying_together([tangent, x]))[0]


@multiple_p.def_abstract_eval
def _types(tangent: Any, x: Any) -> list[ShapedArray]:
    aval = ShapedArray(tangent.shape, tangent.dtype)
    return [_compat.with_vma(aval, _compat.common_vma([tangent, x]))]


def _product(tangent: Any, x: Any) -> list[Any]:
    return [jnp.where((tangent == 0) | (x == 0), 0, tangent * x)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    pairs = zip(tangents, reversed(primals), strict=True)
    dots = [multiple(t, other) for t, other in pairs if type(t) is not _compat.Zero]
    return [multiple(*primals)], [sum(dots[1:], dots[0])]


def _transpose(cts: Sequence[Any], _: Any, x: Any) -> list[Any]:
    (ct,) = cts
    return [ct if type(ct) is _compat.Zero else multiple(ct, x), None]


def _batch(operands: Sequence[Any], dims: Sequence[Any]) -> Any:
    size, pairs = axis_size(operands, dims), zip(operands, dims, strict=True)
    return [multiple(*(at_front(x, dim, size) for x, dim in pairs))], [0]


_compat.register_lowering(multiple_p, _product)
_compat.register_jvp(multiple_p, _jvp)
_compat.register_transpose(multiple_p, _transpose)
_compat.register_batching(multiple_p, _batch)
