"""Derivatives in which a tangent or cotangent of zero stays zero, whatever it is multiplied by.

Python derives nothing where nothing flows: of a call whose result is read for a decision alone, or
in a branch that is not taken, no derivative is computed. A wave has a row for that call all the
same, with a cotangent of zero, and zero times an infinite derivative would be NaN. So equations
that are linear in an operand give zeros for its zeros:

    mul, div            each element
    dot_general         each sum, or what a row adds to a sum over rows; and convolutions
    triangular_solve    each system; and tridiagonal_solve
    scan, while, cond   by the equations in them

No number changes that is finite without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._dependence import Dependence
from jaxrec._equation import bind_equation, run_jaxpr
from jaxrec._types import has_derivative
from jaxrec._values import replaced

Rows = Mapping[Any, int | None]
"""The axis of rows of values, where there are several and sums over them."""


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


def with_zero_tangents(fun: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The same function to a list of arrays, with such a derivative in forward mode alone."""

    @jax.custom_jvp
    def run(*args: Any) -> list[Any]:
        return fun(*args)

    def rule(args: Any, tangents: Any) -> tuple[list[Any], list[Any]]:
        values, tree = jax.tree.flatten(args)
        pairs = enumerate(jax.tree.leaves(tangents))
        moved = {k: dot for k, dot in pairs if not isinstance(dot, SymbolicZero)}

        def both(*given: Any) -> list[Any]:
            own, dots = given[: len(values)], list(given[len(values) :])

            def of_moved(*changed: Any) -> list[Any]:
                return fun(*jax.tree.unflatten(tree, replaced(own, list(moved), changed)))

            outs, made = jax.jvp(of_moved, [own[k] for k in moved], dots)
            return [*outs, *(dot for x, dot in zip(outs, made, strict=True) if has_derivative(x))]

        given = [*values, *moved.values()]
        closed = jax.make_jaxpr(both)(*given)
        made = iter(keeping_zeros(closed, given, [k >= len(values) for k in range(len(given))]))
        outs = [next(made) for _ in jax.eval_shape(fun, *args)]
        zeros = (SymbolicZero(jax.typeof(x).to_tangent_aval()) for x in outs)
        dots = [next(made) if has_derivative(x) else z for x, z in zip(outs, zeros, strict=True)]
        return outs, dots

    run.defjvp(rule, symbolic_zeros=True)
    return run


class _Evaluation:
    def __init__(self, rows: Rows) -> None:
        self._rows, self._dependence = rows, Dependence()

    def run(self, closed: ClosedJaxpr, args: Sequence[Any], carries: Sequence[bool]) -> list[Any]:
        return [x.value for x in self._flows(closed, list(map(_Flow, args, carries)))]

    def _flows(self, closed: ClosedJaxpr, flows: Sequence[_Flow]) -> list[_Flow]:
        def apply(eqn: JaxprEqn, given: list[Any]) -> list[_Flow]:
            return self._apply(eqn, list(map(_flow, given)))

        return list(map(_flow, run_jaxpr(closed, flows, apply)))

    def _apply(self, eqn: JaxprEqn, flows: list[_Flow]) -> list[_Flow]:
        values, carries = [x.value for x in flows], [x.carries for x in flows]
        name, called = eqn.primitive.name, _compat.called(eqn)
        if any(carries) and called is not None:
            return self._flows(called, flows)
        if any(carries) and name == "custom_linear_solve":
            return self._flows(eqn.params["jaxprs"].solve, _of_solution(eqn, flows))
        if name in _RULES and carries.count(True) == 1:
            k = carries.index(True)
            return [_Flow(_RULES[name](eqn, values, k, self._rows), True)]
        outs = bind_equation(self._inside(eqn, carries), values)
        return list(map(_Flow, outs, self._dependence.of(eqn, carries)))

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


def _of_solution(eqn: JaxprEqn, flows: list[_Flow]) -> list[_Flow]:
    """What solves a linear system: operands of its functions come first, then the right side."""
    sizes = eqn.params["const_lengths"]
    first = sizes.matvec + sizes.vecmat
    return [*flows[first : first + sizes.solve], *flows[sum(sizes) :]]


def _elementwise(eqn: JaxprEqn, values: list[Any], k: int, rows: Rows) -> Any:
    """A product or quotient, each element zero where that of operand `k` is."""
    del rows
    (out,) = bind_equation(eqn, values)
    if (eqn.primitive.name, k) == ("div", 1):
        return out
    zero = _is_zero(values[k])  # JAX leaves axes of one element to be broadcast
    return _where_zero(_spread(zero, list(range(zero.ndim)), out.shape), out)


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
        values[other] = _where_row_zero(zero, row, values[other], axis)
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
    if row is not None and of_out is None and of_other is not None:
        values[other] = _where_row_zero(zero, row, values[other], of_other)
    (out,) = bind_equation(eqn, values)
    if row is None or of_out is not None:
        out = _where_row_zero(zero, row, out, of_out)
    return out


_RULES: dict[str, Callable[[JaxprEqn, list[Any], int, Rows], Any]] = {
    "mul": _elementwise,
    "div": _elementwise,
    "dot_general": _dot_general,
    "conv_general_dilated": _convolve,
    "triangular_solve": _solve,
    "tridiagonal_solve": _solve,
}
"""The result of an operation where one operand carries, which may have an axis of rows."""


def _is_zero(x: Any) -> Any:
    return lax.eq(x, lax.full_like(x, 0))


def _where_zero(silent: Any, x: Any) -> Any:
    return lax.select(silent, lax.full_like(x, 0), x)


def _where_row_zero(zero: Any, row: int | None, x: Any, axis: int | None) -> Any:
    """Zeros in the rows of an array where those of another are; of all where there are no rows."""
    silent = lax.reduce_and(zero, [k for k in range(zero.ndim) if k != row])
    return _where_zero(_spread(silent, [] if axis is None else [axis], x.shape), x)


def _spread(x: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
    """An array whose axes are some of a shape, in that shape."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return lax.broadcast_in_dim(lax.transpose(x, order), shape, sorted(axes))
