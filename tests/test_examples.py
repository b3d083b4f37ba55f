"""The examples give what plain Python gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr
from examples import evaluator, mandelbrot, nuts, search, simpson


def peak(theta, x):
    """A peak at theta[0] of width theta[1]: smooth far from it, steep at it."""
    return jnp.exp(-(((x - theta[0]) / theta[1]) ** 2)) + theta[0] * x


def plain_simpson(f, start, end, tolerance):
    calls = 0

    def part(a, b):
        return (b - a) / 6 * (f(a) + 4 * f((a + b) / 2) + f(b))

    def refine(a, b, tolerance):
        nonlocal calls
        calls += 1
        middle = (a + b) / 2
        halves = part(a, middle) + part(middle, b)
        error = halves - part(a, b)
        if abs(error) <= 15 * tolerance:
            return halves + error / 15
        return refine(a, middle, tolerance / 2) + refine(middle, b, tolerance / 2)

    return refine(start, end, tolerance), calls


def test_adaptive_quadrature_and_its_gradient():
    theta = jnp.asarray([0.3, 0.2])

    def integral(theta):
        return simpson.integrate(peak, theta, -1.0, 2.0, 1e-5)

    value, gradient = jax.value_and_grad(integral)(theta)
    at, width = 0.3, 0.2
    plain, calls = plain_simpson(
        lambda x: np.exp(-(((x - at) / width) ** 2)) + at * x, -1.0, 2.0, 1e-5
    )
    assert calls > 12
    np.testing.assert_allclose(value, plain, rtol=1e-5)
    # The peak lies inside: its area is sqrt(pi) * width, wherever it is.
    np.testing.assert_allclose(value, np.sqrt(np.pi) * width + 1.5 * at, atol=1e-4)
    np.testing.assert_allclose(gradient, [1.5, np.sqrt(np.pi)], atol=5e-3)


def test_adaptive_quadrature_under_jit_and_vmap():
    thetas = jnp.asarray([[0.3, 0.2], [0.0, 0.5], [1.0, 0.3]])

    def integral(theta):
        return simpson.integrate(peak, theta, -1.0, 2.0, 1e-3, max_calls=512)

    got = jax.jit(jax.vmap(jax.grad(integral)))(thetas)
    wanted = [jax.grad(integral)(theta) for theta in thetas]
    np.testing.assert_allclose(got, np.stack(wanted), rtol=1e-4, atol=1e-5)


PRECISION = jnp.asarray([[2.0, 0.6], [0.6, 1.0]])


def gaussian(x):
    return -0.5 * x @ PRECISION @ x


leap = jax.jit(lambda q, p, step: nuts.leapfrog(gaussian, q, p, step))
joined, turned = jax.jit(nuts.joined), jax.jit(nuts.no_u_turn)


def plain_tree(position, momentum, log_slice, step, height, key):
    if height == 0:
        q, p = leap(position, momentum, step)
        energy = gaussian(q) - p @ p / 2
        size = jnp.int32(log_slice <= energy)
        return nuts.Trajectory(q, p, q, p, q, size, log_slice < energy + nuts.MAX_ERROR)
    keys = jax.random.split(key, 3)
    first = plain_tree(position, momentum, log_slice, step, height - 1, keys[0])
    if not first.goes_on:
        return first
    end = first[2:4] if step > 0 else first[:2]
    second = plain_tree(*end, log_slice, step, height - 1, keys[1])
    return joined(first, second, step > 0, keys[2])


def plain_draw(position, step, key):
    """Algorithm 3 of the paper with Python's recursion and Python's loop."""
    keys = jax.random.split(key, 3)
    momentum = jax.random.normal(keys[0], position.shape)
    log_slice = gaussian(position) - momentum @ momentum / 2
    log_slice += jnp.log(jax.random.uniform(keys[1]))
    back = front = (position, momentum)
    draw, size, key = position, 1, keys[2]
    for height in range(10):
        keys = jax.random.split(key, 4)
        forward = bool(jax.random.bernoulli(keys[0]))
        at, signed = (front, step) if forward else (back, -step)
        new = plain_tree(*at, log_slice, signed, height, keys[1])
        if forward:
            front = new[2:4]
        else:
            back = new[:2]
        if new.goes_on and jax.random.uniform(keys[2]) * size < new.size:
            draw = new.draw
        size, key = size + int(new.size), keys[3]
        if not (new.goes_on and turned(nuts.Trajectory(*back, *front, *new[4:]))):
            break
    return draw


def test_no_u_turn_sampler_draws_what_plain_recursion_draws():
    step, keys = jnp.float32(0.4), jax.random.split(jax.random.key(1), 4)
    position, wanted = jnp.asarray([1.0, -0.5]), jnp.asarray([1.0, -0.5])
    for key in keys:
        position = nuts.draw(gaussian, position, step, key)
        wanted = plain_draw(wanted, step, key)
        np.testing.assert_allclose(position, wanted, rtol=1e-5, atol=1e-6)


def test_no_u_turn_sampler_finds_the_covariance():
    @jax.jit
    def sweep(positions, keys):
        def one(position, key):
            return nuts.draw(gaussian, position, jnp.float32(0.4), key, max_calls=1 << 13)

        return jax.vmap(one)(positions, keys)

    positions, draws = jnp.zeros((64, 2)), []
    for key in jax.random.split(jax.random.key(2), 40):
        positions = sweep(positions, jax.random.split(key, 64))
        draws.append(positions)
    draws = np.concatenate(draws[5:])
    np.testing.assert_allclose(np.cov(draws.T), np.linalg.inv(PRECISION), atol=0.15)


@pytest.mark.parametrize(
    "text", ["7", "1+2*3", "(1+2)*3", "8/4/2-1", "-(2-5)*-2", "2*(3+(4-1)*2)-10/(1+1)", "3--2"]
)
def test_evaluator_of_expressions(text):
    tokens = evaluator.tokenize(text, 24)
    read = evaluator.expression(tokens, 0)
    np.testing.assert_allclose(read.value, eval(text), rtol=1e-6)
    assert int(read.end) == int(np.sum(np.asarray(tokens.kind) != evaluator.END))


def test_evaluator_of_many_expressions_with_derivatives():
    texts = ["1+2*3", "(1+2)*3", "8/4/2-1"]
    batch = jax.tree.map(lambda *x: jnp.stack(x), *(evaluator.tokenize(t, 12) for t in texts))
    evaluate = evaluator.expression.with_options(max_calls=128)

    def values(value):
        return jax.vmap(lambda k, v: evaluate(evaluator.Tokens(k, v), 0).value)(batch.kind, value)

    np.testing.assert_allclose(jax.jit(values)(batch.value), [7.0, 9.0, 0.0], rtol=1e-6)
    slopes = jax.jit(jax.grad(lambda v: jnp.sum(values(v))))(batch.value)
    # d(8/4/2 - 1): 1/8, -8/(4*4*2), -8/(4*2*2), -1, at the places of the numbers.
    np.testing.assert_allclose(slopes[2, [0, 2, 4, 6]], [0.125, -0.25, -0.5, -1.0], rtol=1e-6)
    np.testing.assert_allclose(slopes[1, [1, 3, 6]], [3.0, 3.0, 3.0], rtol=1e-6)


def test_mandelbrot_set():
    got = np.asarray(jax.jit(mandelbrot.image, static_argnums=(0, 1, 2))(24, 12, 30))
    for row, imag in enumerate(np.linspace(-1.2, 1.2, 12)):
        for column, real in enumerate(np.linspace(-2.2, 0.8, 24)):
            c, z, n = complex(real, imag), 0j, 0
            while abs(z) <= 2 and n < 30:
                z, n = z * z + c, n + 1
            # Rounding may shift an escape by a step.
            assert abs(int(got[row, column]) - n) <= (0 if n < 12 or n == 30 else 1)


def test_binary_search():
    values = jnp.asarray([1.0, 3.0, 3.0, 7.0, 9.0])
    for wanted in (0.0, 1.0, 3.0, 5.0, 9.0, 10.0):
        found = search.lower_bound(values, wanted, 0, 5)
        assert int(found) == int(np.searchsorted(values, wanted))


@pytest.mark.parametrize("executor", ["graph", "reference"])
def test_selection_by_partition(executor):
    values = np.random.default_rng(0).integers(0, 9, 15).astype(np.float32)
    with jr.executor(executor):
        got = [search.smallest(jnp.asarray(values), jnp.ones(15, bool), k) for k in (0, 4, 7, 14)]
    assert [float(x) for x in got] == np.sort(values)[[0, 4, 7, 14]].tolist()


def test_selection_in_many_arrays():
    values = np.random.default_rng(1).normal(size=(6, 15)).astype(np.float32)
    select = search.smallest.with_options(max_calls=128)
    medians = jax.jit(jax.vmap(lambda row: select(row, jnp.ones(15, bool), 7)))(values)
    np.testing.assert_array_equal(medians, np.median(values, axis=1))
