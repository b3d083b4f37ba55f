"""Derivatives of `lax.cond` and `lax.switch` around an invocation, in lanes that differ in it.

What JAX keeps of a branch is zero for a lane that did not take it, and so are the arguments there:
a list that leads back to its start, a number that never grows. No lane may be run on them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import in_turn
from waves import sine

import jaxrec as jr

NEXT = jnp.array([1, 2, -1])
TAKEN = jnp.array([True, False, True])
POINTS = jnp.array([0.2, 0.3, 0.4])


@jr.rec_fn(max_calls=50)
def down(w, following, i):
    return jr.cond(following[i] < 0, lambda: w, lambda: sine(down(w, following, following[i])))


@jr.rec_fn(max_calls=50)
def grown(x):
    return jr.cond(jnp.sum(x) >= 1, lambda: x, lambda: grown(2 * x))


def planned(w):
    return down(w, NEXT, 0)


def stepped(w):
    return jnp.sum(grown(jnp.ones(2) * w) ** 2)


def where(taken, w, fun):
    return jax.lax.cond(taken, fun, lambda w: 3 * w, w)


EXPECTED = {
    planned: jnp.cos(jnp.sin(POINTS)) * jnp.cos(POINTS),
    stepped: jnp.array([4 * 64 * 0.2 / 4, 0, 4 * 4 * 0.4]),
}
programs = pytest.mark.parametrize("fun", EXPECTED)


def expected(fun: Any, taken: Any = TAKEN) -> Any:
    return jnp.where(taken, EXPECTED[fun], 3.0)


@pytest.mark.parametrize(("fun", "executor"), in_turn(EXPECTED, ("graph", "host")))
def test_in_lanes(fun, executor):
    with jr.executor(executor):
        slopes = jax.vmap(jax.grad(lambda w, p: where(p, w, fun)))(POINTS, TAKEN)
    np.testing.assert_allclose(slopes, expected(fun), rtol=1e-5)


@programs
def test_compiled(fun):
    slope = jax.jit(jax.vmap(jax.grad(lambda w, p: where(p, w, fun))))
    np.testing.assert_allclose(slope(POINTS, TAKEN), expected(fun), rtol=1e-5)
    np.testing.assert_array_equal(slope(POINTS, jnp.zeros(3, bool)), 3.0)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_in_no_lane(executor):
    with jr.executor(executor):
        slopes = jax.vmap(jax.grad(lambda w, p: where(p, w, planned)))(POINTS, ~TAKEN & TAKEN)
    np.testing.assert_array_equal(slopes, 3.0)


@pytest.mark.parametrize(("fun", "executor"), in_turn(EXPECTED, ("graph", "host"), 1))
def test_in_lanes_of_lanes(fun, executor):
    """In the second row no lane takes the branch."""
    taken = jnp.stack([TAKEN, jnp.zeros(3, bool), ~TAKEN])
    slope = jax.vmap(jax.vmap(jax.grad(lambda w, p: where(p, w, fun))), (None, 0))
    with jr.executor(executor):
        slopes = slope(POINTS, taken)
    exact = jnp.stack([jax.grad(fun)(w) for w in POINTS])
    np.testing.assert_allclose(slopes, jnp.where(taken, exact, 3.0), rtol=1e-5)


def test_linear_functions():
    push = jax.vmap(lambda w, p: jax.linearize(lambda w: where(p, w, planned), w)[1](1.0))
    np.testing.assert_allclose(push(POINTS, TAKEN), expected(planned), rtol=1e-5)


def test_a_choice_in_a_loop():
    def loss(w, p):
        def step(w, q):
            return jax.lax.cond(p & q, lambda: planned(w) + w, lambda: 3 * w), None

        return jax.lax.scan(step, w, jnp.array([True, False]))[0]

    slopes = jax.vmap(jax.grad(loss))(POINTS, TAKEN)
    exact = jnp.where(TAKEN, 3 * (EXPECTED[planned] + 1), 9.0)
    np.testing.assert_allclose(slopes, exact, rtol=1e-5)


@pytest.mark.slow
@programs
def test_second_derivatives(fun):
    second = jax.vmap(jax.hessian(lambda w, p: where(p, w, fun)))(POINTS, TAKEN)
    exact = jnp.stack([jax.hessian(fun)(w) for w in POINTS])
    np.testing.assert_allclose(second, jnp.where(TAKEN, exact, 0.0), rtol=1e-4)
