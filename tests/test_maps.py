"""Several `vmap` around a derivative, each over other arguments, and over no examples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from waves import sine

import jaxrec as jr


@jr.rec_fn
def scaled(w, x, n):
    return jr.cond(n <= 0, lambda: x * w, lambda: sine(scaled(w, x * w, n - 1)))


def test_over_weights_and_over_control():
    w, n = jnp.array([0.3, 0.5]), jnp.array([1, 3, 2])
    grad = jax.grad(scaled)
    want = [[grad(a, 0.7, int(k)) for k in n] for a in w]
    got = jax.vmap(jax.vmap(grad, (None, None, 0)), (0, None, None))(w, 0.7, n)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    got = jax.vmap(jax.vmap(grad, (0, None, None)), (None, None, 0))(w, 0.7, n)
    np.testing.assert_allclose(got, np.transpose(want), rtol=1e-5)


@pytest.mark.parametrize("inner", ["weights", "control"])
def test_control_of_examples_that_is_known_in_a_program(inner):
    """The numbers of a constant array bound the calls, whatever maps over it."""
    x, n = jnp.full(80, 0.7), jnp.array([1, 3, 2])
    w = jnp.stack([jnp.full(80, 0.3), jnp.full(80, 0.5)])
    grad = jax.grad(lambda w, n: scaled(w, x, n).sum())
    over = {"weights": (0, None), "control": (None, 0)}
    outer = "control" if inner == "weights" else "weights"

    def run(w):
        return jax.vmap(jax.vmap(grad, over[inner]), over[outer])(w, n)

    np.testing.assert_allclose(jax.jit(run)(w), run(w), rtol=1e-6)
    one = jax.jit(lambda w: jax.vmap(grad, (None, 0))(w, n))(w[0])
    np.testing.assert_allclose(one, [grad(w[0], int(k)) for k in n], rtol=1e-5)


@pytest.mark.parametrize("around", [jax.jit, jax.checkpoint])
def test_where_control_is_known_inside(around):
    w = jnp.array([0.3, 0.5])

    def one(w):
        return scaled(w, 0.7, 3)

    want = [jax.grad(one)(a) for a in w]
    np.testing.assert_allclose(jax.vmap(jax.grad(around(one)))(w), want, rtol=1e-5)


def test_over_nothing():
    none = jnp.zeros((3, 0))
    inner = jax.vmap(scaled, (0, None, None))
    assert jax.vmap(inner, (0, None, None))(none, 1.0, 2).shape == (3, 0)

    def chosen(w):
        bounded = scaled.with_options(max_calls=9)
        return jax.lax.cond(w > 0, lambda: bounded(w, 1.0, 2), lambda: w)

    assert jax.vmap(jax.grad(chosen))(jnp.zeros(0)).shape == (0,)
    report = jax.vmap(lambda n: jr.collect(scaled)(1.0, 1.0, n)[0])
    assert report(jnp.zeros(0, int)).shape == (0,)


def chosen_by(around: str):
    """A function of a number that calls `dag` with arrays of its own, several times a node."""
    following = jnp.array([[1, 1], [2, 2], [3, 3], [4, 4], [-1, -1]])

    @jr.rec_fn
    def dag(w, nodes, i):
        def below():
            return sine(dag(w, nodes, nodes[i, 0]) + w) * dag(w, nodes, nodes[i, 1])

        return jr.cond(nodes[i, 0] < 0, lambda: w, below)

    def one(w):
        x = w * jnp.ones(80)
        if around == "cond":
            return jax.lax.cond(w > 0, lambda: dag(x, following, 0)[0], lambda: w)
        if around == "scan":
            turn = jax.lax.scan(lambda c, _: (dag(x, following, 0)[0] + c, None), w, None, 2)
            return turn[0]
        return {"jit": jax.jit, "checkpoint": jax.checkpoint}[around](
            lambda x: dag(x, following, 0)[0]
        )(x)

    return one


@pytest.mark.parametrize(
    "around",
    [
        "cond",
        *(pytest.param(x, marks=pytest.mark.exhaustive) for x in ("scan", "jit", "checkpoint")),
    ],
)
def test_the_calls_of_one_example_are_those_of_each(around):
    """No array that is as long as the calls are many bounds them."""
    one, w = chosen_by(around), jnp.array([0.3, -0.5])
    np.testing.assert_allclose(jax.vmap(one)(w), [one(a) for a in w], rtol=1e-5)
    want = [jax.grad(one)(a) for a in w]
    np.testing.assert_allclose(jax.vmap(jax.grad(one))(w), want, rtol=1e-4)


@pytest.mark.parametrize("around", ["jit", "cond", "scan", "lower"])
def test_what_is_known_bounds_the_calls_of_a_program(around):
    def call():
        return scaled(jnp.float32(0.3), 0.7, 10)

    run = {
        "jit": jax.jit(call),
        "cond": lambda: jax.lax.cond(jnp.array(True), call, lambda: jnp.float32(0)),
        "scan": lambda: jax.lax.scan(lambda c, _: (c + call(), None), 0.0, None, 2)[0] / 2,
        "lower": lambda: jax.jit(call).lower().compile()(),
    }[around]
    np.testing.assert_allclose(run(), call(), rtol=1e-6)


def test_index_arrays_that_different_vmaps_map():
    @jr.rec_fn
    def fold(w, left, right, i):
        def node():
            below = fold(w, left, right, left[i]), fold(w, left, right, right[i])
            return sine(below[0] * w + below[1])

        return jr.cond(left[i] < 0, lambda: w, node)

    left = jnp.array([[1, 3, -1, -1, -1]] * 3)
    right = jnp.array([[2, 4, -1, -1, -1]] * 2)
    run = jax.vmap(jax.vmap(fold, (None, 0, None, None)), (None, None, 0, None))
    want = fold(0.5, left[0], right[0], 0)
    np.testing.assert_allclose(jax.jit(run)(0.5, left, right, 0), np.full((2, 3), want), rtol=1e-6)
