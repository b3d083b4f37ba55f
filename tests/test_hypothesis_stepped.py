"""Random recursive programs whose control mixes counters, tables and what cells compute.

Each is checked against plain Python and the reference executor, with its derivatives, under every
transformation. A program is a list of steps that give names to values; names of vectors, integers
and floating numbers are kept apart, so that any step may read any value of its type.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo import JAXREC, PYTHON, assert_close, loss, normal

import jaxrec as jr

quick = settings(max_examples=3, deadline=None, derandomize=True)
slow = settings(
    max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)

MAX_CALLS = 1024
TABLE = np.asarray([[3, 1, 4], [1, 5, 9], [2, 6, 5], [3, 5, 8]] * 20, np.int32)
KINDS = ("vector", "integer", "floating")

Names = dict[str, Any]
Step = Callable[[Any, Names], Names]
Known = dict[str, tuple[str, ...]]

VECTOR_OPS: dict[str, Callable[..., Any]] = {
    "mean": lambda w, a, b, i, s: (a + b) / 2,
    "product": lambda w, a, b, i, s: jnp.tanh(a * b + s),
    "matrix": lambda w, a, b, i, s: jnp.tanh(w[0] @ a) + 0.3 * b,
    "transposed": lambda w, a, b, i, s: w[1].T @ jnp.sin(a + b),
    "row": lambda w, a, b, i, s: jnp.tanh(w[0, i % 3] * s + b),
    "where": lambda w, a, b, i, s: jnp.where(a > 0.0137, a, b),
    "constant": lambda w, a, b, i, s: jnp.arange(3.0) / 4 + jnp.float32(0.01) * (i % 5),
}
INTEGER_OPS: dict[str, Callable[..., Any]] = {
    "sum": lambda w, a, i, j, s: (i + 2 * j) % 7,
    "table": lambda w, a, i, j, s: jnp.asarray(TABLE)[i % 80, j % 3],
    "where": lambda w, a, i, j, s: jnp.where(i > j, i - j, j % 4),
    "largest": lambda w, a, i, j, s: jnp.argmax(a).astype(jnp.int32),
    "count": lambda w, a, i, j, s: jnp.sum(a > 0.0312) + i % 2,
    "rounded": lambda w, a, i, j, s: jnp.round(3 * s + 0.171).astype(jnp.int32),
    "narrow": lambda w, a, i, j, s: jnp.round(3 * a[0]).astype(jnp.int8).astype(jnp.int32) + j % 2,
}
FLOATING_OPS: dict[str, Callable[..., Any]] = {
    "sum": lambda w, a, i, s, t: jnp.tanh(jnp.sum(a)),
    "dot": lambda w, a, i, s, t: jnp.sin(a @ w[0, 0]) * s,
    "mean": lambda w, a, i, s, t: (s + t) / 2 + 0.07,
    "product": lambda w, a, i, s, t: s * 0.7 - t * 0.2,
    "number": lambda w, a, i, s, t: s * 0.5 + jnp.float32(0.1) * (i % 4),
    "largest": lambda w, a, i, s, t: jnp.minimum(jnp.max(a), 1.0),
}
PREDICATES: dict[str, Callable[..., Any]] = {
    "floating": lambda a, i, s: s > 0.1371,
    "vector": lambda a, i, s: jnp.sum(a) < 0.2113,
    "all": lambda a, i, s: jnp.all(a > -0.3179),
    "even": lambda a, i, s: i % 2 == 0,
    "both": lambda a, i, s: (i > 1) & (s < 0.4171),
}


def chosen(draw: Any, known: Known) -> dict[str, str]:
    """A name of each kind."""
    return {kind: draw(st.sampled_from(known[kind])) for kind in KINDS}


def added(known: Known, **names: str) -> Known:
    """What is known after a step that makes values with these names, one a kind."""
    return {kind: (*known[kind], *([names[kind]] if kind in names else [])) for kind in KINDS}


@st.composite
def operation(draw: Any, known: Known, name: str) -> tuple[Step, Known]:
    """A step that computes a value."""
    kind, a, b = draw(st.sampled_from(KINDS)), chosen(draw, known), chosen(draw, known)
    ops = {"vector": VECTOR_OPS, "integer": INTEGER_OPS, "floating": FLOATING_OPS}[kind]
    op = ops[draw(st.sampled_from(sorted(ops)))]
    reads = {
        "vector": [a["vector"], b["vector"], a["integer"], a["floating"]],
        "integer": [a["vector"], a["integer"], b["integer"], a["floating"]],
        "floating": [a["vector"], a["integer"], a["floating"], b["floating"]],
    }[kind]

    def run(lang: Any, names: Names) -> Names:
        value = op(names["w"], *(names[read] for read in reads))
        return {name: value.astype(jnp.int32) if kind == "integer" else value}

    return run, added(known, **{kind: name})


def three(name: str) -> dict[str, str]:
    """Names for a value of each kind."""
    return {kind: f"{name}_{kind}" for kind in KINDS}


@st.composite
def call(draw: Any, known: Known, name: str, functions: int) -> tuple[Step, Known]:
    """A step that calls one of the functions with a smaller counter, and perhaps a new vector."""
    callee, less = draw(st.integers(0, functions - 1)), draw(st.integers(1, 2))
    args, made, is_new = chosen(draw, known), three(name), draw(st.booleans())

    def run(lang: Any, names: Names) -> Names:
        passed = [names[args[kind]] for kind in KINDS]
        if is_new:
            passed[0] = jnp.sin(passed[0][::-1] * 1.3)
        results = names["functions"][callee](names["w"], names["n"] - less, *passed)
        return dict(zip(made.values(), results, strict=True))

    return run, added(known, **made)


@dataclasses.dataclass(frozen=True)
class Body:
    """Steps and a result of each kind."""

    steps: tuple[Step, ...]
    result: dict[str, str]

    def run(self, lang: Any, names: Names) -> Any:
        names = dict(names)
        for step in self.steps:
            names |= step(lang, names)
        return tuple(names[self.result[kind]] for kind in KINDS)


@st.composite
def choice(
    draw: Any, known: Known, name: str, functions: int, calls: int, depth: int
) -> tuple[Step, Known]:
    """A step that runs one of several bodies, of which the first calls if any may."""
    by, made = chosen(draw, known), three(name)
    is_switch = draw(st.booleans())
    count = draw(st.integers(1, 3)) if is_switch else 2
    firsts = ["call" if calls else None, None, None][:count]
    bodies = [
        draw(body(known, functions, calls, depth, f"{name}.{k}", first))
        for k, first in enumerate(firsts)
    ]
    predicate = PREDICATES[draw(st.sampled_from(sorted(PREDICATES)))]

    def run(lang: Any, names: Names) -> Names:
        runs = [lambda body=body: body.run(lang, names) for body in bodies]
        vector, integer, floating = (names[by[kind]] for kind in KINDS)
        if is_switch:
            results = lang.switch(integer - 1, runs)
        else:
            results = lang.cond(predicate(vector, integer, floating), *runs)
        return dict(zip(made.values(), results, strict=True))

    return run, added(known, **made)


@st.composite
def body(
    draw: Any,
    known: Known,
    functions: int,
    calls: int,
    depth: int,
    name: str,
    first: str | None = None,
) -> Body:
    """Up to four steps, of which some are calls or choices, and perhaps a first one of a kind."""
    steps = []
    for k in range(draw(st.integers(int(first is not None), 4))):
        kinds = ["operation"] * 2 + ["call"] * 2 * (calls > 0) + ["choice"] * (depth > 0)
        if k == 0 and first is not None:
            kinds = [first]
        kind, own = draw(st.sampled_from(kinds)), f"{name}.{k}"
        if kind == "operation":
            step, known = draw(operation(known, own))
        elif kind == "call":
            step, known = draw(call(known, own, functions))
            calls -= 1
        else:
            step, known = draw(choice(known, own, functions, calls, depth - 1))
        steps.append(step)
    return Body(tuple(steps), chosen(draw, known))


FIRST: Known = {"vector": ("x",), "integer": ("k", "n"), "floating": ("s",)}


@st.composite
def group(draw: Any) -> list[tuple[Body, Body]]:
    """Functions that call one another: for each what it does, and the base case."""
    count = draw(st.integers(1, 2))
    firsts = [draw(st.sampled_from(["choice", "operation"])) for _ in range(count)]
    return [
        (draw(body(FIRST, count, 2, 2, "v", first)), draw(body(FIRST, count, 0, 1, "b")))
        for first in firsts
    ]


def built(bodies: list[tuple[Body, Body]], lang: Any) -> Any:
    """The first function of a group, in a language."""
    functions: list[Any] = []

    def make(index: int) -> Any:
        inner, base = bodies[index]

        @lang.rec_fn(max_calls=MAX_CALLS)
        def function(w, n, x, k, s):
            names = {"w": w, "n": n, "x": x, "k": k, "s": s, "functions": functions}
            return lang.cond(n <= 0, lambda: base.run(lang, names), lambda: inner.run(lang, names))

        return function

    functions.extend(make(k) for k in range(len(bodies)))
    return functions[0]


@dataclasses.dataclass(frozen=True)
class Inputs:
    """Arguments of three lanes."""

    w: Any
    n: Any
    x: Any
    k: Any
    s: Any

    @property
    def lanes(self) -> list[tuple[Any, ...]]:
        """The arguments of each."""
        return [
            (self.w, n, x, k, s) for n, x, k, s in zip(self.n, self.x, self.k, self.s, strict=True)
        ]


def inputs(seed: int) -> Inputs:
    """Random ones, of one type whatever the seed."""
    k, s = np.random.default_rng(seed).integers(0, 5, 3), normal(seed % 997, 3)
    x, w = normal(seed % 999, 3, 3), normal(seed % 1000, 2, 3, 3)
    return Inputs(w, jnp.array([3, 1, 2], np.int32), x, jnp.asarray(k, jnp.int32), s)


AXES = (None, 0, 0, 0, 0)
FLOATS = (0, 2, 4)


def losses(run: Any) -> Any:
    """A scalar of the results of one call, and those."""

    def of(*args: Any) -> Any:
        results = run(*args)
        return loss(results), results

    return of


def total(run: Any) -> Any:
    """The sum over lanes, by `vmap`."""

    def of(*args: Any) -> Any:
        each, results = jax.vmap(losses(run), AXES)(*args)
        return jnp.sum(each), results

    return of


def stacked(items: list[Any]) -> Any:
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x]), *items)


def expected(bodies: list[tuple[Body, Body]], case: Inputs) -> tuple[Any, Any]:
    """Results and gradients of each lane, by plain Python."""
    of = jax.value_and_grad(losses(built(bodies, PYTHON)), FLOATS, has_aux=True)
    outs = [of(*lane) for lane in case.lanes]
    return stacked([results for (_, results), _ in outs]), stacked([grads for _, grads in outs])


def summed(grads: Any) -> Any:
    """The gradients of the sum over lanes: all of them read `w`."""
    w, *rest = grads
    return (jnp.sum(w, 0), *rest)


def check_batch(run: Any, case: Inputs, results: Any, grads: Any) -> None:
    of = jax.jit(jax.value_and_grad(total(run), FLOATS, has_aux=True))
    (_, got), got_grads = of(case.w, case.n, case.x, case.k, case.s)
    assert_close(got, results, 1e-5)
    assert_close(got_grads, summed(grads), 1e-4)


def check_lanes(run: Any, case: Inputs, results: Any, grads: Any) -> None:
    of = jax.vmap(jax.value_and_grad(losses(run), FLOATS, has_aux=True), AXES)
    (_, got), got_grads = of(case.w, case.n, case.x, case.k, case.s)
    assert_close(got, results, 1e-5)
    assert_close(got_grads, grads, 1e-4)


def check_one(run: Any, case: Inputs, results: Any, grads: Any) -> None:
    of = jax.value_and_grad(losses(run), FLOATS, has_aux=True)
    for k, compiled in ((0, False), (2, True)):
        (_, got), got_grads = (jax.jit(of) if compiled else of)(*case.lanes[k])
        assert_close(got, jax.tree.map(lambda x, k=k: x[k], results), 1e-5)
        assert_close(got_grads, jax.tree.map(lambda x, k=k: x[k], grads), 1e-4)


def check_collected(run: Any, case: Inputs, results: Any, grads: Any) -> None:
    got, calls = jr.collect(run, AXES)(case.w, case.n, case.x, case.k, case.s)
    assert_close(got, results, 1e-5)
    valid = np.asarray(calls.valid)
    kept = jax.tree.map(lambda x: np.asarray(x)[valid], calls.results)
    for lane, want in enumerate(zip(*results, strict=True)):
        mine = np.asarray(calls.lane)[valid] == lane
        found = [
            np.abs(np.asarray(g)[mine].reshape(mine.sum(), -1) - np.ravel(np.asarray(v))).max(1)
            for g, v in zip(kept, want, strict=True)
        ]
        assert np.min(np.max(found, axis=0)) < 1e-4  # the root is one of them


def check_forward(run: Any, case: Inputs, results: Any, grads: Any) -> None:
    lane = case.lanes[0]
    moved = [lane[k] for k in FLOATS]
    tangents = [jnp.cos(x) for x in moved]

    def of(w: Any, x: Any, s: Any) -> Any:
        return losses(run)(w, lane[1], x, lane[3], s)[0]

    _, got = jax.jvp(of, moved, tangents)
    want = sum(jnp.sum(g[0] * t) for g, t in zip(grads, tangents, strict=True))
    assert_close(got, want, 1e-4)


def check_reference(run: Any, case: Inputs, results: Any, grads: Any) -> None:
    with jr.executor("reference"):
        of = jax.value_and_grad(total(run), FLOATS, has_aux=True)
        (_, got), got_grads = of(case.w, case.n, case.x, case.k, case.s)
    assert_close(got, results, 1e-5)
    assert_close(got_grads, summed(grads), 1e-4)


CHECKS = [check_batch, check_lanes, check_one, check_collected, check_forward, check_reference]


class TestPrograms:
    @quick
    @given(group(), st.integers(0, 2**32 - 1))
    def test_some(self, bodies, seed):
        case, run = inputs(seed), built(bodies, JAXREC)
        results, grads = expected(bodies, case)
        check_batch(run, case, results, grads)

    @pytest.mark.slow
    @pytest.mark.parametrize("check", CHECKS)
    @slow
    @given(group(), st.integers(0, 2**32 - 1))
    def test_many(self, check, bodies, seed):
        case, run = inputs(seed), built(bodies, JAXREC)
        check(run, case, *expected(bodies, case))
