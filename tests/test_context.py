"""What JAX keeps of a traced body: functions that know nothing of it, none that belong to it."""

from __future__ import annotations

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from waves import in_waves

import jaxrec as jr
from jaxrec.graph._ir import Graph

X = jnp.linspace(0.1, 1.0, 5)
COUNTED: list[str] = []
USED: list[Any] = []


@jax.jit
def smoothed(x):
    COUNTED.append("smoothed")
    return in_waves(jnp.where(x > 0, jnp.tanh(x), x))


@jax.jit
def used(x, n):
    return USED[-1](x, n) * 2


@jax.jit
def chosen(x, n):
    return jr.cond(n == 0, lambda: x, lambda: USED[-1](x, n - 1) + 1)


def halving():
    @jr.rec_fn
    def halve(x, n):
        return jr.cond(n == 0, lambda: x, lambda: smoothed(halve(x * 0.5, n - 1)))

    return halve


def test_what_knows_nothing_of_recursion_is_traced_once():
    jax.clear_caches()
    COUNTED.clear()
    for _ in range(3):
        np.testing.assert_allclose(halving()(X, 1), jnp.tanh(X * 0.5), rtol=1e-5)
    assert len(COUNTED) == 1


def test_tracing_again_leaves_little():
    def objects() -> int:
        gc.collect()
        return len(gc.get_objects())

    def times(count: int) -> int:
        for _ in range(count):
            halve = halving()
            halve.graph(X, 1)
            halve.clear_cache()
        return objects()

    before = times(20)
    assert times(40) - before < 40 * 60


def test_a_jitted_gradient_leaves_no_graph():
    def graphs() -> int:
        gc.collect()
        gc.collect()  # what the finalizers of the first time have let go of
        return sum(isinstance(x, Graph) for x in gc.get_objects())

    def once() -> None:
        halve = halving()
        jax.jit(jax.grad(lambda x: halve(x, 3).sum())).trace(X)

    def times(count: int) -> int:
        for _ in range(count):
            once()
        return graphs()

    before = times(2)
    assert times(6) <= before + 1


def test_a_jitted_function_calls_that_of_each_program():
    def program(factor):
        @jr.rec_fn
        def f(x, n):
            return jr.cond(n == 0, lambda: in_waves(x * factor), lambda: used(x, n - 1))

        USED.append(f)
        return f

    for factor in (1, 2, 3):
        np.testing.assert_allclose(program(factor)(X, 3), X * factor * 8, rtol=1e-5)


def test_a_choice_in_a_jitted_function_has_all_branches_in_the_end():
    """While result types are looked for, branches that need them are left out."""

    def program(kind):
        @jr.rec_fn
        def f(x, n):
            return chosen(in_waves(x).astype(kind), n)

        USED.append(f)
        return f

    for kind in (jnp.float32, jnp.float16):
        found = program(kind)(X.astype(kind), 3)
        assert found.dtype == kind
        np.testing.assert_allclose(found, X + 3, rtol=1e-2)


def test_functions_of_two_programs_in_turn():
    """Passes inside of one another stand apart."""

    @jr.rec_fn
    def inner(x, n):
        return jr.cond(n == 0, lambda: smoothed(x), lambda: used(x, n - 1))

    @jr.rec_fn
    def outer(x, n):
        return jr.cond(n == 0, lambda: smoothed(x), lambda: inner(outer(x, n - 1), n))

    def plain(x, n):
        return smoothed(x) if n == 0 else smoothed(plain(x, n - 1)) * 2**n

    USED.append(inner)
    np.testing.assert_allclose(outer(X, 3), plain(X, 3), rtol=1e-5)
