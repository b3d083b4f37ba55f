"""Functions with a derivative rule of their own that make recursive calls.

JAX keeps such a function as one equation, with the rule beside it. Its recursive calls have to
become part of the recursion, and its rule must still replace their derivative. So the function is
linearised where it stands: what the rule computes beforehand, recursive calls included, becomes
part of the body, and the linear rest, which makes no calls, is attached to the results as the
derivative with respect to the arguments.

What is computed beforehand has no derivative of the order that the rule takes, but those of the
orders after it: derivatives of the rule go through it. So the calls that are made there enter
another function, of a higher `order`, and rules that stand there are `inactive` that often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._equation import bind_equation
from jaxrec._errors import UnsupportedError
from jaxrec._order import inactive
from jaxrec._types import has_derivative
from jaxrec._values import replaced
from jaxrec.trace import _context
from jaxrec.trace._instance import Definition
from jaxrec.trace._pass import Pass


class Rule:
    """An equation with a derivative rule that makes calls, taken apart.

    Attributes:
        beforehand: what the rule computes before there are tangents or cotangents: the results,
            then what the linear rest holds on to.
        args: its arguments.
    """

    beforehand: ClosedJaxpr
    args: list[Any]

    def __init__(self, running: Pass, eqn: JaxprEqn, values: list[Any]) -> None:
        """Linearises the equation.

        Raises:
            UnsupportedError: a backward rule makes recursive calls, a forward rule differentiates
                one, or a rule closes over values of the body.
        """
        self._running = running
        inexact = [has_derivative(_compat.aval_of(x)) for x in values]
        first = eqn.params["num_consts"]
        moved = [k for k, atom in enumerate(eqn.invars) if k >= first and inexact[k]]
        moved = [k for k in moved if not _compat.is_literal(eqn.invars[k])]
        closed = [k for k in range(first) if inexact[k] and not _compat.is_concrete(values[k])]
        self._moved, self._closed = [values[k] for k in moved], [values[k] for k in closed]
        self._is_backward = eqn.primitive.name == "custom_vjp_call"
        trees: list[Any] = []

        def run(*moving: Any) -> list[Any]:
            def apply(*moving: Any) -> list[Any]:
                return bind_equation(eqn, replaced(values, moved, moving))

            outs, rest = (jax.vjp if self._is_backward else jax.linearize)(apply, *moving)
            if self._is_backward:
                with _context.entered(_Refusing(running)):
                    jax.eval_shape(rest, list(map(_cotangent, outs)))
            residuals, tree = jax.tree.flatten(rest)
            trees.append(tree)
            return [*outs, *residuals]

        self.beforehand, self.args = jax.make_jaxpr(run)(*self._moved), self._moved
        self._tree, self._outputs = trees[-1], len(eqn.outvars)
        consts = self.beforehand.consts
        if not all(_compat.is_concrete(x) or any(x is v for v in values) for x in consts):
            raise UnsupportedError(_closure(running))

    def attach(self, made: Sequence[Any], order: int) -> list[Any]:
        """The results, with the rule as their derivative.

        Args:
            made: what `beforehand` has given.
            order: how many rules of the same frame the equation stands inside of.
        """
        attached = self._with_pullback() if self._is_backward else self._with_pushforward()
        counts = len(self._moved), len(self._closed), self._outputs
        ends = np.cumsum(counts)

        def run(*flat: Any) -> list[Any]:
            parts = np.split(np.arange(len(flat)), ends)
            return attached(*(tuple(flat[k] for k in part) for part in parts))

        return inactive(run, order)(*self._moved, *self._closed, *made)

    def _with_pullback(self) -> Callable[..., list[Any]]:
        @jax.custom_vjp
        def attach(moved: Any, closed: Any, outs: Any, residuals: Any) -> Any:
            del moved, closed, residuals
            return list(outs)

        def forward(moved: Any, closed: Any, outs: Any, residuals: Any) -> Any:
            del moved
            if closed:
                raise UnsupportedError(_closure(self._running))
            return list(outs), residuals

        def backward(residuals: Any, cotangents: Any) -> Any:
            return jax.tree.unflatten(self._tree, residuals)(cotangents), None, None, None

        attach.defvjp(forward, backward)
        return attach

    def _with_pushforward(self) -> Callable[..., list[Any]]:
        @jax.custom_jvp
        def attach(moved: Any, closed: Any, outs: Any, residuals: Any) -> Any:
            del moved, closed, residuals
            return list(outs)

        @attach.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            _, closed, outs, residuals = primals
            if closed:
                raise UnsupportedError(_closure(self._running))
            rest = jax.tree.unflatten(self._tree, residuals)
            return list(outs), rest(*tangents[0])

        return attach


def _closure(running: Pass) -> str:
    return (
        f"{running.name} uses a custom_vjp or custom_jvp that makes recursive calls and closes "
        "over values of the body. Its rule gives derivatives with respect to its arguments alone: "
        "make those values arguments of the function (a rule returns None for integers)."
    )


def _cotangent(out: Any) -> Any:
    """A cotangent of the type that goes with a result."""
    return out if has_derivative(out) else np.zeros(out.shape, jax.dtypes.float0)


class _Refusing(Pass):
    """The context of a backward rule, which must make no calls."""

    def __init__(self, running: Pass) -> None:
        super().__init__(running.program, running.instance, probing=False)

    def call(self, definition: Definition, *_: Any, **__: Any) -> Any:
        raise UnsupportedError(
            f"{self.name} uses a custom_vjp whose backward rule calls {definition.name} "
            "recursively. Make the calls in the forward rule and hand their results to the "
            "backward rule as residuals."
        )
