"""Floating scalars that all calls pass on: they may decide, and count, in one cell or in none."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from waves import tanh

import jaxrec as jr


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("use", [jnp.floor, jnp.sign, jax.lax.stop_gradient, lambda s: s > 0.5])
def test_a_scalar_whose_cotangent_is_zero_in_a_cell(executor, use):
    @jr.rec_fn
    def fold(s, x, n):
        return jr.cond(n == 0, lambda: x * use(s), lambda: tanh(s * fold(s, x, n - 1)))

    def plain(s, x, n):
        return x * use(s) if n == 0 else jnp.tanh(s * plain(s, x, n - 1))

    x = jnp.array([0.1, -0.2, 0.3])
    with jr.executor(executor):
        slope = jax.grad(lambda s: fold(s, x, 3).sum())(1.5)
    np.testing.assert_allclose(slope, jax.grad(lambda s: plain(s, x, 3).sum())(1.5), rtol=1e-5)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_a_scalar_that_only_decides_has_no_gradient(executor):
    @jr.rec_fn
    def shrink(w, low, x):
        return jr.cond(jnp.sum(x) < low, lambda: x * w, lambda: shrink(w, low, x * 0.5))

    with jr.executor(executor):
        slopes = jax.grad(lambda w, low: shrink(w, low, jnp.ones(3)).sum(), (0, 1))(2.0, 0.5)
    np.testing.assert_allclose(slopes, [3 / 8, 0])
