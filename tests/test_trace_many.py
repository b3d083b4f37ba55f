"""Many functions that call one another: more than Python's stack has room for at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

MANY = 40

RING = """
@jr.rec_fn
def f{k}(x, n):
    return jr.cond(n == 0, lambda: x, lambda: {scale} * f{after}(jnp.sin(x), n - 1))
"""

LADDER = """
@jr.rec_fn
def f{k}(x, n):
    return f{after}(x, n) + f{after}({scale} * x, n) / 2
"""

LAST = """
@jr.rec_fn
def f{k}(x, n):
    return jr.cond(n == 0, lambda: x, lambda: f0(jnp.sin(x), n - 1))
"""


def functions(*sources):
    """The first of some functions, each of which calls the next."""
    names: dict[str, Any] = {"jr": jr, "jnp": jnp, "traced": []}
    for k, source in enumerate(sources):
        scale = 1 + k / 100
        exec(source.format(k=k, after=(k + 1) % len(sources), scale=scale), names)
    return names["f0"]


def test_in_a_ring():
    def plain(x, n):
        return x if n == 0 else plain(jnp.sin(x), n - 1) * (1 + (50 - n) % MANY / 100)

    first = functions(*[RING] * MANY)
    got = jax.value_and_grad(first)(0.7, 50)
    np.testing.assert_allclose(got, jax.value_and_grad(plain)(0.7, 50), rtol=1e-5)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_to_which_very_many_paths_lead(executor):
    """Of `k` calls that of `k - 1` and that of `k - 2`: 10^8 paths to the last."""

    @jr.rec_fn
    def total(tree, i):
        def node():
            return total(tree, tree["left"][i]) + total(tree, tree["right"][i])

        return jr.cond(tree["left"][i] < 0, lambda: tree["value"][i], node)

    @jr.rec_fn(static_argnames="k", out=jax.ShapeDtypeStruct((3,), jnp.float32))
    def down(k, tree, i):
        if k < 2:
            return total(tree, i)
        by_one = tree["odd"][i] == k % 2
        return jr.cond(by_one, lambda: 2 * down(k - 1, tree, i), lambda: down(k - 2, tree, i) + 1)

    tree = {
        "left": jnp.array([1, -1, -1]),
        "right": jnp.array([2, -1, -1]),
        "odd": jnp.array([1, 0, 0]),
        "value": jnp.ones((3, 3)),
    }
    with jr.executor(executor):
        np.testing.assert_array_equal(down(MANY, tree, 0), jnp.full(3, 2.0 + MANY // 2))
        np.testing.assert_array_equal(down(MANY + 1, tree, 0), jnp.full(3, 2.0 * (2 + MANY // 2)))
    np.testing.assert_array_equal(
        jax.jit(down, static_argnums=0)(MANY, tree, 1), jnp.full(3, float(MANY))
    )


def test_without_a_base_case_but_in_the_last():
    """What the first ones return is known when the last one is."""

    def plain(x, n, k=0):
        if k < 10:
            return plain(x, n, k + 1) + plain((1 + k / 100) * x, n, k + 1) / 2
        return x if n == 0 else plain(jnp.sin(x), n - 1, k=10)

    first = functions(*[LADDER] * 10, LAST.replace("f0", "f10"))
    np.testing.assert_allclose(first(jnp.ones(2), 0), plain(np.ones(2), 0), rtol=1e-5)
    np.testing.assert_allclose(first(jnp.ones(2), 2), plain(np.ones(2), 2), rtol=1e-5)


def test_that_never_end():
    with pytest.raises(jr.RecursionLimitError, match=r"f0 never ends: every path through its body"):
        functions(*[LADDER] * MANY)(1.0, 3)


def test_by_static_arguments():
    @jr.rec_fn(static_argnames="depth")
    def down(x, depth):
        if depth == 0:
            return x
        return jr.cond(x > 1, lambda: x, lambda: down(jnp.sin(x) * (1 + depth / 100), depth - 1))

    def plain(x, depth):
        return x if depth == 0 or x > 1 else plain(jnp.sin(x) * (1 + depth / 100), depth - 1)

    got = jax.value_and_grad(down)(0.1, MANY)
    np.testing.assert_allclose(got, jax.value_and_grad(plain)(0.1, MANY), rtol=1e-5)


@pytest.mark.parametrize("depth", [7, 8, 9])
def test_functions_of_one_name_far_inside(depth):
    """What one of them returns is not what the others do."""

    def sized(size):
        @jr.rec_fn
        def h(x, n):
            return jr.cond(n <= 0, lambda: jnp.ones(size) * x, lambda: 2 * h(x, n - 1))

        return h

    def around(inner):
        return jr.rec_fn(lambda x, n: inner(x, n))

    small, large = sized(2), sized(3)
    function = jr.rec_fn(lambda x, n: jnp.sum(small(x, n)) + 10 * jnp.sum(large(x, n)))
    for _ in range(depth):
        function = around(function)
    assert float(function(1.5, 2)) == (2 + 30) * 1.5 * 4


def test_what_has_changed_when_a_function_far_inside_is_traced():
    @jr.rec_fn
    def last(x):
        total = 0.0
        for k in (1, 2, 3):

            @jr.rec_fn
            def times(y):
                return y * k  # noqa: B023

            total = total + times(x)
        return total

    def chain(length):
        function = last
        for k in range(length):
            inner = function

            def link(x, inner=inner):
                return inner(x)

            link.__name__ = f"link_{k}"
            function = jr.rec_fn(link, static_argnames="inner")
        return function

    assert float(chain(5)(1.0)) == 6
    with pytest.raises(jr.UnsupportedError, match="times is called deep inside of other functions"):
        chain(20)(1.0)


def test_what_changes_for_ever():
    """Each body calls two others, and what it closes over has changed whenever it is called."""
    size, made, traced = 10, [], []

    def part(k):
        @jr.rec_fn
        def f(x, n):
            traced.append(k)

            def on():
                return made[(k + 3) % size](x, n - 1) + made[(k + 1) % size](x, n)

            if k == size - 1:
                return jr.cond(n <= 0, lambda: x, lambda: made[0](x, n - 1))
            return jr.cond(n <= -1, lambda: made[k + 1](x, n), on)

        return f

    made.extend(map(part, range(size)))
    with pytest.raises(
        jr.UnsupportedError, match="closes over changes while it is traced, such as"
    ):
        made[0](0.7, 3)


COUNTED = RING.replace("    return", "    traced.append({k})\n    return")


def test_that_count_how_often_they_are_traced():
    """What they close over changes each time, so each call might be of another function."""
    first = functions(*[COUNTED.replace("jnp.sin", "traced and jnp.sin")] * 12)
    traced = first.__wrapped__.__globals__["traced"]
    got = first(0.7, 3)
    np.testing.assert_allclose(got, 1.0 * 1.01 * 1.02 * np.sin(np.sin(np.sin(0.7))), rtol=1e-5)
    assert len(traced) < 300


@pytest.mark.parametrize("levels", [4, 8])
def test_made_in_one_another(levels):
    """Each closes over what the bodies around it have computed."""

    def nested(levels):
        def level(k, x):
            if k == 0:
                return x

            def inner(y, n):
                return jr.cond(n == 0, lambda: level(k - 1, y * x), lambda: 1 + inner(y, n - 1))

            inner.__name__ = f"level_{k}"
            inner = jr.rec_fn(inner)
            return inner(jnp.sin(x), 2)

        return jr.rec_fn(lambda x: level(levels, x))

    def plain(k, x):
        return x if k == 0 else 2 + plain(k - 1, jnp.sin(x) * x)

    np.testing.assert_allclose(nested(levels)(0.9), np.float32(plain(levels, 0.9)), rtol=1e-5)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_a_body_of_very_many_operations(executor):
    """Each of which needs the one before; more than Python calls functions inside one another."""

    def long(x):
        for _ in range(600):
            x = x + 0.001
        return x

    @jr.rec_fn
    def f(x, y, n):
        return jr.cond(n == 0, lambda: long(x) * y, lambda: f(x, y + long(x), n - 1))

    with jr.executor(executor):
        value, gradient = jax.value_and_grad(f)(jnp.float32(1), jnp.float32(2), 2)
    np.testing.assert_allclose(value, 1.6 * (2 + 2 * 1.6), rtol=1e-4)
    np.testing.assert_allclose(gradient, 2 + 4 * 1.6, rtol=1e-4)
