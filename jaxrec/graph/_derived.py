"""What the derivative of an operation is made of, where a rule of its own gives it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxprs_in_params

from jaxrec._equation import bind_equation
from jaxrec._order import MAX_ORDER
from jaxrec._types import has_derivative
from jaxrec._values import replaced

_RULE = "custom_jvp_call"


def primitives_in_derivative(eqn: JaxprEqn, order: int = MAX_ORDER) -> Iterator[Primitive]:
    """The operations that an equation is and holds, where a derivative is taken.

    A function of `jax.custom_jvp` stands for the operations of its rule, and for itself where that
    cannot be traced.

    Args:
        eqn: the equation.
        order: up to which order derivatives are looked at, since a rule may hold its own function.
    """
    if eqn.primitive.name != _RULE:
        yield eqn.primitive
        for jaxpr in jaxprs_in_params(eqn.params):
            yield from _primitives(jaxpr, order)
    elif order:
        rule = _with_tangents(eqn)
        yield from [eqn.primitive] if rule is None else _primitives(rule, order - 1)


def _primitives(jaxpr: Any, order: int) -> Iterator[Primitive]:
    for eqn in jaxpr.eqns:
        yield from primitives_in_derivative(eqn, order)


def _with_tangents(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """An equation with its forward derivative; None if the rule, which is the user's, has none."""
    avals: list[Any] = [atom.aval for atom in eqn.invars]
    moved = [k for k, aval in enumerate(avals) if has_derivative(aval)]

    def run(values: list[Any], tangents: list[Any]) -> Any:
        def of_moved(*given: Any) -> list[Any]:
            return bind_equation(eqn, replaced(values, moved, given))

        return jax.jvp(of_moved, [values[k] for k in moved], tangents)

    try:
        return jax.make_jaxpr(run)(avals, [avals[k] for k in moved])
    except Exception:
        return None
