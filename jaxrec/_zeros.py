"""Derivatives in which a tangent or cotangent of zero stays zero, whatever it is multiplied by.

Python derives nothing where nothing flows: of a call whose result is read for a decision alone, or
in a branch that is not taken, no derivative is computed. A wave has a row for that call all the
same, with a cotangent of zero, and zero times an infinite derivative would be NaN. So equations
that are linear in an operand give zeros for its zeros:

    mul, div            each element; of a product of two such, where either is zero
    dot_general         each sum, or what a row adds to a sum over rows; and convolutions
    triangular_solve    each system; and tridiagonal_solve
    scan, while, cond   by the equations in them

No number changes that is finite without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._dependence import Dependence
from jaxrec._equation import bind_equation, run_jaxpr, solver_of
from jaxrec._types import has_derivative
from jaxrec._values import replaced

Rows = Mapping[Any, int | None]
"""The axis of rows of values, where there are several and sums over them."""


Rule = Callable[[JaxprEqn, list[Any], int, Rows], Any]
"""The result of an equation of which one operand carries, by its number."""


class _Flow(NamedTuple):
    """A value, and whether it follows from tangents or cotangents."""

    value: Any
    carries: bool


def keeping_zeros(
    closed: ClosedJaxpr, args: Sequence[Any], carries: Sequence[bool], rows: Rows | None = None
) -> list[Any]:
    """Evaluates a jaxpr that nothing differentiates any more.

    Args:
        closed: the jaxpr.
        args: its arguments.
        carries: which of them are tangents or cotangents.
        rows: the axis of rows of its values; None where it is evaluated for each row.
    """
    return _Evaluation(rows or {}).run(closed, args, carries)


def jvp_keeping_zeros(
    fun: Callable[..., list[Any]], values: Sequence[Any], dots: Sequence[Any], *, again: bool
) -> tuple[list[Any], list[Any]]:
    """As `jax.jvp` of a function to a list of arrays; None for tangents that there are none of.

    Args:
        fun: the function.
        values: what it is evaluated at.
        dots: the tangents of those.
        again: whether it is differentiated again, in whatever direction.
    """

    def both(values: Sequence[Any], dots: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        outs, made = jax.jvp(fun, list(values), list(dots))
        return outs, [dot for x, dot in zip(outs, made, strict=True) if has_derivative(x)]

    closed, (types, _) = jax.make_jaxpr(both, return_shape=True)(values, dots)
    carries = [k >= len(values) for k in range(len(values) + len(dots))]
    made = _Evaluation({}, again).run(closed, [*values, *dots], carries)
    outs, rest = made[: len(types)], iter(made[len(types) :])
    return outs, [next(rest) if has_derivative(x) else None for x in outs]


def with_zero_tangents(fun: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The same function to a list of arrays, with such a derivative in forward mode alone."""

    @jax.custom_jvp
    def run(*args: Any) -> list[Any]:
        return fun(*args)

    def rule(args: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        values, tree = jax.tree.flatten(args)
        pairs = enumerate(jax.tree.leaves(tangents))
        moved = {k: dot for k, dot in pairs if not isinstance(dot, SymbolicZero)}

        def of_moved(*changed: Any) -> list[Any]:
            return fun(*jax.tree.unflatten(tree, replaced(values, list(moved), changed)))

        given = [values[k] for k in moved]
        outs, dots = jvp_keeping_zeros(of_moved, given, list(moved.values()), again=False)
        zeros = (SymbolicZero(jax.typeof(x).to_tangent_aval()) for x in outs)
        return outs, [z if dot is None else dot for dot, z in zip(dots, zeros, strict=True)]

    run.defjvp(rule, symbolic_zeros=True)
    return run


class _Evaluation:
    def __init__(self, rows: Rows, again: bool = False) -> None:
        self._rows, self._again, self._dependence = rows, again, Dependence()
        self._rules = _RULES_AGAIN if again else _RULES

    def run(self, closed: ClosedJaxpr, args: Sequence[Any], carries: Sequence[bool]) -> list[Any]:
        return [x.value for x in self._flows(closed, list(map(_Flow, args, carries)))]

    def _flows(self, closed: ClosedJaxpr, flows: Sequence[_Flow]) -> list[_Flow]:
        def apply(eqn: JaxprEqn, given: list[Any]) -> list[_Flow]:
            return self._apply(eqn, list(map(_flow, given)))

        return list(map(_flow, run_jaxpr(closed, flows, apply)))

    def _apply(self, eqn: JaxprEqn, flows: list[_Flow]) -> list[_Flow]:
        values, carries = [x.value for x in flows], [x.carries for x in flows]
        name = eqn.primitive.name
        evaluated = self._evaluated(eqn, flows) if any(carries) else None
        if evaluated is not None:
            return self._flows(*evaluated)
        if name == "mul" and all(carries) and not self._again:
            return [_Flow(_product(eqn, values), True)]
        if name in self._rules and carries.count(True) == 1:
            return [_Flow(self._rules[name](eqn, values, carries.index(True), self._rows), True)]
        outs = bind_equation(self._inside(eqn, carries), values)
        return list(map(_Flow, outs, self._dependence.of(eqn, carries)))

    def _evaluated(
        self, eqn: JaxprEqn, flows: list[_Flow]
    ) -> tuple[ClosedJaxpr, list[_Flow]] | None:
        """The jaxpr that an equation computes with some operands, if it says only how."""
        if self._again:  # rules of JAX's own are followed then
            inner = _compat.inlined(eqn)
            return None if inner is None else (inner, flows)
        if eqn.primitive.name == "custom_linear_solve":
            return solver_of(eqn, flows)
        inner = _compat.called(eqn)
        return None if inner is None else (inner, flows)

    def _inside(self, eqn: JaxprEqn, carries: list[bool]) -> JaxprEqn:
        """The same equation, where zeros stay in the loop or the branches that it may have."""
        inside = self._dependence.inside(eqn, carries) if any(carries) else None
        if inside is None:
            return eqn

        def changed(closed: ClosedJaxpr) -> ClosedJaxpr:
            def run(*args: Any) -> list[Any]:
                return self.run(closed, args, inside.given)

            return jax.make_jaxpr(run)(*closed.in_avals)

        made = tuple(map(changed, inside.jaxprs))
        new = made if inside.name == "branches" else made[0]
        return eqn.replace(params={**eqn.params, inside.name: new})


def _flow(x: Any) -> _Flow:
    """What a value is that none has been told of: a constant."""
    return x if isinstance(x, _Flow) else _Flow(x, False)


def _elementwise(eqn: JaxprEqn, values: list[Any], k: int, rows: Rows) -> Any:
    """A product or quotient, each element zero where that of operand `k` is."""
    del rows
    (out,) = bind_equation(eqn, values)
    if (eqn.primitive.name, k) == ("div", 1):
        return out
    return _where_factor_zero(values[k], out)


def _product(eqn: JaxprEqn, values: list[Any]) -> Any:
    """A product of two tangents, as in a second derivative, zero where either of them is."""
    (out,) = bind_equation(eqn, values)
    for x in values:
        out = _where_factor_zero(x, out)
    return out


def _where_factor_zero(factor: Any, product: Any) -> Any:
    """A product, each element zero where a factor is: of one element for all, in some axes."""
    silent = _spread(_is_zero(factor), list(range(factor.ndim)), product.shape)
    return _where_zero(silent, product)


def _solve(eqn: JaxprEqn, values: list[Any], k: int, rows: Rows) -> Any:
    """Solutions of linear systems, each zero where the right side is, which is the last operand."""
    del rows
    (out,) = bind_equation(eqn, values)
    if k != len(values) - 1:
        return out
    silent = lax.reduce_and(_is_zero(values[k]), (out.ndim - 2, out.ndim - 1))
    return _where_zero(_spread(silent, list(range(out.ndim - 2)), out.shape), out)


def _dot_general(eqn: JaxprEqn, values: list[Any], k: int, rows: Rows) -> Any:
    """Sums of products, each zero where all that operand `k` adds to it is."""
    (contracted, batch) = eqn.params["dimension_numbers"]
    zero, other = _is_zero(values[k]), 1 - k
    row = rows.get(eqn.invars[k])
    if row in contracted[k]:
        axis = contracted[other][contracted[k].index(row)]
        silent = _silent_rows(zero, row, values[other], axis)
        values[other] = _where_zero(silent, values[other])
        return bind_equation(eqn, values)[0]
    (out,) = bind_equation(eqn, values)
    summed = {*contracted[k], *batch[k]}
    free = [axis for axis in range(zero.ndim) if axis not in summed]
    first = len(batch[k]) if k == 0 else out.ndim - len(free)
    places = {axis: n for n, axis in enumerate(batch[k])}
    places.update((axis, first + n) for n, axis in enumerate(free))
    silent = lax.reduce_and(zero, contracted[k])
    axes = [places[axis] for axis in sorted(places)]
    return _where_zero(_spread(silent, axes, out.shape), out)


def _convolve(eqn: JaxprEqn, values: list[Any], k: int, rows: Rows) -> Any:
    """A convolution, each row zero where that of operand `k` is; or what it adds to a sum."""
    zero, other = _is_zero(values[k]), 1 - k
    row, of_other, of_out = (rows.get(v) for v in (eqn.invars[k], eqn.invars[other], *eqn.outvars))
    if row is not None and of_out is None:
        if of_other is not None:
            values[other] = _finite(values[other], _silent_rows(zero, row, values[other], of_other))
        return bind_equation(eqn, values)[0]
    (out,) = bind_equation(eqn, values)
    return _finite(out, _silent_rows(zero, row, out, None if row is None else of_out))


_RULES: dict[str, Rule] = {
    "mul": _elementwise,
    "div": _elementwise,
    "dot_general": _dot_general,
    "conv_general_dilated": _convolve,
    "triangular_solve": _solve,
    "tridiagonal_solve": _solve,
}
"""By name of the operation."""


def _elementwise_again(eqn: JaxprEqn, values: list[Any], k: int, rows: Rows) -> Any:
    """The same as something that depends on both operands: of these the other one is changed."""
    del rows
    if (eqn.primitive.name, k) == ("div", 1):
        return bind_equation(eqn, values)[0]
    other = values[1 - k]
    if eqn.primitive.name == "mul":
        values[1 - k] = jnp.where((values[k] == 0) & ~jnp.isfinite(other), 0, other)
    else:
        values[1] = jnp.where((values[0] == 0) & ((other == 0) | jnp.isnan(other)), jnp.inf, other)
    return bind_equation(eqn, values)[0]


_RULES_AGAIN: dict[str, Rule] = {"mul": _elementwise_again, "div": _elementwise_again}
"""The same for what is differentiated again."""


def _is_zero(x: Any) -> Any:
    return lax.eq(x, lax.full_like(x, 0))


def _where_zero(silent: Any, x: Any) -> Any:
    return lax.select(silent, lax.full_like(x, 0), x)


def _finite(x: Any, silent: Any) -> Any:
    """Finite numbers as they are, whatever is said of where rows of a convolution are."""
    return _where_zero(silent & ~jnp.isfinite(x), x)


def _silent_rows(zero: Any, row: int | None, x: Any, axis: int | None) -> Any:
    """Which elements are in rows where all of another array is zero; in all, if it has no rows."""
    silent = lax.reduce_and(zero, [k for k in range(zero.ndim) if k != row])
    return _spread(silent, [] if axis is None else [axis], x.shape)


def _spread(x: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
    """An array whose axes are some of a shape, in that shape."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return lax.broadcast_in_dim(lax.transpose(x, order), shape, sorted(axes))
