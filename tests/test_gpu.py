"""On a GPU: programs that call the scheduler there. Skipped where there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

pytestmark = pytest.mark.skipif(jax.default_backend() != "gpu", reason="there is no GPU")

LEFT, RIGHT = jnp.asarray([-1, -1, 0, -1, 2]), jnp.asarray([-1, -1, 1, -1, 3])
WEIGHT = jnp.asarray(np.random.default_rng(0).normal(size=(8, 8)) * 0.3, jnp.float32)
LEAVES = jnp.asarray(np.random.default_rng(1).normal(size=(5, 8)), jnp.float32)


@pytest.fixture(autouse=True)
def exact_products():
    with jax.default_matmul_precision("highest"):
        yield


@jr.rec_fn
def tree(weight, leaves, i):
    def node():
        below = tree(weight, leaves, LEFT[i]) + tree(weight, leaves, RIGHT[i])
        return jnp.tanh(below @ weight + leaves[i])

    return jr.cond(LEFT[i] < 0, lambda: jnp.tanh(leaves[i]), node)


@jr.rec_fn(max_calls=300)
def shrink(weight, vector):
    def more():
        return shrink(weight, jnp.tanh(vector @ weight) * 0.7) + vector

    return jr.cond(jnp.sum(vector * vector) < 0.1, lambda: vector, more)


@jr.rec_fn
def fib(n):
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))


def transformed(function, *args):
    """The sum over examples, which the last argument has in front, and its gradient."""

    def total(weight):
        return jnp.sum(jax.vmap(lambda example: function(weight, *args[1:-1], example))(args[-1]))

    return jax.value_and_grad(total)(args[0])


CASES = {
    "planned": (tree, (WEIGHT, LEAVES, jnp.arange(5))),
    "stepped": (shrink, (WEIGHT, LEAVES)),
}


@pytest.mark.parametrize("executor", ["graph", "host"])
@pytest.mark.parametrize("case", CASES)
def test_equals_the_reference(case, executor):
    function, args = CASES[case]
    with jr.executor("reference"):
        expected = transformed(function, *args)
    with jr.executor(executor):
        got = transformed(function, *args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_under_jit(case):
    function, args = CASES[case]
    wide = function.with_options(max_calls=1000)
    with jr.executor("reference"):
        expected = transformed(function, *args)
    got = jax.jit(lambda *a: transformed(wide, *a))(*args)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_scalars_under_jit():
    assert int(jax.jit(fib)(jnp.int32(20))) == 6765


@pytest.mark.parametrize("case", CASES)
def test_too_many_calls(case):
    function, args = CASES[case]
    run = jax.jit(function.with_options(max_calls=2))
    last = (args[-1][4],) if case == "planned" else (args[-1][0],)
    with pytest.raises(jax.errors.JaxRuntimeError, match="max_calls is 2"):
        jax.block_until_ready(run(*args[:-1], *last))


def test_without_end():
    @jr.rec_fn
    def endless(x):
        return jr.cond(jnp.sum(x) < 0, lambda: x, lambda: endless(jnp.tanh(x) + 1) + 1)

    with pytest.raises(jr.RecursionLimitError, match="endless"):
        endless(LEAVES[0] ** 2)
    assert int(jax.jit(fib)(jnp.int32(10))) == 55
