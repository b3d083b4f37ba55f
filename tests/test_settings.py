"""Settings of JAX that are for the arrays of users: jaxrec keeps to them, or they pass it by."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from waves import tanh
from zoo import assert_close

import jaxrec as jr


def test_a_search_for_nan_begins_after_the_first_gradient():
    """Rows of tapes that no call writes hold whatever memory does, unless they are looked at."""

    @jr.rec_fn(max_calls=64)
    def power(w, n):
        return jr.cond(n == 0, lambda: w * 1.0, lambda: tanh(w * power(w, n - 1)))

    def gradient():
        return jax.grad(lambda w: power(w, 5).sum())(jnp.linspace(0.1, 1.0, 8))

    expected = gradient()
    for _ in range(5):
        freed = [np.full((n, 8), np.nan, np.float32) for n in range(4, 300)]
        del freed
        with jax.debug_nans(True):
            assert_close(gradient(), expected, 1e-6)


@contextlib.contextmanager
def strict(executor: str, x64: bool) -> Iterator[None]:
    """Settings of JAX that are for the user's arrays: those of jaxrec have to keep them too."""
    with (
        jax.enable_checks(True),
        jax.enable_x64(x64),
        jax.numpy_dtype_promotion("strict"),
        jax.numpy_rank_promotion("raise"),
        jr.executor(executor),
    ):
        yield


def turning():
    """A recursion, and what it comes to after two calls."""

    @jr.rec_fn(max_calls=16)
    def turn(w, n, x):
        zero, one = jnp.zeros_like(n), jnp.ones_like(n)
        return jr.cond(n <= zero, lambda: jnp.sin(x), lambda: turn(w, n - one, x @ w))

    return turn, lambda w, x: jnp.sin(x @ w @ w)


def operands():
    w, x = jnp.eye(3) * 0.5 + 0.1, jnp.linspace(0.1, 1.0, 3)
    return w.astype(jnp.float32), x.astype(jnp.float32)


@pytest.mark.parametrize(
    ("executor", "x64"),
    [
        ("graph", True),
        ("host", False),
        pytest.param("reference", True, marks=pytest.mark.exhaustive),
    ],
)
def test_types_and_ranks_that_never_promote(executor, x64):
    turn, plain = turning()

    def total(w, x):
        return turn(w, jnp.int32(2), x).sum()

    def summed(w, x):
        many = jr.collect(turn, (None, None, 0))(w, jnp.int32(2), x)[1]
        return jnp.where(many.valid[:, None], many.results, jnp.zeros_like(many.results)).sum()

    w, x = operands()
    with strict(executor, x64):
        assert_close(turn(w, jnp.int32(2), x), plain(w, x), 1e-5)
        assert_close(jax.grad(total)(w, x), jax.grad(lambda w: plain(w, x).sum())(w), 1e-5)
        want = jax.grad(lambda w: 3 * 2 * plain(w, x).sum())(w)
        assert_close(jax.grad(summed)(w, jnp.stack([x, x])), want, 1e-5)
        batched = jax.vmap(lambda x: jr.collect(turn)(w, jnp.int32(2), x)[1].valid)
        assert batched(jnp.stack([x, x])).sum() == 6


@pytest.mark.parametrize(
    ("executor", "x64"),
    [
        ("graph", True),
        pytest.param("host", False, marks=pytest.mark.exhaustive),
        pytest.param("reference", True, marks=pytest.mark.exhaustive),
    ],
)
def test_second_derivatives_never_promote(executor, x64):
    turn, plain = turning()
    w, x = operands()
    with strict(executor, x64):
        want = jax.hessian(lambda w: plain(w, x).sum())(w)
        assert_close(jax.hessian(lambda w: turn(w, jnp.int32(2), x).sum())(w), want, 1e-5)
