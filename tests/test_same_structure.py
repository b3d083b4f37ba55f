"""One compiled program, called again with the same structure and with others."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

SIZE = 40
WEIGHT = jnp.asarray(np.random.default_rng(0).normal(size=(6, 6)) * 0.5, jnp.float32)
LEAVES = jnp.asarray(np.random.default_rng(1).normal(size=(SIZE, 6)), jnp.float32)


@jr.rec_fn
def tree(weight, leaves, left, right, i):
    def node():
        below = tree(weight, leaves, left, right, left[i])
        return jnp.tanh(below @ weight + tree(weight, leaves, left, right, right[i]))

    return jr.cond(left[i] < 0, lambda: leaves[i], node)


def structure(seed):
    """Children of the nodes of a tree with its root last; the tree has half to all of the nodes."""
    draw = np.random.default_rng(seed)
    left, right = np.full(SIZE, -1, np.int32), np.full(SIZE, -1, np.int32)
    open_nodes, next_node = [SIZE - 1], SIZE - 2
    while next_node > draw.integers(SIZE // 2):
        at = open_nodes.pop(draw.integers(len(open_nodes)))
        left[at], right[at] = next_node, next_node - 1
        open_nodes += [next_node, next_node - 1]
        next_node -= 2
    return jnp.asarray(left), jnp.asarray(right)


def value_and_gradient(weight, left, right):
    return jax.value_and_grad(lambda w: jnp.sum(tree(w, LEAVES, left, right, SIZE - 1)))(weight)


def assert_equal_trees(got, expected):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def expected():
    with jr.executor("reference"):
        return [value_and_gradient(WEIGHT, *structure(seed)) for seed in range(3)]


@pytest.mark.parametrize("order", [[0] * 4, [0, 1] * 3, [0, 0, 0, 1, 0, 1, 1, 1, 2, 2, 2, 0]])
def test_structures_in_turn(order, expected):
    compiled = jax.jit(value_and_gradient)
    for seed in order:
        assert_equal_trees(compiled(WEIGHT, *structure(seed)), expected[seed])


def test_weights_that_change():
    compiled, given = jax.jit(value_and_gradient), structure(0)
    weight = WEIGHT
    for _ in range(4):
        _, gradient = compiled(weight, *given)
        with jr.executor("reference"):
            assert_equal_trees(gradient, value_and_gradient(weight, *given)[1])
        weight = weight - 0.1 * gradient


def test_a_wrong_index_between():
    compiled, (left, right) = jax.jit(tree), structure(0)
    good = [compiled(WEIGHT, LEAVES, left, right, SIZE - 1) for _ in range(3)]
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"tree.*out of range|IndexError"):
            bad = compiled(WEIGHT, LEAVES, left.at[SIZE - 1].set(SIZE + 5), right, SIZE - 1)
            jax.block_until_ready(bad)
    assert_equal_trees(compiled(WEIGHT, LEAVES, left, right, SIZE - 1), good[0])


def test_several_threads(expected):
    compiled, failed = jax.jit(value_and_gradient), []

    def work(first):
        try:
            for k in range(12):
                seed = (first + k // 3) % 3
                assert_equal_trees(compiled(WEIGHT, *structure(seed)), expected[seed])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
