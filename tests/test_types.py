"""The types of results while they are inferred, and static arguments that are equal but differ."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr


class TestWeakResults:
    """A choice between numbers of Python is an array, as it is outside of recursion."""

    def test_a_comparison_is_an_array(self):
        @jr.rec_fn
        def f(n):
            s = jr.cond(n > 2, lambda: 2, lambda: 4)
            return jr.cond(n <= 0, lambda: ~(s == 0), lambda: ~f(n - 1))

        @jr.rec_fn
        def pick(n):
            return jr.cond(f(n), lambda: 1.0, lambda: 0.0)

        assert [f(n).tolist() for n in range(4)] == [True, False, True, False]
        assert pick(1) == 0.0

    def test_a_root_is_real(self):
        @jr.rec_fn
        def f(n):
            s = jr.cond(n > 2, lambda: 2.0, lambda: 4.0)
            return jr.cond(n <= 0, lambda: (s - 1) ** 0.5, lambda: f(n - 1) + 1)

        assert f(1).dtype == jnp.float32
        assert f(1) == pytest.approx(math.sqrt(3) + 1)

    def test_a_division_and_a_method(self):
        @jr.rec_fn
        def two(n):
            return jr.cond(n <= 0, lambda: 2.0, lambda: two(n - 1))

        @jr.rec_fn
        def half(n):
            return jr.cond(n <= 0, lambda: 1.0 / two(3), lambda: half(n - 1)).astype(jnp.float32)

        assert half(1) == 0.5

    def test_an_array_stays_weak(self):
        @jr.rec_fn
        def f(w, n):
            s = jr.cond(n > 2, lambda: jnp.full(3, 1.0) * 0 + 1.0, lambda: jnp.broadcast_to(2.0, 3))
            return jr.cond(n <= 0, lambda: w * s.astype(w.dtype), lambda: f(w, n - 1))

        @jr.rec_fn
        def g(w, n):
            s = jr.cond(n > 2, lambda: jnp.broadcast_to(1.0, 3), lambda: jnp.broadcast_to(2.0, 3))
            return jr.cond(n <= 0, lambda: w * s, lambda: g(w, n - 1))

        w = jnp.ones(3, jnp.float16)
        assert f(w, 2).dtype == g(w, 2).dtype == jnp.float16
        np.testing.assert_array_equal(g(w, 2), [2, 2, 2])


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_results_that_follow_from_numbers_of_python_give_way(executor, shape):
    """As in JAX: what such a number is computed with keeps its type."""

    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: jnp.full(shape, 1.0), lambda: x * power(x, n - 1))

    half = jnp.bfloat16(0.5)
    with jr.executor(executor):
        many = jax.vmap(power, (0, None))(jnp.ones(2, jnp.bfloat16), 3)
        results = [power(2.0, 3), power(2.0, 3), jax.vmap(power, (None, 0))(2.0, jnp.arange(3))]
        if executor == "graph":
            results += [jax.jit(power)(2.0, 3), jax.vjp(lambda x: power(x, 3), 2.0)[0]]
            results.append(jr.collect(power)(2.0, 3)[1].results)
        assert all(x.weak_type and (half * x).dtype == jnp.bfloat16 for x in results)
        assert not power(np.float32(2.0), 3).weak_type
        assert many.dtype == power(half, 3).dtype == jnp.bfloat16


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_numbers_of_python_have_the_declared_type(executor, dtype):
    @jr.rec_fn(out=jax.ShapeDtypeStruct((), dtype))
    def f(n):
        below = jax.lax.cond(n <= 0, lambda: jnp.zeros((), dtype), lambda: f(n - 1))
        return jnp.where(below > 0, 1, 2)

    with jr.executor(executor):
        assert f(3) == 1
        assert f(3).dtype == dtype


@pytest.mark.parametrize("count", [4, 6])
def test_a_ring_of_functions_of_which_one_has_a_firm_type(count):
    def make(k):
        scale = 0.5 if k == count - 1 else 1

        @jr.rec_fn
        def link(n):
            return jr.cond(n <= 0, lambda: 1, lambda: scale * ring[(k + 1) % count](n - 1))

        return link

    ring = [make(k) for k in range(count)]
    assert ring[0](count + 1) == 0.5


def test_static_arguments_that_are_equal_but_differ():
    @functools.partial(jr.rec_fn, static_argnums=1)
    def sign(n, s):
        return jr.cond(n <= 0, lambda: math.copysign(1.0, s), lambda: sign(n - 1, -s))

    @functools.partial(jr.rec_fn, static_argnums=1)
    def total(n, index):
        return jr.cond(
            n <= 0, lambda: jnp.arange(4.0)[index[0]].sum(), lambda: total(n - 1, (True,))
        )

    assert sign(1, 0.0) == -1.0
    assert sign(1, -0.0) == 1.0
    assert total(1, (1,)) == 6.0
    assert total(0, (1,)) == 1.0
    assert sign(2, math.nan) == 1.0
    traced = sign.cache_info().traces
    sign(2, math.nan)
    assert sign.cache_info().traces == traced


class TestNumbersOfPython:
    """Among the arguments they give way to the types of arrays, as in other code of JAX."""

    @pytest.mark.parametrize("executor", ["graph", "host", "reference"])
    def test_small_integers(self, executor):
        @jr.rec_fn
        def scaled(x, s, n):
            return jr.cond(n <= 0, lambda: x * s, lambda: scaled(x, s, n - 1))

        x = jnp.arange(3, dtype=jnp.uint8) + 100
        with jr.executor(executor):
            got = scaled(x, 3, 2)
            assert got.dtype == jnp.uint8
            np.testing.assert_array_equal(got, x * 3)
            assert scaled(x, jnp.int32(3), 2).dtype == jnp.int32

    def test_beside_a_constant(self):
        @jr.rec_fn
        def more(s, n):
            return jr.cond(n <= 0, lambda: jnp.int8(100) + s, lambda: more(s, n - 1))

        assert int(more(100, 1)) == -56
        assert int(more(jnp.int32(100), 1)) == 200
        assert int(more(100, 1)) == -56

    def test_an_index_takes_the_type_of_the_arrays_that_follow(self):
        @jr.rec_fn
        def total(parent, x, i):
            return jr.cond(i < 0, lambda: 0.0, lambda: x[i] + total(parent, x, parent[i]))

        parent, x = jnp.array([-1, 0, 1], jnp.int16), jnp.array([1.0, 2.0, 4.0])
        assert float(total(parent, x, 2)) == 7.0
        assert float(total(parent, x, jnp.int16(1))) == 3.0
        assert total.cache_info().traces == 1


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("size", [3, 70])
def test_a_body_that_computes_with_64_bits_for_itself(executor, size):
    def excess(w):
        with jax.enable_x64(True):
            near = jnp.where(w.astype(jnp.float64) > 1, jnp.float64(1 + 1e-10), 2.0)
            return (1e10 * (near - 1)).astype(jnp.float32)

    @jr.rec_fn
    def last(w, n):
        return jr.cond(n <= 0, lambda: w * excess(w), lambda: last(w, n - 1) + 1)

    w = jnp.arange(1.0, size + 1)
    want = jax.jit(excess)(w)
    with jr.executor(executor):
        np.testing.assert_allclose(last(w, 2), w * want + 2, rtol=1e-6)
        np.testing.assert_allclose(jax.grad(lambda w: jnp.sum(last(w, 2)))(w), want, rtol=1e-6)


def widened(x):
    with jax.enable_x64(True):
        return x.astype(jnp.float64) * (1 + 1e-10)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_a_choice_of_64_bits_in_a_body(executor):
    @jr.rec_fn
    def excess(w, n):
        def again():
            rest = excess(w, n - 1)
            with jax.enable_x64(True):
                return 1 + 1e-10 * rest.astype(jnp.float64)

        near = jr.cond(n <= 0, lambda: widened(w), again)
        with jax.enable_x64(True):
            return (1e10 * (near - 1)).astype(jnp.float32)

    w = jnp.ones(3)
    with jr.executor(executor):
        np.testing.assert_allclose(excess(w, 2), w, rtol=1e-6)
        slopes = jax.grad(lambda w: jnp.sum(excess(w, 2)))(w)
        np.testing.assert_allclose(slopes, 1e10 * w, rtol=1e-6)


def test_calls_that_take_or_return_64_bits_where_they_are_off():
    @jr.rec_fn
    def taking(w, n):
        return jr.cond(n <= 0, lambda: w.astype(jnp.float32), lambda: taking(w, n - 1))

    @jr.rec_fn
    def giving(w, n):
        return taking(widened(w), n)

    @jr.rec_fn
    def returning(w, n):
        return jr.cond(n <= 0, lambda: widened(w), lambda: returning(w, n - 1))

    @jr.rec_fn
    def closing(w, n):
        wide = widened(w)

        @jr.rec_fn
        def inner(m):
            return jr.cond(m <= 0, lambda: wide.astype(jnp.float32), lambda: inner(m - 1))

        return inner(n)

    for f, what in (
        (closing, r"a value that inner closes over is float64\[3\], .* where closing is called"),
        (giving, r"argument w of taking is float64\[3\], .* where giving is called"),
        (returning, r"a result of returning is float64\[3\], .* where returning is called"),
    ):
        with pytest.raises(jr.SignatureError, match=what):
            f(jnp.ones(3), 2)
    with jax.enable_x64(True):
        np.testing.assert_allclose(returning(jnp.ones(3), 2) - 1, 1e-10, rtol=1e-5)
