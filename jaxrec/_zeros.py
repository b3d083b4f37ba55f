"""Derivatives in which a tangent or cotangent of zero stays zero, whatever it is multiplied by.

Python derives nothing where nothing flows: of a call whose result is read for a decision alone, or
in a branch that is not taken, no derivative is computed. A wave has a row for that call all the
same, with a cotangent of zero, and zero times an infinite derivative would be NaN. So equations
that are linear in an operand give zeros for its zeros:

    mul, div            each element
    dot_general         each sum, or what a row adds to a sum over rows
    triangular_solve    each system
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
    return [x.value for x in _run(closed, list(map(_Flow, args, carries)), rows or {})]


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
            def of_moved(*own: Any) -> list[Any]:
                return fun(
                    *jax.tree.unflatten(tree, replaced(given[: len(values)], list(moved), own))
                )

            outs, dots = jax.jvp(of_moved, [given[k] for k in moved], list(given[len(values) :]))
            return [*outs, *(dot for x, dot in zip(outs, dots, strict=True) if has_derivative(x))]

        given = [*values, *moved.values()]
        closed = jax.make_jaxpr(both)(*given)
        made = iter(keeping_zeros(closed, given, [k >= len(values) for k in range(len(given))]))
        outs = [next(made) for _ in jax.eval_shape(fun, *args)]
        zeros = (SymbolicZero(jax.typeof(x).to_tangent_aval()) for x in outs)
        dots = [next(made) if has_derivative(x) else z for x, z in zip(outs, zeros, strict=True)]
        return outs, dots

    run.defjvp(rule, symbolic_zeros=True)
    return run


def _run(closed: ClosedJaxpr, flows: Sequence[_Flow], rows: Rows) -> list[_Flow]:
    def apply(eqn: JaxprEqn, given: list[Any]) -> list[_Flow]:
        return _apply(eqn, list(map(_flow, given)), rows)

    return list(map(_flow, run_jaxpr(closed, flows, apply)))


def _flow(x: Any) -> _Flow:
    """What a value is that none has been told of: a constant."""
    return x if isinstance(x, _Flow) else _Flow(x, False)


def _apply(eqn: JaxprEqn, flows: list[_Flow], rows: Rows) -> list[_Flow]:
    values, carries = [x.value for x in flows], [x.carries for x in flows]
    name = eqn.primitive.name
    if not any(carries):
        return list(map(_flow, bind_equation(eqn, values)))
    called = _compat.called(eqn)
    if called is not None:
        return _run(called, flows, rows)
    if name == "custom_linear_solve":
        return _run(eqn.params["jaxprs"].solve, _of_solution(eqn, flows), rows)
    if name in _INNER:
        eqn, carried = _INNER[name](eqn, carries)
        return list(map(_Flow, bind_equation(eqn, values), carried))
    if name in _RULES and carries.count(True) == 1:
        k = carries.index(True)
        return [_Flow(_RULES[name](eqn, values, k, rows.get(eqn.invars[k])), True)]
    return [_Flow(x, True) for x in bind_equation(eqn, values)]


def _of_solution(eqn: JaxprEqn, flows: list[_Flow]) -> list[_Flow]:
    """What solves a linear system: operands of its functions come first, then the right side."""
    sizes = eqn.params["const_lengths"]
    first = sizes.matvec + sizes.vecmat
    return [*flows[first : first + sizes.solve], *flows[sum(sizes) :]]


def _elementwise(eqn: JaxprEqn, values: list[Any], k: int, rows: int | None) -> Any:
    """A product or quotient, each element zero where that of operand `k` is."""
    del rows
    (out,) = bind_equation(eqn, values)
    if (eqn.primitive.name, k) == ("div", 1):
        return out
    return _where_zero(_is_zero(values[k]), out)


def _triangular_solve(eqn: JaxprEqn, values: list[Any], k: int, rows: int | None) -> Any:
    """Solutions, each zero where the right side is."""
    del rows
    (out,) = bind_equation(eqn, values)
    if k == 0:
        return out
    silent = lax.reduce_and(_is_zero(values[1]), (out.ndim - 2, out.ndim - 1))
    return _where_zero(_spread(silent, list(range(out.ndim - 2)), out.shape), out)


def _dot_general(eqn: JaxprEqn, values: list[Any], k: int, rows: int | None) -> Any:
    """Sums of products, each zero where all that operand `k` adds to it is."""
    (contracted, batch) = eqn.params["dimension_numbers"]
    zero, other = _is_zero(values[k]), 1 - k
    if rows in contracted[k]:
        silent = lax.reduce_and(zero, [axis for axis in range(zero.ndim) if axis != rows])
        axis = contracted[other][contracted[k].index(rows)]
        values = list(values)
        values[other] = _where_zero(_spread(silent, [axis], values[other].shape), values[other])
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


_RULES: dict[str, Callable[[JaxprEqn, list[Any], int, int | None], Any]] = {
    "mul": _elementwise,
    "div": _elementwise,
    "dot_general": _dot_general,
    "triangular_solve": _triangular_solve,
}
"""The result of an operation where one operand carries, which may have an axis of rows."""


def _is_zero(x: Any) -> Any:
    return lax.eq(x, lax.full_like(x, 0))


def _where_zero(silent: Any, x: Any) -> Any:
    return lax.select(silent, lax.full_like(x, 0), x)


def _spread(x: Any, axes: Sequence[int], shape: Sequence[int]) -> Any:
    """An array whose axes are some of a shape, in that shape."""
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return lax.broadcast_in_dim(lax.transpose(x, order), shape, sorted(axes))


def _scan(eqn: JaxprEqn, carries: list[bool]) -> tuple[JaxprEqn, list[bool]]:
    body, first = eqn.params["jaxpr"], eqn.params["num_consts"]
    given, carried = _turns(body, carries, first, eqn.params["num_carry"])
    return _with(eqn, jaxpr=_inner(body, given)), carried


def _while(eqn: JaxprEqn, carries: list[bool]) -> tuple[JaxprEqn, list[bool]]:
    body, first = eqn.params["body_jaxpr"], eqn.params["body_nconsts"]
    own = carries[eqn.params["cond_nconsts"] :]
    given, carried = _turns(body, own, first, len(own) - first)
    return _with(eqn, body_jaxpr=_inner(body, given)), carried


def _cond(eqn: JaxprEqn, carries: list[bool]) -> tuple[JaxprEqn, list[bool]]:
    branches = eqn.params["branches"]
    by_branch = [_carried(branch, carries[1:]) for branch in branches]
    made = tuple(_inner(branch, carries[1:]) for branch in branches)
    return _with(eqn, branches=made), list(map(any, zip(*by_branch, strict=True)))


_INNER: dict[str, Callable[[JaxprEqn, list[bool]], tuple[JaxprEqn, list[bool]]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}
"""Equations with jaxprs: the same where zeros stay in those, and which results carry."""


def _with(eqn: JaxprEqn, **params: Any) -> JaxprEqn:
    return eqn.replace(params={**eqn.params, **params})


def _inner(closed: ClosedJaxpr, carries: Sequence[bool]) -> ClosedJaxpr:
    def run(*args: Any) -> list[Any]:
        return keeping_zeros(closed, args, carries)

    return jax.make_jaxpr(run)(*closed.in_avals)


def _turns(
    body: ClosedJaxpr, given: Sequence[bool], first: int, count: int
) -> tuple[list[bool], list[bool]]:
    """Which operands and results of a loop's body carry in some turn; `count` go around."""
    given, last = list(given), first + count
    while True:
        carried = _carried(body, given)
        around = [a or b for a, b in zip(given[first:last], carried, strict=False)]
        if around == given[first:last]:
            return given, carried
        given[first:last] = around


def _carried(closed: ClosedJaxpr, carries: Sequence[bool]) -> list[bool]:
    """Which results of a jaxpr carry."""
    found: list[bool] = []

    def run(*args: Any) -> list[Any]:
        flows = _run(closed, list(map(_Flow, args, carries)), {})
        found[:] = [x.carries for x in flows]
        return [x.value for x in flows]

    jax.make_jaxpr(run)(*closed.in_avals)
    return found
