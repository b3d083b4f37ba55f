"""Call paths as values: two words that tell every call of an invocation from every other.

A function that asks for its path (`jaxrec.call_key`), directly or through a function that it calls,
gets two more arguments: a hash of the call sites from the root to the call. Each call site mixes
its number into the words of the caller. They are scalars of the control plane, so the scheduler
computes them with the calls, and they are the same however the calls are scheduled.

For a given site the mixing is a bijection of the 64 bits (a Feistel network), so calls from one
site have one path only if their callers do; paths through different sites collide by chance only.

Source: the multiplications and shifts are the finaliser of MurmurHash3 (A. Appleby, 2011).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec._jaxprs import within
from jaxrec.trace._call import call_path, call_path_p, calls_in, rec_call_p
from jaxrec.trace._evaluate import evaluate
from jaxrec.trace._instance import Instance

ROOT = (np.uint32(0x243F6A88), np.uint32(0x85A308D3))
"""The path of a root."""

NAMES = ("call_path[0]", "call_path[1]")
"""Names of the arguments that carry the path."""

_SITE = 0x9E3779B9

Path = tuple[Any, Any]


def add_paths(instances: Sequence[Instance]) -> bool:
    """Gives their call path to the functions that need it; whether the first one does."""
    need = {x for x in instances if any(map(_asks, _jaxpr(x).eqns))}
    while grown := {x for x in instances if x not in need and not need.isdisjoint(_callees(x))}:
        need |= grown
    for instance in need:
        instance.jaxpr = _with_path(_jaxpr(instance), need)
        instance.names = (*instance.names, *NAMES)
    return bool(instances) and instances[0] in need


def _jaxpr(instance: Instance) -> ClosedJaxpr:
    assert instance.jaxpr is not None
    return instance.jaxpr


def _callees(instance: Instance) -> set[Instance]:
    return {callee for eqn in _jaxpr(instance).eqns for callee in calls_in(eqn)}


def _asks(eqn: JaxprEqn) -> bool:
    return any(inner.primitive is call_path_p for inner in within(eqn))


def _with_path(body: ClosedJaxpr, need: set[Instance]) -> ClosedJaxpr:
    """A body with two more arguments, the path of the call."""

    def run(*args: Any) -> list[Any]:
        *own, high, low = args
        sites = iter(range(2**31))

        def rule(eqn: JaxprEqn, values: list[Any]) -> list[Any] | None:
            if eqn.primitive is call_path_p:
                return list(functools.reduce(_mix, map(_inner, eqn.params["within"]), (high, low)))
            if eqn.primitive is not rec_call_p:
                return None
            site = next(sites)
            added = _mix((high, low), site) if eqn.params["callee"] in need else ()
            return rec_call_p.bind(*values, *added, **eqn.params)

        return evaluate(rule, body, own)

    types = [*body.in_avals, *(jax.typeof(word) for word in ROOT)]
    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in types))


def path_of_derivative(number: int) -> Path:
    """The path of the root of a recursion that a body differentiates, which has a number there."""
    high, low = call_path()
    return _mix((high, low), 0x40000000 + number)


def _inner(number: int) -> int:
    """The number of a loop or an iteration inside a frame, apart from those of call sites."""
    return 0x80000000 + number


def _mix(path: Path, site: int) -> Path:
    """The path of what is at a site of the call with a path."""
    high, low = path
    number = np.uint32((site + 1) * _SITE & 0xFFFFFFFF)
    high = high ^ _scramble(low + number)
    low = low ^ _scramble(high + np.uint32(_SITE))
    return high ^ _scramble(low), low


def _scramble(word: Any) -> Any:
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        word = (word ^ (word >> np.uint32(shift))) * np.uint32(factor)
    return word ^ (word >> np.uint32(16))


def fold_path(key: Any, path: Path) -> Any:
    """A random key for a path."""
    return jax.random.fold_in(jax.random.fold_in(key, path[0]), path[1])
