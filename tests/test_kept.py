"""What is kept of a trace and of its arguments, and for how long."""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr


def aligned(value, dtype):
    """A number as an array whose memory JAX could take over."""
    buffer = np.zeros(128, dtype)
    start = -buffer.ctypes.data % 64 // buffer.itemsize
    buffer[start] = value
    return buffer[start : start + 1].reshape(())


def mapped_over_one(fun):
    return lambda x: jax.lax.map(fun, x[None])[0]


@pytest.fixture(autouse=True)
def few_objects_to_look_through():
    """Leaves what other tests made out of the search for garbage, which is long otherwise."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_no_tracer_is_kept(executor):
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

    with jax.checking_leaks(), jr.executor(executor):
        assert power(2.0, 3) == 8.0
        assert jax.grad(power)(2.0, 3) == 12.0


def test_no_tracer_is_kept_of_a_loop():
    @jr.rec_fn
    def sums(x, tree, i):
        def node():
            return jax.lax.map(lambda j: sums(x, tree, j), tree[i]).sum()

        return jr.cond(tree[i, 0] < 0, lambda: x, node)

    tree = jnp.array([[1, 2], [-1, -1], [-1, -1]])
    with jax.checking_leaks():
        assert sums(2.0, tree, 0) == 4.0


@pytest.mark.parametrize("transform", [jax.jit, jax.checkpoint, mapped_over_one])
def test_nothing_is_kept_of_a_call_inside_a_transformation(transform):
    weights = jnp.ones((50, 50))
    kept = weakref.ref(weights)

    def use(weights):
        @jr.rec_fn
        def f(x, n):
            call = transform(lambda x: f(x * weights[0, 0], n - 1))
            return jr.cond(n <= 0, lambda: x, lambda: call(x))

        with jax.checking_leaks():
            assert f(jnp.ones(2), 2).sum() == 2.0

    use(weights)
    del weights
    jax.clear_caches()
    gc.collect()
    assert kept() is None


@pytest.mark.slow
def test_no_tracer_is_kept_by_a_compiled_program():
    @jr.rec_fn(max_calls=8)
    def power(x, n):
        return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

    with jax.checking_leaks():
        assert jax.jit(jax.grad(power))(2.0, 3) == 12.0


def test_no_tracer_is_kept_by_the_native_machine():
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: 1, lambda: x * power(x, n - 1))

    with jax.checking_leaks():
        assert jax.jit(power)(2, 3) == 8
        assert jax.jit(jax.vmap(power, (0, None)))(jnp.array([2, 3]), 3).tolist() == [8, 27]


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad, jax.jit])
def test_what_a_function_closes_over_is_freed(transform):
    def loss(weights):
        @jr.rec_fn(max_calls=8)
        def f(n):
            return jr.cond(n == 0, lambda: jnp.sum(weights), lambda: jnp.sin(f(n - 1)))

        return f(2)

    weights = jnp.ones(1000)
    transform(loss)(weights)
    freed = weakref.ref(weights)
    del weights
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad])
def test_a_function_that_is_gone_takes_what_was_compiled_along(transform):
    def programs():
        @jr.rec_fn
        def power(x, n):
            return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

        transform(lambda x: power(x, 3))(2.0)
        return [weakref.ref(traced.program) for traced in vars(power)["_cache"].values()]

    kept = programs()
    assert kept
    gc.collect()
    left = [program() for program in kept]
    assert not any(program is not None and program.cache for program in left)


def test_what_serves_one_gradient_is_forgotten():
    """Programs of a function that closes over what is differentiated, which JAX goes on to hold."""

    @jr.rec_fn(static_argnames="times")
    def power(n, times):
        return jr.cond(n == 0, lambda: jnp.ones(2), lambda: times(power(n - 1, times)))

    programs = []

    def loss(x):
        result = power(3, lambda y: x * y)
        programs.extend(p for p in vars(power)["_cache"]._passing if p not in programs)
        return result.sum()

    for _ in range(20):
        assert jax.grad(loss)(2.0) == 24.0
    assert len(programs) == 20 and sum(bool(program.cache) for program in programs) < 10
    power.clear_cache()
    assert not any(program.cache for program in programs)


def test_what_is_forgotten_is_freed():
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: x, lambda: 2 * power(x, n - 1))

    assert float(power(jnp.float32(1), 3)) == float(power(1.0, 3)) == 8.0
    with jr.executor("host"):
        power(jnp.ones(3), 3)
    programs = [weakref.ref(x.program) for x in power._cache.values()]
    assert len(programs) > 1
    power.clear_cache()
    gc.collect()
    assert not any(program() for program in programs)
    assert power.cache_info().traces == 0
    assert float(power(1.0, 3)) == 8.0


@pytest.mark.parametrize("transform", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_closure_over_a_tracer_is_not_kept(transform):
    def run(y):
        @jr.rec_fn(max_calls=9)
        def f(n):
            return jr.cond(n == 0, lambda: y, lambda: y * f(n - 1))

        return f(2)

    run = transform(jax.value_and_grad(run))
    assert jax.tree.map(float, run(2.0)) == (8.0, 12.0)
    assert jax.tree.map(float, run(3.0)) == (27.0, 27.0)


def test_what_a_gradient_reads_is_not_changed_afterwards():
    @jr.rec_fn
    def power(x, factor, n):
        return jr.cond(n == 0, lambda: x, lambda: factor * power(x, factor, n - 1))

    factor, n = aligned(3.0, np.float32), aligned(2, np.int32)
    value, pull = jax.vjp(lambda x: power(x, factor, n), jnp.ones(8))
    factor[...], n[...] = 5.0, 7
    assert float(value[0]) == float(pull(jnp.ones(8))[0][0]) == 9.0
