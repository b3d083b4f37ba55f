"""Indices out of range: an error where they decide calls, elsewhere what JAX reads."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host"])
transforms = pytest.mark.parametrize("transform", [lambda f: f, jax.jit])


@executors
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_of_a_type_that_does_not_reach_the_end(executor, dtype):
    table = jnp.arange(300)

    @jr.rec_fn
    def total(x, n):
        k = (n * 60).astype(dtype)
        return jr.cond(n < 1, lambda: x, lambda: table[k] + total(x, n - 1))

    with jr.executor(executor):
        assert total(0, 2) == 180  # on the machine for scalars
        np.testing.assert_array_equal(total(jnp.zeros(2), 2), [180, 180])


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_of_the_only_element(executor):
    @jr.rec_fn
    def follow(x, following, i):
        return jr.cond(following[i] < 0, lambda: x, lambda: x + follow(x, following, following[i]))

    x = jnp.ones(2)
    with jr.executor(executor):
        np.testing.assert_array_equal(follow(x, jnp.array([-1]), 0), x)
        with pytest.raises(
            jr.JaxRecError, match=r"follow read following\[5\], which is out of range"
        ):
            follow(x, jnp.array([5]), 0)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_of_an_unsigned_type_that_has_no_minus_one(executor, dtype):
    @jr.rec_fn
    def last(x, following, i):
        return jr.cond(following[i] < 0, lambda: x, lambda: last(x, following, following[i]))

    following = jnp.array([1, 0], dtype) - jnp.array(1, dtype)
    told = rf"check where the index .* from: -1 is {following[1]} where the type is unsigned\."
    with jr.executor(executor), pytest.raises(jr.JaxRecError, match=f"(?i){told}"):
        last(jnp.ones(2), following, 1)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_of_one_behind_the_last_of_255(executor):
    @jr.rec_fn
    def last(x, following, i):
        return jr.cond(following[i] < 0, lambda: x, lambda: last(x, following, following[i]))

    following = jnp.full(255, -1).at[3].set(255)
    with jr.executor(executor), pytest.raises(jr.JaxRecError, match=r"255 .* comes from\.$"):
        last(jnp.ones(2), following, 3)


@executors
@pytest.mark.parametrize("width", [1, 64, 65])
@pytest.mark.parametrize("at", [-9, 5])
def test_of_rows(executor, width, at):
    table = jnp.arange(3.0 * width).reshape(3, width)

    @jr.rec_fn
    def total(table, n):
        return jr.cond(n == 0, lambda: table[0] * 0, lambda: table[n + at] + total(table, n - 1))

    with jr.executor(executor):
        found = total(table, 2)
    np.testing.assert_array_equal(found, table[2 + at] + table[1 + at])


@transforms
def test_of_a_function_of_scalars(transform):
    @jr.rec_fn
    def last(table, n):
        return jr.cond(n == 0, lambda: table[n + 5], lambda: last(table, n - 1))

    assert transform(last)(jnp.arange(3), 3) == 2


@executors
def test_of_a_read_that_is_masked(executor):
    """The index is an integer that cells take from the control plane."""

    @jr.rec_fn
    def total(rows, at, n):
        def more():
            return rows[jnp.where(n < 3, at[n], 0)] + total(rows, at, n - 1)

        return jr.cond(n == 0, lambda: jnp.zeros(80), more)

    rows = jnp.arange(2 * 80.0).reshape(2, 80)
    with jr.executor(executor):
        found = total(rows, jnp.array([1, 1, 1]), 4)
    np.testing.assert_array_equal(found, 2 * rows[0] + 2 * rows[1])


@executors
def test_where_an_array_of_one_element_decides(executor):
    @jr.rec_fn
    def down(at, n):
        return jr.cond(at[n] == n, lambda: n, lambda: down(at, n + 1))

    with jr.executor(executor):
        with pytest.raises(jr.JaxRecError, match=r"down read at\[1\], .* of 1 element"):
            down(jnp.array([3]), 0)
        assert down(jnp.array([0]), 0) == 0


def test_where_an_array_of_one_element_does_not():
    @jr.rec_fn
    def total(table, n):
        return jr.cond(n == 0, lambda: 0, lambda: table[n + 5] + total(table, n - 1))

    assert total(jnp.array([3]), 4) == 12


def test_of_a_block():
    @jr.rec_fn
    def total(table, n):
        def more():
            return jax.lax.dynamic_slice(table, (n,), (2,)) + total(table, n - 1)

        return jr.cond(n == 0, lambda: jnp.zeros(2), more)

    table = jnp.arange(4.0)
    np.testing.assert_array_equal(total(table, 4), table[1:3] + 3 * table[2:4])


@pytest.mark.parametrize(
    ("executor", "transform"),
    [("graph", lambda f: f), ("host", lambda f: f), ("graph", jax.jit)],
)
def test_where_it_decides_later(executor, transform):
    """The value decides by way of an argument of a call, and of the result of one."""

    @jr.rec_fn
    def twice(k):
        return jr.cond(k == 0, lambda: 0, lambda: 2 + twice(k - 1))

    @jr.rec_fn(max_calls=99)
    def down(at, k, n):
        return jr.cond(twice(k) < 4, lambda: n, lambda: down(at, at[n], n + 1))

    with jr.executor(executor):
        assert transform(down)(jnp.array([5, 5, 1]), 5, 0) == 3
        # From a small compiled program JAX makes it a ValueError.
        errors = (jr.JaxRecError, jax.errors.JaxRuntimeError, ValueError)
        with pytest.raises(errors, match=r"read at\[3\]"):
            jax.block_until_ready(transform(down)(jnp.array([5, 5, 5]), 5, 0))
