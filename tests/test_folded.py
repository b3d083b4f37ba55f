"""Operations whose rule for `vmap` makes one axis of the rows of a batch and another axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import cho_solve, solve_triangular

import jaxrec as jr

LOWER = jnp.array([[2.0, 0, 0], [0.3, 1.5, 0], [0.2, -0.4, 1.8]])
COLUMNS = jnp.array([[0.2, -0.4], [0.3, -0.5], [0.6, 0.1]])
IMAGES = jnp.arange(12.0).reshape(2, 2, 3) / 12


def convolved(w: Any, x: Any) -> Any:
    return jax.lax.conv_general_dilated(x, w, (1,), "SAME")


CELLS: dict[str, tuple[Callable[[Any, Any], Any], Any, Any]] = {
    "triangular": (lambda w, x: solve_triangular(w, x, lower=True), LOWER, COLUMNS),
    "cholesky": (lambda w, x: cho_solve((w, True), x), LOWER, COLUMNS),
    "convolution": (convolved, IMAGES, IMAGES),
}


def pair(cell: Callable[[Any, Any], Any], policy: Any) -> tuple[Any, Any]:
    """The recursion, and the same in plain Python: losses of weights and argument."""

    @jr.rec_fn(policy=policy)
    def rec(w, x, n):
        return jr.cond(n == 0, lambda: x, lambda: jnp.tanh(cell(w, rec(w, x, n - 1))))

    def plain(w, x, n):
        return x if n == 0 else jnp.tanh(cell(w, plain(w, x, n - 1)))

    return (lambda w, x: jnp.sum(rec(w, x, 3) ** 2)), (lambda w, x: jnp.sum(plain(w, x, 3) ** 2))


def assert_close(got: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.everything_saveable])
def test_gradients(name, policy):
    cell, w, x = CELLS[name]
    rec, plain = pair(cell, policy)
    assert_close(jax.grad(rec, (0, 1))(w, x), jax.grad(plain, (0, 1))(w, x))


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_gradients_of_a_batch(executor):
    cell, w, x = CELLS["triangular"]
    rec, plain = pair(cell, None)
    batch = jnp.stack([x, 2 * x, x / 2])
    expected = jax.vmap(jax.grad(plain, (0, 1)), (None, 0))(w, batch)
    with jr.executor(executor):
        assert_close(jax.vmap(jax.grad(rec, (0, 1)), (None, 0))(w, batch), expected)
        summed = jax.grad(lambda w: jax.vmap(rec, (None, 0))(w, batch).sum())(w)
    assert_close(summed, expected[0].sum(0))


def test_weights_that_differ_by_example():
    rec, plain = pair(convolved, None)
    image, weights = IMAGES[:1], jnp.stack([IMAGES, 2 * IMAGES])
    got = jax.vmap(jax.grad(rec, (0, 1)), (0, None))(weights, image)
    assert_close(got, jax.vmap(jax.grad(plain, (0, 1)), (0, None))(weights, image))


def test_complex_numbers_inside_of_a_cell():
    def spectrum(w, x):
        return jnp.abs(jnp.fft.fft(w) @ jnp.fft.fft(x))

    rec, plain = pair(spectrum, None)
    w, x = 0.3 * jnp.eye(3) + 0.1, jnp.array([0.1, 0.2, 0.3])
    assert_close(jax.grad(rec)(w, x), jax.grad(plain)(w, x))


def test_an_operation_of_several_results():
    @jr.rec_fn
    def power(w, n):
        def more():
            a, b = jax.lax.optimization_barrier((power(w, n - 1), w))
            return a * b

        return jr.cond(n == 0, lambda: w, more)

    assert float(power(0.5, 3)) == 0.0625
