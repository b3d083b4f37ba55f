"""The equations of a body, evaluated again with those that make calls replaced."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._equation import Rule, bind_equation, run_jaxpr
from jaxrec.trace._call import branches_of, call_path_p, makes_calls, rec_call_p, rec_switch

Plain = Callable[[JaxprEqn, list[Any]], list[Any]]


def is_plain(body: ClosedJaxpr) -> bool:
    """Whether calls stand only where the graph has a place for them: in choices, in no loop."""
    return all(map(_is_plain, body.eqns))


def _is_plain(eqn: JaxprEqn) -> bool:
    if not makes_calls(eqn) or eqn.primitive in (rec_call_p, call_path_p):
        return True
    inner = [b for b, _ in branches_of(eqn, eqn.invars)] or [_compat.inlined(eqn)]
    return all(b is not None and is_plain(b) for b in inner)


def evaluate(
    rule: Rule, body: ClosedJaxpr, args: Sequence[Any], plain: Plain = bind_equation
) -> list[Any]:
    """Evaluates a jaxpr on tracers, the equations that make calls by a rule.

    Args:
        rule: gives the results of an equation that makes calls, or None if its inner jaxprs are to
            be evaluated, which there are for choices and for equations that only call a jaxpr.
        body: the jaxpr.
        args: its arguments.
        plain: evaluates the equations that make no calls.
    """
    return run_jaxpr(body, args, functools.partial(_equation, rule, plain))


def _equation(rule: Rule, plain: Plain, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    if not makes_calls(eqn):
        return plain(eqn, values)
    outs = rule(eqn, values)
    if outs is not None:
        return outs
    branches = branches_of(eqn, values)
    if branches:
        return choose(values[0], [lambda b=b: evaluate(rule, *b, plain) for b in branches])
    inner = _compat.inlined(eqn)
    if inner is None:
        return bind_equation(eqn, values)
    return evaluate(rule, inner, values, plain)


def choose(index: Any, branches: Sequence[Callable[[], list[Any]]]) -> list[Any]:
    """Stages a choice between functions without arguments."""
    return rec_switch(index, [jax.make_jaxpr(branch)() for branch in branches])
