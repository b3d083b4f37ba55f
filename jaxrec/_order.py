"""What an operation is once derivatives have been taken of the results that it leads to.

JAX replaces a function with a derivative rule (`custom_jvp`, `custom_vjp`) by the code of its rule
when it differentiates it. The value that comes with a first derivative is therefore computed by the
rule's code, and the second derivative of that value is the derivative of this code, not once more
that of the rule. An invocation keeps its operations as they were traced, so it has to count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun

from jaxrec import _compat
from jaxrec._equation import bind_equation
from jaxrec._jaxprs import within
from jaxrec._types import has_derivative
from jaxrec._values import replaced

MAX_ORDER = 3
"""Up to which order of derivatives a rule that makes recursive calls is followed.

Each order is a set of functions of its own. A call inside so many rules is one of the function
without its rule.
"""

_RULES = {"custom_jvp_call", "custom_vjp_call"}


def has_rule(eqn: JaxprEqn) -> bool:
    """Whether an operation is, or contains, a function with a derivative rule of the user's.

    Of JAX's own functions the code of the rule has the derivative that the rule has.
    """
    rules = (inner for inner in within(eqn) if inner.primitive.name in _RULES)
    return not all(map(_compat.is_of_jax, rules))


def has_reverse_rule(eqn: JaxprEqn) -> bool:
    """Whether an operation is, or contains, a function with a rule for reverse mode alone."""
    return any(inner.primitive.name == "custom_vjp_call" for inner in within(eqn))


def apply_equation(
    eqn: JaxprEqn,
    values: Sequence[Any],
    taken: Sequence[Sequence[int]] = (),
    ahead: int = 0,
) -> list[Any]:
    """Evaluates an operation as the derivatives that have been taken of it leave it.

    Args:
        eqn: the operation.
        values: its operands.
        taken: for each derivative the operands that it was taken by. If there are any, the rules of
            the operation were replaced by their code.
        ahead: how often one will be taken of others before the first of this operation.
    """
    if not has_rule(eqn):
        return bind_equation(eqn, values)

    def run(*given: Any) -> list[Any]:
        return bind_equation(eqn, given)

    if ahead:
        return inactive(run, ahead)(*values)
    for places in filter(None, taken):
        run = _differentiated(run, places)
    return run(*values)


def _differentiated(
    fun: Callable[..., list[Any]], places: Sequence[int]
) -> Callable[..., list[Any]]:
    """The value that `jax.vjp` returns beside the derivative by some operands."""

    def run(*values: Any) -> list[Any]:
        def of_moved(*moved: Any) -> list[Any]:
            return fun(*replaced(values, places, moved))

        return list(jax.vjp(of_moved, *(values[k] for k in places))[0])

    return run


def inactive(fun: Callable[..., list[Any]], order: int) -> Callable[..., list[Any]]:
    """A function of arrays that has no derivative the first `order` times one is taken.

    Its tangents are then zeros, but ones that JAX cannot tell: what follows has to see that a
    derivative is taken, in order to count it.
    """
    if order == 0:
        return fun

    def without(*args: Any) -> list[Any]:
        closed = jax.make_jaxpr(fun)(*args)
        jaxpr = _compat.opened(closed)
        return inactive_p.bind(*closed.consts, *args, jaxpr=jaxpr, order=order)

    return without


def still(values: Sequence[Any], order: int) -> list[Any]:
    """Values that have no derivative the first `order` times one is taken."""
    return inactive(lambda *x: list(x), order)(*values)


inactive_p = Primitive("inactive")
inactive_p.multiple_results = True


def _run(*operands: Any, jaxpr: ClosedJaxpr, order: int) -> list[Any]:
    del order
    return jaxpr_as_fun(jaxpr)(*operands)


@inactive_p.def_abstract_eval
def _types(*_: Any, jaxpr: ClosedJaxpr, order: int) -> list[Any]:
    del order
    return list(jaxpr.out_avals)


def _jvp(primals: Any, tangents: Any, *, jaxpr: ClosedJaxpr, order: int) -> Any:
    if order > 1:
        outs = inactive_p.bind(*primals, jaxpr=jaxpr, order=order - 1)
    else:
        outs = _run(*primals, jaxpr=jaxpr, order=0)
    given = next(t for t in tangents if type(t) is not _compat.Zero)
    return outs, [hidden_zero(x, given) for x in outs]


def hidden_zero(x: Any, given: Any) -> Any:
    """A tangent of zeros that is computed from another; so its cotangent is zero, never NaN."""
    aval = _compat.aval_of(x)
    if not has_derivative(aval):
        return _compat.Zero(aval.to_tangent_aval())
    zero = jnp.where(False, given, jnp.zeros_like(given)).sum()
    if jnp.iscomplexobj(zero) and not jnp.issubdtype(aval.dtype, jnp.complexfloating):
        zero = zero.real
    return jnp.broadcast_to(jax.lax.convert_element_type(zero, aval.dtype), aval.shape)


def _batch(operands: Any, dims: Any, *, jaxpr: ClosedJaxpr, order: int) -> Any:
    def run(*given: Any) -> list[Any]:
        return _run(*given, jaxpr=jaxpr, order=order)

    outs = inactive(jax.vmap(run, tuple(dims)), order)(*operands)
    return outs, [0] * len(outs)


def zero_tangent(x: Any) -> Any:
    """The tangent of a value that has no derivative, in a way that JAX can tell."""
    return _compat.Zero(_compat.aval_of(x).to_tangent_aval())


inactive_p.def_impl(_run)
_compat.register_jvp(inactive_p, _jvp)
_compat.register_batching(inactive_p, _batch)
_compat.register_lowering(inactive_p, _run)
