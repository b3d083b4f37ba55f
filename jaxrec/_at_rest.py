"""Marks of values that have no derivative when one is taken next, or one after that.

A tape has rows that move and rows that do not, and once one row has a tangent JAX gives one to all.
It would then apply the derivative rule of a function to what rests, where the next derivative, by
something else, is that of the rule. A mark stops the tangent of what rests, in a way that JAX can
tell, and only once: a function that takes a derivative of marked code is `counted`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Primitive, jaxpr_as_fun

from jaxrec import _compat
from jaxrec._order import zero_tangent

at_rest_p = Primitive("at_rest")
at_rest_p.multiple_results = True


def at_rest(x: Any, order: int) -> Any:
    """A value that has no derivative when the one of an order, from 1 on, is taken."""
    return at_rest_p.bind(x, order=order)[0]


def counted(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function of arrays that takes a derivative; the marks left are of those that follow."""

    def run(*args: Any) -> Any:
        closed, types = jax.make_jaxpr(fun, return_shape=True)(*args)
        jaxpr = _Counting().jaxpr(closed.jaxpr)
        made = jaxpr_as_fun(ClosedJaxpr(jaxpr, closed.consts))(*jax.tree.leaves(args))
        return jax.tree.unflatten(jax.tree.structure(types), made)

    return run


class _Counting:
    """Makes jaxprs whose marks are of one order less; those of order one are gone."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Any, Any]] = {}  # what several equations call stays one

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        known = self._made.get(id(jaxpr))
        if known is not None:
            return known[1]
        names: dict[Any, Any] = {}
        eqns = [self._equation(eqn, names) for eqn in jaxpr.eqns]
        outs = [_now(atom, names) for atom in jaxpr.outvars]
        made = jaxpr.replace(eqns=[eqn for eqn in eqns if eqn is not None], outvars=outs)
        self._made[id(jaxpr)] = jaxpr, made
        return made

    def _equation(self, eqn: JaxprEqn, names: dict[Any, Any]) -> JaxprEqn | None:
        inputs = [_now(atom, names) for atom in eqn.invars]
        if eqn.primitive is not at_rest_p:
            return eqn.replace(invars=inputs, params=self._params(eqn.params))
        if eqn.params["order"] == 1:
            names.update(zip(eqn.outvars, inputs, strict=True))
            return None
        return eqn.replace(invars=inputs, params={"order": eqn.params["order"] - 1})

    def _params(self, value: Any) -> Any:
        if isinstance(value, Jaxpr):
            return self.jaxpr(value)
        if isinstance(value, ClosedJaxpr):
            return ClosedJaxpr(self.jaxpr(value.jaxpr), value.consts)
        if isinstance(value, dict):
            return {name: self._params(x) for name, x in value.items()}
        return tuple(map(self._params, value)) if type(value) is tuple else value


def _now(atom: Any, names: dict[Any, Any]) -> Any:
    return atom if _compat.is_literal(atom) else names.get(atom, atom)


def _same(x: Any, *, order: int) -> list[Any]:
    del order
    return [x]


def _jvp(primals: Any, tangents: Any, *, order: int) -> Any:
    if order == 1:
        return list(primals), list(map(zero_tangent, primals))
    return at_rest_p.bind(*primals, order=order), list(tangents)


def _batch(operands: Any, dims: Any, *, order: int) -> Any:
    return at_rest_p.bind(*operands, order=order), dims


at_rest_p.def_impl(_same)
at_rest_p.def_abstract_eval(_same)
_compat.register_jvp(at_rest_p, _jvp)
_compat.register_batching(at_rest_p, _batch)
_compat.register_lowering(at_rest_p, _same)
