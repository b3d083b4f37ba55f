"""Several `vmap` around a derivative, each over other arguments, and over no examples."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr


@jr.rec_fn
def scaled(w, x, n):
    return jr.cond(n <= 0, lambda: x * w, lambda: jnp.sin(scaled(w, x * w, n - 1)))


def test_over_weights_and_over_control():
    w, n = jnp.array([0.3, 0.5]), jnp.array([1, 3, 2])
    grad = jax.grad(scaled)
    want = [[grad(a, 0.7, int(k)) for k in n] for a in w]
    got = jax.vmap(jax.vmap(grad, (None, None, 0)), (0, None, None))(w, 0.7, n)
    np.testing.assert_allclose(got, want, rtol=1e-5)
    got = jax.vmap(jax.vmap(grad, (0, None, None)), (None, None, 0))(w, 0.7, n)
    np.testing.assert_allclose(got, np.transpose(want), rtol=1e-5)


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
