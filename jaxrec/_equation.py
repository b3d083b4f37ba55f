"""Evaluating one equation of a jaxpr again, with what JAX does where it traces.

Bodies are traced once, and their equations are bound again in cells, in derivatives of cells and in
batches of rows. `bind_equation` is the one place where that happens.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal

from jaxrec import _compat
from jaxrec._dependence import Dependence

Rule = Callable[[JaxprEqn, list[Any]], list[Any] | None]
"""The results of an equation on values for its operands, or None if they are left to others."""


def bind_equation(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """Evaluates one equation on values for all its operands, literals included.

    What JAX does where it traces has been done: operands that vary over some mesh axes of
    `shard_map` are joined here by those that do not, since the equation may be from outside of it.
    """
    # A literal keeps its weak type, which an array of its value would not have.
    pairs = zip(eqn.invars, values, strict=True)
    operands = [v.val if isinstance(v, Literal) else x for v, x in pairs]
    operands = varying_together(operands)
    if eqn.primitive.name == "clamp" and not _compat.aval_of(operands[1]).shape:
        operands = _mapped_together(operands)  # JAX batches or differentiates some mixtures wrongly
    if eqn.primitive.name == "custom_vjp_call":
        if _gives_the_same(eqn, operands):
            operands = _mapped_together(operands)
        if eqn.params["symbolic_zeros"] and not _asserts_zeros(eqn):
            operands = _perturbed_together(operands)
    params = eqn.primitive.get_bind_params(eqn.params)
    if params.get("vmap_method", "") is None:
        params["vmap_method"] = "sequential"  # once a call, as the body says; waves are our affair
    with _compat.written_at(eqn), _compat.traced_under(eqn):
        outs = eqn.primitive.bind(*operands, **params)
    return list(outs) if eqn.primitive.multiple_results else [outs]


def varying_together(operands: Sequence[Any]) -> list[Any]:
    """Operands that all vary over the mesh axes of `shard_map` that one of them varies over."""
    vma = _compat.common_vma([_compat.aval_of(x) for x in operands])
    if not vma:
        return list(operands)
    return [_compat.vary_over(x, vma) for x in operands]


def run_jaxpr(
    closed: ClosedJaxpr,
    args: Sequence[Any],
    apply: Callable[[JaxprEqn, list[Any]], Sequence[Any]],
) -> list[Any]:
    """Evaluates a jaxpr, each equation by a function of it and the values of its operands."""
    env: dict[Any, Any] = dict(zip(closed.jaxpr.constvars, closed.consts, strict=True))
    env.update(zip(closed.jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if _compat.is_literal(atom) else env[atom]

    for eqn in closed.jaxpr.eqns:
        outs = apply(eqn, list(map(read, eqn.invars)))
        env.update(zip(eqn.outvars, outs, strict=True))
    return list(map(read, closed.jaxpr.outvars))


def solver_of(eqn: JaxprEqn, values: Sequence[Any]) -> tuple[ClosedJaxpr, list[Any]]:
    """What solves a `custom_linear_solve`, and its arguments among those of the equation.

    These are what its functions close over, then the right side.
    """
    sizes = eqn.params["const_lengths"]
    first = sizes.matvec + sizes.vecmat
    own = [*values[first : first + sizes.solve], *values[sum(sizes) :]]
    return eqn.params["jaxprs"].solve, own


def run_inlined(closed: ClosedJaxpr, args: Sequence[Any], rule: Rule) -> list[Any]:
    """Evaluates a jaxpr without the calls in it: what they call stands in their place.

    Args:
        closed: the jaxpr.
        args: its arguments.
        rule: gives the results of an equation, or None where it is bound as it is.
    """

    def apply(eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        outs = rule(eqn, values)
        if outs is not None:
            return outs
        inner = _compat.inlined(eqn)
        return bind_equation(eqn, values) if inner is None else run_inlined(inner, values, rule)

    return run_jaxpr(closed, args, apply)


def _gives_the_same(eqn: JaxprEqn, values: Sequence[Any]) -> bool:
    """Whether a result of a `custom_vjp` is the same for all examples, and another one is not.

    JAX gives the rule the cotangent of such a result once for each example, and adds them up.
    """
    closed, mapped = eqn.params["call_jaxpr"], list(map(_compat.mapped_by, values))
    axes, results = frozenset().union(*mapped), Dependence().results
    return not all(all(results(closed, [axis in m for m in mapped])) for axis in axes)


def _mapped_together(values: Sequence[Any]) -> list[Any]:
    """Values that every `vmap` maps over all of, if over one."""
    mapped = list(map(_compat.mapped_by, values))
    axes = frozenset().union(*mapped)
    if not axes:
        return list(values)
    # Of each example; what it is does not matter.
    moved = [jnp.any(x == x) for x, own in zip(values, mapped, strict=True) if own]
    holds = functools.reduce(jnp.logical_and, moved)
    pairs = zip(values, mapped, strict=True)
    return [x if own == axes else jnp.where(holds, x, x) for x, own in pairs]


def _asserts_zeros(eqn: JaxprEqn) -> bool:
    """Whether the rule of a `custom_vjp` may assert that some operands have no tangent.

    That is so of rules made by equinox, diffrax' among them. Those have to keep the same residuals
    whatever has one.
    """
    return str(eqn.params["bwd"].f.__module__).partition(".")[0] == "equinox"


def _perturbed_together(values: Sequence[Any]) -> list[Any]:
    """Values that all have a tangent, perhaps of zeros, where one of them has.

    A rule with `symbolic_zeros` may return other residuals where other operands are perturbed. JAX
    keeps how those of the last time are structured, so an equation that is differentiated by one
    operand and then by another would take residuals for those of the other.
    """

    @jax.custom_jvp
    def together(values: list[Any]) -> list[Any]:
        return values

    together.defjvp(lambda primals, tangents: (*primals, *tangents))
    return together(list(values))
