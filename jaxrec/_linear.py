"""Whether a backward pass is linear in the cotangents.

That of JAX's operations is. A `custom_vjp` may give anything for a cotangent of zero (weight decay
in a backward rule, or NaN where it divides by the size of the cotangent), make a finite number of
an infinite one (clipping), or something else of a sum than of its parts; and so may the solver of a
`custom_linear_solve`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._equation import run_jaxpr, solver_of
from jaxrec._jaxprs import MOVES
from jaxrec._types import has_derivative
from jaxrec._values import replaced

IN_ALL = MOVES | {"split", "pad", "convert_element_type", "reduce_precision", "add", "add_any"}
IN_ALL |= {"sub", "neg", "reduce_sum", "cumsum", "real", "imag", "complex", "conj"}
"""Operations that are linear in all operands together."""

_IN_EACH = {"mul", "dot_general", "conv_general_dilated"}
"""Operations that are linear in each operand where the others are fixed."""

_IN_SOME = {
    "div": {0},
    "triangular_solve": {1},
    "gather": {0},
    "dynamic_slice": {0},
    "scatter-add": {0, 2},
    "dynamic_update_slice": {0, 1},
}
"""Operations that are linear in these operands together where the others are fixed."""

_RULES = {"custom_vjp_call", "custom_linear_solve"}


class Known(NamedTuple):
    """How a value follows from the cotangents of the results.

    Attributes:
        linear: it is linear in them.
        fixed: no cotangent goes into it: it is what it is for a call.
    """

    linear: bool
    fixed: bool


def has_backward_rule(names: Iterable[str]) -> bool:
    """Whether one of some operations, by name, has a backward pass that its writer chose."""
    return not _RULES.isdisjoint(names)


def is_linear(fun: Callable[..., Sequence[Any]], types: Sequence[Any]) -> bool:
    """Whether the backward pass of a function is known to be linear.

    Args:
        fun: a function of arrays to a list of arrays.
        types: of its arguments.
    """
    moved = [k for k, a in enumerate(types) if has_derivative(a)]

    def forward(*given: Any) -> Any:
        def of_moved(*changed: Any) -> list[Any]:
            outs = fun(*replaced(given, moved, changed))
            return [x for x in outs if has_derivative(x)]

        return jax.vjp(of_moved, *(given[k] for k in moved))

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in types]
    try:
        outs, pullback = jax.eval_shape(forward, *shapes)
    except Exception:  # of a rule that some value has no derivative in: told where one is taken
        return False
    leaves, tree = jax.tree.flatten(pullback)

    def backward(leaves: Sequence[Any], cts: Any) -> Any:
        return jax.tree.unflatten(tree, leaves)(cts)

    closed = jax.make_jaxpr(backward)(leaves, outs)
    given = [Known(False, True)] * len(leaves) + [Known(True, False)] * len(outs)
    return all(known.linear for known in _results(closed, given))


def _results(closed: ClosedJaxpr, given: Sequence[Known]) -> list[Known]:
    """What is known of the results of a jaxpr."""

    def apply(eqn: JaxprEqn, values: list[Any]) -> list[Known]:
        return _equation(eqn, list(map(_known, values)))

    return list(map(_known, run_jaxpr(closed, given, apply)))


def _known(x: Any) -> Known:
    """What is known of a value that may be a constant."""
    return x if isinstance(x, Known) else Known(_is_zero(x), True)


def _equation(eqn: JaxprEqn, given: list[Known]) -> list[Known]:
    name = eqn.primitive.name
    inner = eqn.params["call_jaxpr"] if name == "custom_jvp_call" else _compat.inlined(eqn)
    if inner is not None:
        return _results(inner, given)
    if name == "custom_linear_solve":
        return _results(*solver_of(eqn, given))
    fixed = all(known.fixed for known in given)
    return [Known(_is_linear_in(eqn, given), fixed)] * len(eqn.outvars)


def _is_linear_in(eqn: JaxprEqn, given: list[Known]) -> bool:
    name = eqn.primitive.name
    types: list[Any] = [var.aval for var in eqn.outvars]
    if not all(map(has_derivative, types)):
        return False
    if name in _IN_EACH:
        return any(_is_linear_but_for(given, {k}) for k in range(len(given)))
    if name == "select_n":
        return _is_linear_but_for(given, set(range(1, len(given))))
    if name in IN_ALL:
        return all(known.linear for known in given)
    return name in _IN_SOME and _is_linear_but_for(given, _IN_SOME[name])


def _is_linear_but_for(given: list[Known], moving: set[int]) -> bool:
    """Whether some operands are linear and all others fixed."""
    return all(known.linear if k in moving else known.fixed for k, known in enumerate(given))


def _is_zero(value: Any) -> bool:
    known = _compat.is_concrete(value) and isinstance(_compat.aval_of(value).dtype, np.dtype)
    return known and not np.any(np.asarray(value))
