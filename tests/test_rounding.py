"""What control decides by is what cells compute with, to the last bit.

XLA rounds once where the machine rounds twice, so these numbers differ if each computes its own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

WIDE = jnp.ones(100)


@jr.rec_fn(max_calls=20)
def guarded_branch(i, w):
    t = i * 0.1 - 0.3
    return jr.cond(t >= 0, lambda: jnp.sqrt(t) * w, lambda: guarded_branch(i + 1, w))


@jr.rec_fn(max_calls=20)
def guarded_selection(i, w):
    t = i * 0.1 - 0.3
    is_positive = t >= 0
    root = jnp.where(is_positive, jnp.sqrt(jnp.where(is_positive, t, 1.0)), -1.0)
    return jr.cond(i >= 3, lambda: root * w, lambda: guarded_selection(i + 1, w))


@jr.rec_fn(max_calls=20)
def guarded_choice_of_jax(i, w):
    t = i * 0.1 - 0.3
    root = jax.lax.cond(t >= 0, lambda: jnp.sqrt(t), lambda: -1.0)
    return jr.cond(i >= 3, lambda: root * w, lambda: guarded_choice_of_jax(i + 1, w))


@jr.rec_fn(max_calls=20)
def of_two_numbers(x, y, w):
    d = x * x - y
    return jr.cond(d >= 0, lambda: jnp.sqrt(d) * w, lambda: of_two_numbers(-x, y * 0.5, w))


@jr.rec_fn(max_calls=200)
def by_a_quotient(x, w):
    rest = x / 7.0 - jnp.floor(x / 7.0)
    return jr.cond(rest == 0, lambda: rest * w, lambda: by_a_quotient(x - 1.0, w))


@jr.rec_fn(max_calls=600)
def carried(x, n, w):
    """A chaotic sequence, which is another one after some fifty other roundings."""
    is_done = (x < 0.1) | (n == 0)
    return jr.cond(is_done, lambda: x * w, lambda: carried(3.9 * (x - x * x), n - 1, w))


@jr.rec_fn(max_calls=20)
def of_a_result(x, n, w):
    """What is compared follows from a result, so that the scheduler waits for it."""

    def more():
        size, _ = of_a_result(x, n - 1, w)
        t = size * 0.1 - 0.3

        def root():
            return size, jnp.sqrt(t) * w + 0 * of_a_result(x, 0, w)[1]

        return jr.cond(t >= 0, root, lambda: (size, 0 * w))

    return jr.cond(n <= 0, lambda: (jnp.sum(w) * x, w), more)


SQUARE = np.float32(1.6)
PROGRAMS = {
    "branch": (guarded_branch, (0, WIDE)),
    "selection": (guarded_selection, (0, WIDE)),
    "choice of jax": (guarded_choice_of_jax, (0, WIDE)),
    "two numbers": (of_two_numbers, (SQUARE, SQUARE * SQUARE, WIDE)),
    "quotient": (by_a_quotient, (np.float32(50.0), WIDE)),
    "carried": (carried, (np.float32(0.3), 400, WIDE)),
}


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]


@pytest.fixture
def expected(program):
    fun, args = program
    with jr.executor("reference"):
        return fun(*args)


def test_values(program, expected):
    fun, args = program
    np.testing.assert_array_equal(fun(*args), expected)
    np.testing.assert_array_equal(jax.jit(fun)(*args), expected)
    with jr.executor("host"):
        np.testing.assert_array_equal(fun(*args), expected)


def test_lanes(program, expected):
    fun, (*args, w) = program
    made = jax.vmap(lambda scale: fun(*args, scale * w))(jnp.ones(3))
    np.testing.assert_allclose(made, jnp.stack([expected] * 3), rtol=1e-6)


def test_gradients_by_data(program):
    fun, (*args, w) = program

    def gradient():
        return jax.grad(lambda w: jnp.sum(fun(*args, w)))(w)

    with jr.executor("reference"):
        expected = gradient()
    np.testing.assert_array_equal(gradient(), expected)
    with jr.executor("host"):
        np.testing.assert_array_equal(gradient(), expected)


@pytest.mark.parametrize("second", [False, True])
def test_gradients_by_what_decides(second):
    @jr.rec_fn(max_calls=30)
    def halved(x, w):
        rest = x * 0.7 - 0.1
        return jr.cond(rest < 0.2, lambda: rest**3 * w, lambda: halved(rest, w * rest))

    def loss(x):
        return jnp.sum(halved(x, WIDE) ** 2)

    derivative = jax.grad(jax.grad(loss)) if second else jax.grad(loss)
    with jr.executor("reference"):
        expected = derivative(3.0)
    np.testing.assert_allclose(derivative(3.0), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(derivative)(3.0), expected, rtol=1e-5)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_numbers_of_results(executor):
    with jr.executor(executor):
        assert not jnp.isnan(of_a_result(np.float32(0.03), 1, WIDE)[1]).any()


def test_collected_calls():
    @jr.rec_fn(max_calls=20)
    def rooted(i, scale):
        t = i * 0.1 - 0.3
        return jr.cond(t >= 0, lambda: jnp.sqrt(t) * scale, lambda: rooted(i + 1, scale))

    assert jr.collect(rooted)(0, 2.0)[0] == rooted(0, 2.0) == 0


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_narrow_floats(dtype):
    @jr.rec_fn(max_calls=50)
    def stepped(x, n, w):
        after = x * dtype(0.7) - dtype(0.1)
        is_done = (after < dtype(-0.25)) | (n == 0)
        return jr.cond(is_done, lambda: after * w, lambda: stepped(after, n - 1, w))

    args = dtype(3.0), 40, jnp.ones(100, dtype)
    with jr.executor("reference"):
        expected = stepped(*args)
    np.testing.assert_array_equal(stepped(*args), expected)


def test_precision_that_is_reduced_stays_so_under_a_gradient():
    """JAX marks residuals by the same operation, and those marks round nothing."""

    @jr.rec_fn(max_calls=8)
    def power(x, n):
        return jr.cond(
            n == 0, lambda: jax.lax.reduce_precision(x, 5, 3), lambda: x * power(x, n - 1)
        )

    x = jnp.linspace(1, 2, 20)
    value, _ = jax.value_and_grad(lambda x: jnp.sum(power(x, 2)))(x)
    rounded = x**2 * jax.lax.reduce_precision(x, 5, 3)
    np.testing.assert_allclose(value, jnp.sum(rounded), rtol=1e-6)
    assert abs(value - jnp.sum(x**3)) > 0.01
