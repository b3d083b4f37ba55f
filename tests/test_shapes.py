"""What loops, lanes and several types become in the graph."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr


def names(f, *args):
    return [function.name for function in f.graph(*args).functions]


def counting(step, **options):
    """A recursion over a counter whose recursive case is `step(itself, x, n)`."""

    @jr.rec_fn(**options)
    def f(x, n):
        return jr.cond(n == 0, lambda: x, lambda: step(f, x, n))

    return f


class TestHelpers:
    def test_while_loop(self):
        f = counting(
            lambda f, x, n: jax.lax.while_loop(
                lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + f(s[1] * 2, s[0])), (0, x)
            )[1]
        )
        assert names(f, 1.0, 3) == ["f", "f.while"]

        def plain(x, n):
            if n == 0:
                return x
            for k in range(n):
                x = x + plain(x * 2, k)
            return x

        assert float(f(1.0, 4)) == plain(1.0, 4)
        slope = jax.grad(f)(1.0, 4)
        assert float(slope) == plain(1.0, 4)

    def test_map_is_halved(self):
        f = counting(lambda f, x, n: jax.lax.map(lambda y: f(y, n - 1), x))
        x = jnp.zeros((20, 3))
        with pytest.raises(jr.SignatureError, match=r"x is float32\[3\], expected float32\[20,3\]"):
            f(x, 1)
        f = counting(lambda f, x, n: jax.lax.map(lambda y: f(x + y, n - 1).sum(0), x))
        assert names(f, x, 1) == ["f", "f.map[20]", "f.map[16]", "f.map[8]", "f.map[4]"]

    def test_few_iterations_and_lanes_need_no_helper(self):
        f = counting(lambda f, x, n: jax.lax.map(lambda k: f(x + k, n - 1), jnp.arange(3.0)).sum())
        assert names(f, 1.0, 1) == ["f"]
        f = counting(lambda f, x, n: jax.vmap(lambda k: f(x + k, n - 1))(jnp.arange(8.0)).sum())
        assert names(f, 1.0, 1) == ["f"]

    def test_scan_that_carries_an_index_calls_itself(self):
        def step(f, x, n):
            def one(state, _):
                m, y = state
                return (m // 2, y + f(x, m)), y

            (_, y), seen = jax.lax.scan(one, (n - 1, x), None, length=5)
            return y + seen.sum()

        f = counting(step)
        assert names(f, 1.0, 3) == ["f", "f.scan"]

        def plain(x, n):
            if n == 0:
                return x
            m, y, seen = n - 1, x, 0.0
            for _ in range(5):
                seen += y
                m, y = m // 2, y + plain(x, m)
            return y + seen

        assert float(f(1.0, 3)) == plain(1.0, 3)

    def test_loops_without_calls_stay_one_operation(self):
        f = counting(lambda f, x, n: jax.lax.fori_loop(0, 3, lambda k, y: y * 2, f(x, n - 1)))
        assert names(f, 1.0, 2) == ["f"]
        assert float(f(1.0, 2)) == 64.0

    def test_loop_of_no_iterations(self):
        f = counting(lambda f, x, n: jax.lax.map(lambda y: f(x + y, n - 1), jnp.zeros(0)).sum())
        assert float(f(2.0, 3)) == 0.0

    def test_capacity_follows_from_the_nodes(self):
        child = jnp.array([[1, 2], [-1, -1], [-1, -1]])

        @jr.rec_fn
        def f(child, i):
            def of(c):
                return jr.cond(c < 0, lambda: 1, lambda: f(child, c))

            return 1 + jax.lax.fori_loop(0, 2, lambda k, total: total + of(child[i, k]), 0)

        assert int(jax.jit(f)(child, 0)) == 7


class TestTypes:
    def test_a_helper_at_two_types(self):
        @jr.rec_fn
        def twice(x, n):
            return jr.cond(n == 0, lambda: x, lambda: twice(x * 2, n - 1))

        @jr.rec_fn(max_calls=64)
        def f(x, n):
            return twice(x, n), twice(jnp.full(3, x), n), twice(3, n)

        assert names(f, 1.5, 3) == ["f", "twice", "twice", "twice"]
        single, vector, whole = f(1.5, 3)
        assert (float(single), vector.tolist(), int(whole)) == (12.0, [12.0] * 3, 24)
        assert whole.dtype == jnp.int32

    def test_a_recursive_call_at_another_type(self):
        with pytest.raises(
            jr.SignatureError, match=r"f calls f with arguments.*\n.*float32\[2\], expected float32"
        ):
            counting(lambda f, x, n: f(jnp.stack([x, x]), n - 1).sum())(jnp.float32(1), 2)

    def test_choice_of_lanes_calls_only_what_is_chosen(self):
        @jr.rec_fn(max_calls=64)
        def down(x, n):
            def of(m, y):
                return jr.cond(m < 0, lambda: jnp.nan * y, lambda: y * down(x, m))

            below = jax.vmap(of)(jnp.stack([n - 1, n - 2]), jnp.array([2.0, 3.0]))
            return x + jnp.where(jnp.isnan(below), 0.0, below).sum()

        assert int(down.schedule(1.0, 3).num_calls) == 7
        assert np.isfinite(float(down(1.0, 3)))


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_a_function_without_results(executor):
    @jr.rec_fn
    def nothing(x, n):
        return jr.cond(n == 0, lambda: (), lambda: nothing(x, n - 1))

    x = jnp.ones(3)
    with jr.executor(executor):
        assert nothing(x, 3) == ()
        np.testing.assert_array_equal(jax.grad(lambda x: sum(nothing(x, 3), x.sum()))(x), x)
        assert jr.collect(nothing)(x, 3)[1].valid.sum() == 4
        assert nothing.schedule(x, 3).num_calls == 4


def test_memory_is_for_the_calls_of_each_shape():
    """The calls of a recursion by halves take as much memory at each of its sizes."""

    @partial(jr.rec_fn, static_argnames="size")
    def summed(w, x, size):
        if size == 16:
            return jnp.tanh(x @ w)
        half = size // 2
        left, right = summed(w, x[:half], half), summed(w, x[half:], half)
        return jnp.concatenate([left + right, left - right])

    def memory(size):
        run = jax.jit(partial(summed, size=size))
        found = run.lower(jnp.eye(16), jnp.ones(size)).compile().memory_analysis()
        assert found is not None
        return found.temp_size_in_bytes

    assert memory(4096) < 10 * memory(1024)  # and not 16


@pytest.mark.exhaustive
def test_memory_of_a_gradient_is_for_the_calls_of_each_shape():
    """What is kept of a recursion by quarters, whose products are the larger the fewer they are."""

    @partial(jr.rec_fn, static_argnames="size")
    def squared(w, x, size):
        if size == 8:
            return jnp.tanh(x @ w)
        quarters = [jnp.split(rows, 2, axis=1) for rows in jnp.split(x, 2)]
        made = jnp.block([[squared(w, part, size // 2) for part in row] for row in quarters])
        return jnp.tanh(made @ made / size)

    def memory(size):
        gradient = jax.jit(jax.grad(lambda w, x: squared(w, x, size).sum()))
        found = gradient.lower(jnp.eye(8), jnp.ones((size, size))).compile().memory_analysis()
        assert found is not None
        return found.temp_size_in_bytes

    assert memory(128) < 4 * memory(64)  # and not 6
    assert memory(256) < 4 * memory(128)  # and not 12
