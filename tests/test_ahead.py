"""Choices that callers compute: where they do, that waves are saved, and where they must not."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import JAXREC, PYTHON

import jaxrec as jr
from jaxrec.graph._check import check_graph

W = jnp.sin(jnp.arange(400.0)).reshape(20, 20) / 4
X = jnp.cos(jnp.arange(20.0)) * 3


def is_small(x: Any) -> Any:
    return jnp.sum(jnp.abs(x)) < 0.5


@jr.rec_fn
def halved(w, x):
    return jr.cond(is_small(x), lambda: x, lambda: jnp.tanh(w @ halved(w, x * 0.5)))


@jr.rec_fn
def even(w, x):
    return jr.cond(is_small(x), lambda: x, lambda: odd(w, x * 0.5))


@jr.rec_fn
def odd(w, x):
    return jr.cond(x[0] < 0.2, lambda: -x, lambda: even(w, x @ w))


@jr.rec_fn
def inner(w, x):
    return jr.cond(is_small(x), lambda: x, lambda: inner(w, x @ w))


@jr.rec_fn
def outer(w, x, n):
    return jr.cond(n == 0, lambda: x, lambda: inner(w, outer(w, x, n - 1) + 1))


@jr.rec_fn
def reused(w, x):
    """The branches read what the choice reads: it is computed before it."""
    y = jnp.tanh(x @ w)
    return jr.cond(is_small(y), lambda: y, lambda: reused(w, y * 0.5) + y)


@jr.rec_fn
def of_a_result(w, x):
    """A caller would wait for one call before it can decide for the next."""

    def more():
        return of_a_result(w, of_a_result(w, x * 0.3)) + of_a_result(w, x * 0.1)

    return jr.cond(is_small(x), lambda: x, more)


@jr.rec_fn
def by_a_loop(w, x):
    long = jax.lax.while_loop(lambda y: jnp.sum(y) > 9, lambda y: y * 0.5, x)
    return jr.cond(is_small(long), lambda: x, lambda: by_a_loop(w, x * 0.5))


@jr.rec_fn
def by_a_large_product(w, x):
    scores = (jnp.ones((99, 20)) * x) @ jnp.ones((20, 99))
    return jr.cond(is_small(scores), lambda: x, lambda: by_a_large_product(w, x * 0.1))


@jr.rec_fn
def by_one_of_two_results(w, x):
    best, place = jax.lax.top_k(x, 1)
    return jr.cond(place[0] > 5, lambda: best * x, lambda: by_one_of_two_results(w, x[::-1] * 0.5))


@jr.rec_fn
def by_where_it_is(w, x):
    """The branches read what it decides by."""
    place = jnp.argmax(x)
    way = jnp.int32(place > 3) + jnp.int32(jnp.max(x) > 1)
    go = [lambda: x * place, lambda: by_where_it_is(w, x * 0.4) + place, lambda: x @ w]
    return jr.switch(way, go)


@jr.rec_fn
def at_most(w, x, n):
    def go_on():
        return jr.cond(is_small(x), lambda: x, lambda: at_most(w, x * 0.5, n - 1) + n)

    return jr.cond(n == 0, lambda: x @ w, go_on)


@jr.rec_fn
def by_a_mask(w, x):
    """The branches read an array of what it decides by."""
    large = jnp.abs(x) > 0.5

    def go_on():
        return jnp.where(large, x, 0) + by_a_mask(w, x @ w * 0.3)[::-1]

    return jr.cond(jnp.any(large), go_on, lambda: jnp.where(large, 1.0, x))


@jr.rec_fn
def by_chance(w, x, key):
    """The branches read a key that it decides by."""
    mine, more = jax.random.split(key)

    def go_on():
        return by_chance(w, x * 0.6, more) + jax.random.uniform(mine, (20,))

    return jr.cond(jnp.max(x) > jax.random.uniform(mine), go_on, lambda: x)


TABLE = jnp.array([4.0, 2.0, 0.5, 3.0])


@jr.rec_fn
def guarded(w, x, k):
    """What a choice reads is out of range where another one is before it."""

    def inside():
        return jr.cond(jnp.sum(x) > TABLE[k], lambda: x, lambda: guarded(w, x @ w, k + 1))

    return jr.cond(k == 4, lambda: x, inside)


@jr.rec_fn
def by_its_number(w, x):
    return jr.cond(x[0] < 0.5, lambda: x, lambda: by_its_number(w, x))


@jr.rec_fn(memo=True)
def shared(w, k):
    return jr.cond(is_small(w[k]), lambda: w[k], lambda: shared(w, k - 1) * 2)


@jr.rec_fn
def of_scalars(x, n):
    return jr.cond(jnp.exp(x) < 1.1, lambda: x, lambda: of_scalars(x * 0.5, n + 1))


CHANGES = [
    lambda w, x, n: x * 0.7,
    lambda w, x, n: x[::-1] - 0.1,
    lambda w, x, n: jnp.sin(w @ x),
    lambda w, x, n: jnp.where(x > 0, x, 0.5 * x) + n / 8,
]
TESTS = [
    lambda x, n: jnp.sum(x) < 0.2,
    lambda x, n: jnp.all(x < 1.3),
    lambda x, n: (jnp.max(x) > 0.9) | (n == 2),
    lambda x, n: x[0] * n > x[1],
]


def random_group(lang: Any, seed: int) -> Any:
    """The first of two functions that choose by their vector, and call one another."""
    functions: list[Any] = []

    def branch(rng: Any) -> Any:
        calls = [
            (rng.integers(2), rng.integers(4), rng.integers(1, 3)) for _ in range(rng.integers(3))
        ]
        change = CHANGES[rng.integers(4)]

        def run(w: Any, x: Any, n: Any, which: Any) -> Any:
            total = change(w, x, n) * which
            for callee, how, less in calls:
                total = total + jnp.tanh(functions[callee](w, CHANGES[how](w, x, n), n - less))
            return total

        return run

    def function(rng: Any) -> Any:
        one, other = (TESTS[k] for k in rng.integers(4, size=2))
        runs = [branch(rng) for _ in range(3)]
        is_inside = rng.integers(2)

        @lang.rec_fn(max_calls=256)
        def function(w, x, n):
            def choose():
                which = jnp.int32(one(x, n)) + jnp.int32(other(x, n))
                return lang.switch(which, [lambda run=run: run(w, x, n, which) for run in runs])

            if is_inside:
                return lang.cond(n <= 0, lambda: x, choose)
            which = jnp.where(n <= 0, 0, 1 + jnp.int32(one(x, n)))
            return lang.switch(
                which, [lambda: x, *(lambda run=run: run(w, x, n, which) for run in runs[:2])]
            )

        return function

    rng = np.random.default_rng(seed)
    functions += [function(rng) for _ in range(2)]
    return functions[0]


def told(fun: Any, *args: Any) -> list[str]:
    """The functions that are told what they decide."""
    graph = fun._invocation(*fun._bind(args, {})).program.graph
    check_graph(graph)
    return [function.name for function in graph.functions if function.told]


TOLD: list[tuple[Any, Any, list[str]]] = [
    (halved, (W, X), ["halved"]),
    (even, (W, X), ["even", "odd"]),
    (outer, (W, X, 2), ["inner"]),
    (reused, (W, X), []),
    (of_a_result, (W, X), []),
    (by_a_loop, (W, X), []),
    (by_a_large_product, (W, X), []),
    (by_one_of_two_results, (W, X), []),
    (by_where_it_is, (W, X), ["by_where_it_is"]),
    (at_most, (W, X, 9), ["at_most"]),
    (by_a_mask, (W, X), ["by_a_mask"]),
    (by_chance, (W, X, jax.random.key(0)), []),
    (guarded, (W, X, 0), []),
    (by_its_number, (W, X), []),
    (shared, (W, 2), []),
    (of_scalars, (1.0, 0), []),
]


@pytest.mark.parametrize(("fun", "args", "names"), TOLD, ids=[fun.__name__ for fun, *_ in TOLD])
def test_who_is_told(fun, args, names):
    assert told(fun, *args) == names


def test_an_array_that_says_what_is_decided():
    def plain(x):
        large = jnp.abs(x) > 0.5
        if large.any():
            return jnp.where(large, x, 0) + plain(x @ W * 0.3)[::-1]
        return jnp.where(large, 1, x)

    xs = jnp.stack([X, X * 0.1, X * 4])
    found = jax.jit(jax.vmap(by_a_mask.with_options(max_calls=64), (None, 0)))(W, xs)
    np.testing.assert_allclose(found, [plain(x) for x in xs], rtol=1e-4, atol=1e-5)
    slope, want = (
        jax.grad(lambda x, f=f: jnp.sum(f(x)))(X) for f in (lambda x: by_a_mask(W, x), plain)
    )
    np.testing.assert_allclose(slope, want, rtol=1e-4, atol=1e-5)


def test_one_wave_a_call():
    """Of the root two: it computes its own index."""
    schedule = halved.schedule(W, X)
    on_the_way = [wave for wave in schedule.waves if wave.cell in ("halved.0", "halved.1")]
    assert len(on_the_way) == schedule.num_calls
    assert schedule.num_calls == 1 + sum(np.sum(np.abs(X)) / 2**k >= 0.5 for k in range(9))


def test_results_and_derivatives_are_the_same():
    def plain(w, x):
        return x if is_small(x) else jnp.tanh(w @ plain(w, x * 0.5))

    def total(f):
        return lambda w, x: jnp.sum(f(w, x) ** 2)

    bounded = halved.with_options(max_calls=64)
    args = W, X
    np.testing.assert_allclose(halved(*args), plain(*args), rtol=1e-4)
    want = jax.grad(total(plain), (0, 1))(*args)
    for take in (jax.grad(total(halved), (0, 1)), jax.jit(jax.grad(total(bounded), (0, 1)))):
        for found, wanted in zip(take(*args), want, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_users_see_their_own_arguments():
    assert "told" not in str(halved.graph(W, X))
    _, calls = jr.collect(halved.with_options(max_calls=32), in_axes=(None, 0))(W, X[None])
    assert calls.args == (None, None)
    assert int(jnp.sum(calls.valid)) == halved.schedule(W, X).num_calls


@pytest.mark.parametrize("executor", ["host", "reference"])
def test_messages_show_their_own_arguments(executor):
    @jr.rec_fn
    def endless(x, n):
        return jr.cond(jnp.sum(x) > 9, lambda: x, lambda: endless(x * 0.5, n + 1))

    message = r"endless nested more than .* -> endless\[0\] with arguments \(n=\d+\)\. If it ends"
    with jr.executor(executor), pytest.raises(jr.RecursionLimitError, match=message):
        endless(-jnp.ones(300), 0)


SEEDS = [pytest.param(k, marks=[] if k < 1 else pytest.mark.exhaustive) for k in range(60)]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed):
    ours, plain = random_group(JAXREC, seed), random_group(PYTHON, seed)
    xs = jnp.cos(jnp.arange(60.0) + seed).reshape(3, 20) * 2

    def losses(f):
        return jax.vmap(lambda x: jnp.sum(f(W, x, 4) ** 2))

    wants = [jax.value_and_grad(lambda x: jnp.sum(plain(W, x, 4) ** 2))(x) for x in xs]
    values, gradients = map(jnp.stack, zip(*wants, strict=True))
    np.testing.assert_allclose(jax.jit(losses(ours))(xs), values, rtol=1e-4)
    both = jax.vmap(jax.value_and_grad(lambda x: jnp.sum(ours(W, x, 4) ** 2)))(xs)
    np.testing.assert_allclose(both[0], values, rtol=1e-4)
    np.testing.assert_allclose(both[1], gradients, rtol=1e-4, atol=1e-4)
    with jr.executor("host"):
        np.testing.assert_allclose(jnp.sum(ours(W, xs[1], 4) ** 2), values[1], rtol=1e-4)
