"""Loops as recursive functions.

A `while` calls itself once an iteration, in tail position. So does a `scan` that carries indices on
which its calls may depend. A `scan` that carries nothing (`jax.lax.map`), or only values that no
call is chosen by, is halved instead: iterations that do not depend on one another then run at the
same time, and what an iteration yields is copied `log n` times instead of `n` times.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._equation import bind_equation
from jaxrec._order import MAX_ORDER, has_rule, inactive
from jaxrec.trace._call import call_path_p, rec_call_p
from jaxrec.trace._derivatives import Rule
from jaxrec.trace._evaluate import choose, evaluate, is_plain
from jaxrec.trace._scan import Scan, counters, leaf_size, may_carry_control
from jaxrec.trace._scope import Helper, Scope, Shape, packed_shape


def without_loops(scope_of: Callable[[Sequence[Any]], Scope], body: ClosedJaxpr) -> ClosedJaxpr:
    """A body in which no loop and no derivative rule makes recursive calls.

    Args:
        scope_of: the frame of the body's arguments.
        body: a traced body.
    """

    def run(*args: Any) -> list[Any]:
        return _run(scope_of(args), body, args)

    if is_plain(body):
        return body
    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in body.in_avals))


def _run(scope: Scope, body: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
    def rule(eqn: JaxprEqn, values: list[Any]) -> list[Any] | None:
        if eqn.primitive is rec_call_p:
            return _call(scope, eqn, values)
        if eqn.primitive is call_path_p:
            return call_path_p.bind(within=(*scope.within, *eqn.params["within"]))
        replaced = _REPLACED.get(eqn.primitive.name)
        return None if replaced is None else replaced(scope, eqn, values)

    def plain(eqn: JaxprEqn, values: list[Any]) -> list[Any]:
        def run(*given: Any) -> list[Any]:
            return bind_equation(eqn, given)

        return inactive(run, scope.rules)(*values) if has_rule(eqn) else run(*values)

    return evaluate(rule, body, args, plain)


def _call(scope: Scope, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    """A recursive call; inside a derivative rule, one of a function without that derivative."""
    callee = eqn.params["callee"]
    if callee.definition.order == scope.order:
        return bind_equation(eqn, values)
    count = len(callee.args.avals)
    args = jax.tree.unflatten(callee.args.tree, values[:count])
    definition = dataclasses.replace(callee.definition, order=0)
    captured = list(zip(callee.captures, values[count:], strict=False))
    return jax.tree.leaves(scope.running.call(definition, args, scope.rules, captured))


def _while(scope: Scope, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    params = eqn.params
    test, body = params["cond_jaxpr"], params["body_jaxpr"]
    first = params["cond_nconsts"]
    fixed = first + params["body_nconsts"]

    def run(scope: Scope, values: list[Any]) -> list[Any]:
        consts, carry = values[:fixed], values[fixed:]

        def again() -> list[Any]:
            carried = _run(scope, body, [*consts[first:], *carry])
            return loop.call(scope, [*consts, *carried])

        (going,) = _run(scope, test, [*consts[:first], *carry])
        return choose(jax.lax.convert_element_type(going, np.int32), [lambda: carry, again])

    out: list[Any] = [v.aval for v in eqn.outvars]
    loop = Helper(
        name=f"{scope.running.name}.while",
        body=run,
        names=_names(constant=fixed, carry=len(out)),
        shapes=[*map(scope.packed_shape, values[:fixed]), *map(packed_shape, out)],
        out=out,
    )
    return loop.call(scope, values)


def _names(**counts: int) -> list[str]:
    return [f"{kind}[{k}]" for kind, count in counts.items() for k in range(count)]


def _scan(scope: Scope, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    params = eqn.params
    fixed, carried = _compat.scan_counts(eqn)
    scan = Scan(
        body=params["jaxpr"],
        length=params["length"],
        reverse=params["reverse"],
        fixed=fixed,
        carried=carried,
        out=[v.aval for v in eqn.outvars],
    )
    if scan.length == 0:
        _, init, _ = scan.parts(values)
        return [*init, *(jnp.zeros(a.shape, a.dtype) for a in scan.out[scan.carried :])]
    if may_carry_control(scan):
        return _step_by_step(scope, scan, values)
    return _Halves(scope, scan, values).run(scope, values)


def _step_by_step(scope: Scope, scan: Scan, values: list[Any]) -> list[Any]:
    """A scan as a function that calls itself once an iteration, with the yields so far."""
    carried = scan.carried

    def run(scope: Scope, values: list[Any]) -> list[Any]:
        step, rest = values[0], values[1:]
        consts, carry, more = scan.parts(rest)
        xs, ys = more[: scan.read], more[scan.read :]

        def again() -> list[Any]:
            place = scan.place(step)
            x = [jax.lax.dynamic_index_in_dim(a, place, keepdims=False) for a in xs]
            outs = _run(scope, scan.body, [*consts, *carry, *x])
            put = jax.lax.dynamic_update_index_in_dim
            grown = [put(a, y, place, 0) for a, y in zip(ys, outs[carried:], strict=True)]
            return loop.call(scope, [step + 1, *consts, *outs[:carried], *xs, *grown])

        going = jax.lax.convert_element_type(step < scan.length, np.int32)
        return choose(going, [lambda: [*carry, *ys], again])

    yields = scan.out[carried:]
    passed = scope.packed_shape
    consts, init, xs = scan.parts(values)
    loop = Helper(
        name=f"{scope.running.name}.scan",
        body=run,
        names=["step", *_names(constant=scan.fixed, carry=carried, x=scan.read, y=len(yields))],
        shapes=[
            None,
            *map(passed, consts),
            *map(packed_shape, scan.out[:carried]),
            *map(passed, xs),
            *(None for _ in yields),
        ],
        out=scan.out,
        trips=scan.length + 1,
    )
    empty = [jnp.zeros(a.shape, a.dtype) for a in yields]
    start = jnp.asarray(0, np.int32)
    return loop.call(scope, [start, *consts, *init, *xs, *empty])


class _Halves:
    """A scan as functions `f.scan[n]` of `n` iterations that call those of fewer.

    Their arguments are the number of the first iteration, the constants, where counters start, the
    carry, and the elements: whole arrays if they may be the same in all calls, else slices. The
    functions outlive the values that the scan is applied to, so only their types are kept.
    """

    def __init__(self, scope: Scope, scan: Scan, values: list[Any]) -> None:
        consts, _, xs = scan.parts(values)
        self._scan = scan
        self._counters = counters(scan)
        self._carried = [k for k in range(scan.carried) if k not in self._counters]
        self._whole = [scope.is_argument(x) for x in xs]
        self._elements = list(map(_compat.aval_of, xs))
        self._name = f"{scope.running.name}.{'scan' if self._carried else 'map'}"
        self._leaf = leaf_size(scan.body)
        self._consts = list(map(scope.packed_shape, consts))
        self._helpers: dict[int, Helper] = {}

    def run(self, scope: Scope, values: list[Any]) -> list[Any]:
        """Stages the scan."""
        scan, carried = self._scan, len(self._carried)
        consts, init, xs = scan.parts(values)
        xs = [
            x if whole or not scan.reverse else jax.lax.rev(x, (0,))
            for x, whole in zip(xs, self._whole, strict=True)
        ]
        starts = [init[k] for k in self._counters]
        values = [jnp.asarray(0, np.int32), *consts, *starts]
        values += [*(init[k] for k in self._carried), *xs]
        run = self._body if scan.length <= self._leaf else self._call
        outs = run(scan.length, scope, values)
        final: dict[int, Any] = dict(zip(self._carried, outs[:carried], strict=True))
        for (k, step), start in zip(self._counters.items(), starts, strict=True):
            final[k] = start + _wrapped(step * scan.length, scan.out[k].dtype)
        ys = [jax.lax.rev(y, (0,)) if scan.reverse else y for y in outs[carried:]]
        return [*(final[k] for k in range(len(final))), *ys]

    def _helper(self, size: int) -> Helper:
        scan = self._scan
        carry = [scan.out[k] for k in self._carried]
        yields = [a.update(shape=(size, *a.shape[1:])) for a in scan.out[scan.carried :]]
        elements = [
            None if whole else _part_shape(aval, size)
            for aval, whole in zip(self._elements, self._whole, strict=True)
        ]
        return Helper(
            name=f"{self._name}[{size}]",
            body=functools.partial(self._body, size),
            names=[
                "first",
                *_names(
                    constant=scan.fixed,
                    start=len(self._counters),
                    carry=len(carry),
                    x=scan.read,
                ),
            ],
            shapes=[
                None,
                *self._consts,
                *(None for _ in self._counters),
                *map(packed_shape, carry),
                *elements,
            ],
            out=[*carry, *yields],
        )

    def _call(self, size: int, scope: Scope, values: list[Any]) -> list[Any]:
        if size not in self._helpers:
            self._helpers[size] = self._helper(size)
        return self._helpers[size].call(scope, values)

    def _body(self, size: int, scope: Scope, values: list[Any]) -> list[Any]:
        """What `f.scan[size]` runs."""
        if size <= self._leaf:
            return self._iterations(size, scope, values)
        half = 1 << (size - 1).bit_length() - 1
        carried, read = len(self._carried), self._scan.read
        first, rest, xs = values[0], values[1 : len(values) - read], values[len(values) - read :]
        fixed, carry = rest[: len(rest) - carried], rest[len(rest) - carried :]
        left = self._call(half, scope, [first, *fixed, *carry, *self._slices(xs, 0, half)])
        carry, ys = left[:carried], left[carried:]
        first = first + half
        xs = self._slices(xs, half, size)
        right = self._call(size - half, scope, [first, *fixed, *carry, *xs])
        joined = [jnp.concatenate(parts) for parts in zip(ys, right[carried:], strict=True)]
        return [*right[:carried], *joined]

    def _slices(self, xs: Sequence[Any], low: int, high: int) -> list[Any]:
        return [
            x if whole else jax.lax.slice_in_dim(x, low, high)
            for x, whole in zip(xs, self._whole, strict=True)
        ]

    def _iterations(self, size: int, scope: Scope, values: list[Any]) -> list[Any]:
        """A few iterations one after the other, in one frame."""
        scan, fixed, carried = self._scan, self._scan.fixed, len(self._carried)
        first, consts, rest = values[0], values[1 : 1 + fixed], values[1 + fixed :]
        starts, rest = rest[: len(self._counters)], rest[len(self._counters) :]
        carry, xs = rest[:carried], rest[carried:]
        yields: list[list[Any]] = []
        loop = next(scope.loops)
        for k in range(size):
            iteration = dataclasses.replace(scope, within=(*scope.within, loop, k))
            full = dict(zip(self._carried, carry, strict=True))
            for (slot, step), start in zip(self._counters.items(), starts, strict=True):
                done = (first + k).astype(start.dtype)
                full[slot] = start + _wrapped(step, start.dtype) * done
            x = [
                self._element(a, first, k, whole) for a, whole in zip(xs, self._whole, strict=True)
            ]
            state = [full[slot] for slot in range(scan.carried)]
            outs = _run(iteration, scan.body, [*consts, *state, *x])
            carry = [outs[slot] for slot in self._carried]
            yields.append(outs[scan.carried :])
        return [*carry, *(jnp.stack(parts) for parts in zip(*yields, strict=True))]

    def _element(self, x: Any, first: Any, k: int, whole: bool) -> Any:
        if not whole:
            return jax.lax.index_in_dim(x, k, keepdims=False)
        return jax.lax.dynamic_index_in_dim(x, self._scan.place(first + k), keepdims=False)


def _wrapped(number: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A number as an integer type holds it, which wraps around."""
    return np.asarray(number % 2**64, np.uint64).astype(dtype)


def _part_shape(aval: Any, size: int) -> Shape | None:
    return None if packed_shape(aval) is None else (size, *aval.shape[1:])


def _rule(scope: Scope, eqn: JaxprEqn, values: list[Any]) -> list[Any]:
    """A function with a derivative rule, which may call the function again."""
    if scope.order == MAX_ORDER:
        return _run(scope, eqn.params["call_jaxpr"], values)
    inner = dataclasses.replace(scope, rules=scope.rules + 1)
    rule = Rule(scope.running, eqn, values)
    return rule.attach(_run(inner, rule.beforehand, rule.args), scope.rules)


_REPLACED: dict[str, Callable[[Scope, JaxprEqn, list[Any]], list[Any]]] = {
    "while": _while,
    "scan": _scan,
    "custom_vjp_call": _rule,
    "custom_jvp_call": _rule,
}
