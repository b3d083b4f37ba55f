"""Functions with a derivative rule of their own that make recursive calls.

JAX keeps such a function as one equation, with the rule beside it. Its recursive calls have to
become part of the recursion, and its rule must still replace their derivative. So the function is
linearised where it stands: what the rule computes beforehand, recursive calls included, becomes
part of the body, and the linear rest, which makes no calls, is attached to the results as the
derivative with respect to the arguments.

The derivative of what is computed beforehand is not taken away: the attached rule just gives it no
cotangent. Derivatives of the rule itself (second derivatives) are therefore right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec.trace import _context
from jaxrec.trace._instance import Definition
from jaxrec.trace._pass import Pass

MAX_ORDER = 4
"""Up to which order of derivatives a rule that calls its own function is followed.

A forward rule commonly calls the function for its value. That inner call matters for the next
derivative only; beyond this order it is the function without its rule.
"""

Staged = tuple[ClosedJaxpr, Sequence[Any]]
"""A jaxpr and its arguments."""


def with_rule(running: Pass, eqn: JaxprEqn, values: list[Any]) -> Staged:
    """Replaces an equation with a derivative rule by one whose rule makes no calls.

    Raises:
        UnsupportedError: a backward rule makes recursive calls, a forward rule differentiates one,
            or a rule closes over values of the body.
    """
    inexact = [jnp.issubdtype(_compat.aval_of(x).dtype, jnp.inexact) for x in values]
    first = eqn.params["num_consts"]
    moved = [k for k, atom in enumerate(eqn.invars) if k >= first and inexact[k]]
    moved = [k for k in moved if not _compat.is_literal(eqn.invars[k])]
    closed = [k for k in range(first) if inexact[k] and not _compat.is_concrete(values[k])]
    stage = _backward if eqn.primitive.name == "custom_vjp_call" else _forward

    def run(*own: Any) -> list[Any]:
        def apply(*moving: Any) -> list[Any]:
            new = dict(zip(moved, moving, strict=True))
            return _compat.bind_equation(eqn, [new.get(k, x) for k, x in enumerate(values)])

        return stage(running, apply, own[: len(moved)], own[len(moved) :])

    args = [values[k] for k in (*moved, *closed)]
    staged = jax.make_jaxpr(run)(*args)
    if not all(_compat.is_concrete(x) or any(x is v for v in values) for x in staged.consts):
        raise UnsupportedError(_closure(running))
    return staged, args


def _backward(running: Pass, apply: Any, moved: Sequence[Any], closed: Sequence[Any]) -> list[Any]:
    outs, pullback = jax.vjp(apply, *moved)
    residuals, tree = jax.tree.flatten(pullback)
    with _context.entered(_Refusing(running)):
        jax.eval_shape(pullback, list(map(_cotangent, outs)))

    @jax.custom_vjp
    def attach(moved: Any, closed: Any, outs: Any, residuals: Any) -> Any:
        del moved, closed, residuals
        return outs

    def forward(moved: Any, closed: Any, outs: Any, residuals: Any) -> Any:
        del moved
        if closed:
            raise UnsupportedError(_closure(running))
        return outs, residuals

    def backward(residuals: Any, cotangents: Any) -> Any:
        return jax.tree.unflatten(tree, residuals)(cotangents), None, None, None

    attach.defvjp(forward, backward)
    return attach(tuple(moved), tuple(closed), outs, residuals)


def _forward(running: Pass, apply: Any, moved: Sequence[Any], closed: Sequence[Any]) -> list[Any]:
    outs, pushforward = jax.linearize(apply, *moved)
    residuals, tree = jax.tree.flatten(pushforward)

    @jax.custom_jvp
    def attach(moved: Any, closed: Any, outs: Any, residuals: Any) -> Any:
        del moved, closed, residuals
        return outs

    @attach.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        _, closed, outs, residuals = primals
        if closed:
            raise UnsupportedError(_closure(running))
        return outs, jax.tree.unflatten(tree, residuals)(*tangents[0])

    return attach(tuple(moved), tuple(closed), outs, residuals)


def _closure(running: Pass) -> str:
    return (
        f"{running.name} uses a custom_vjp or custom_jvp that makes recursive calls and closes "
        "over values of the body. Its rule gives derivatives with respect to its arguments alone: "
        "make those values arguments of the function (a rule returns None for integers)."
    )


def _cotangent(out: Any) -> Any:
    """A cotangent of the type that goes with a result."""
    inexact = jnp.issubdtype(out.dtype, jnp.inexact)
    return out if inexact else np.zeros(out.shape, jax.dtypes.float0)


class _Refusing(Pass):
    """The context of a backward rule, which must make no calls."""

    def __init__(self, running: Pass) -> None:
        super().__init__(running.program, running.instance, probing=False)

    def call(self, definition: Definition, args: Sequence[Any]) -> Any:
        del args
        raise UnsupportedError(
            f"{self.name} uses a custom_vjp whose backward rule calls {definition.name} "
            "recursively. Make the calls in the forward rule and hand their results to the "
            "backward rule as residuals."
        )
