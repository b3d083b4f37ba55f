"""A Tree-LSTM on the Stanford Sentiment Treebank (the development set) against plain recursion."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import EXECUTORS, picked
from zoo import assert_close

import jaxrec as jr
from jaxrec import data
from jaxrec.models._tree_lstm import State, TreeLSTMWeights, tree_lstm

EMBED, HIDDEN, SOME = 8, 6, 5
IN_AXES = (None, None, 0)


def on(*executors: str) -> Any:
    """These are slow, the other executors exhaustive."""
    cases = picked(((name,) for name in EXECUTORS), (), [(name,) for name in executors])
    return pytest.mark.parametrize("executor", cases)


@pytest.fixture(scope="module")
def dev(sst: data.Treebank) -> tuple[list[data.Tree], data.Vocabulary]:
    return sst.dev, data.Vocabulary.build(sst.dev)


def weights_for(words: int) -> TreeLSTMWeights:
    rng = np.random.default_rng(0)
    shapes = [(words, EMBED), (EMBED, 3 * HIDDEN), (3 * HIDDEN,), (2 * HIDDEN, 5 * HIDDEN)]
    drawn = [rng.normal(0, 0.5, shape) for shape in (*shapes, (5 * HIDDEN,))]
    return TreeLSTMWeights(*(jnp.asarray(x, jnp.float32) for x in drawn))


def gates_to_state(xp: Any, i: Any, o: Any, u: Any, below: Any) -> State:
    c = xp.tanh(u) / (1 + xp.exp(-i)) + below
    return xp.tanh(c) / (1 + xp.exp(-o)), c


def plain(xp: Any, w: Any, forest: data.Forest, root: Any) -> Any:
    """Naive recursion on Python integers."""
    token, left, right = forest.token, forest.left, forest.right

    def visit(k: int) -> Any:
        if left[k] < 0:
            gates = w.embed[int(token[k])] @ w.leaf_kernel + w.leaf_bias
            i, o, u = xp.split(gates, 3)
            return gates_to_state(xp, i, o, u, 0)
        (h_left, c_left), (h_right, c_right) = visit(int(left[k])), visit(int(right[k]))
        gates = xp.concatenate([h_left, h_right]) @ w.kernel + w.bias
        i, f_left, f_right, o, u = xp.split(gates, 5)
        kept = c_left / (1 + xp.exp(-f_left)) + c_right / (1 + xp.exp(-f_right))
        return gates_to_state(xp, i, o, u, kept)

    return visit(int(root))


def loss_of(state: State) -> jax.Array:
    h, c = state
    return jnp.sum(h * jnp.arange(1.0, HIDDEN + 1)) + jnp.sum(c**2)


@pytest.fixture(scope="module")
def some(dev: Any) -> Any:
    """Some of the trees: weights, the forest, and what plain recursion says of each."""
    trees, vocabulary = dev
    forest = data.pack(trees[:SOME], vocabulary)
    weights = weights_for(len(vocabulary))
    values = [plain(jnp, weights, forest, root) for root in forest.roots]
    gradient = jax.grad(lambda w, root: loss_of(plain(jnp, w, forest, root)))
    return weights, forest, values, [gradient(weights, root) for root in forest.roots]


def stacked(trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


@pytest.mark.slow
def test_values_of_all_trees(dev: Any) -> None:
    trees, vocabulary = dev
    forest = data.pack(trees, vocabulary)
    weights = weights_for(len(vocabulary))
    got = jax.jit(jax.vmap(tree_lstm, IN_AXES))(weights, forest, forest.roots)
    exact = jax.tree.map(lambda x: np.asarray(x, np.float64), weights)
    want = [plain(np, exact, forest, root) for root in forest.roots]
    assert len(want) == 1101
    assert_close(got, jax.tree.map(lambda *rows: np.stack(rows), *want), 1e-5)


@on("graph", "host", "reference")
def test_values(some: Any, executor: str) -> None:
    weights, forest, values, _ = some
    with jr.executor(executor):
        got = jax.vmap(tree_lstm, IN_AXES)(weights, forest, jnp.asarray(forest.roots))
    assert_close(got, stacked(values), 1e-5)


@on("graph", "reference")
def test_gradient_of_a_batch(some: Any, executor: str) -> None:
    weights, forest, _, gradients = some

    def loss(w: TreeLSTMWeights) -> jax.Array:
        states = jax.vmap(tree_lstm, IN_AXES)(w, forest, jnp.asarray(forest.roots))
        return jnp.sum(jax.vmap(loss_of)(states))

    with jr.executor(executor):
        got = jax.grad(loss)(weights)
    assert_close(got, jax.tree.map(lambda *parts: sum(parts), *gradients), 1e-4)


@on("graph", "host")
def test_gradient_of_each_tree(some: Any, executor: str) -> None:
    weights, forest, _, gradients = some
    gradient = jax.grad(lambda w, root: loss_of(tree_lstm(w, forest, root)))
    with jr.executor(executor):
        got = jax.vmap(gradient, (None, 0))(weights, jnp.asarray(forest.roots))
    assert_close(got, stacked(gradients), 1e-4)


@on("host", "reference")
def test_directional_derivative(some: Any, executor: str) -> None:
    weights, forest, _, gradients = some
    direction = jax.tree.map(jnp.cos, weights)
    losses = jax.vmap(lambda w, root: loss_of(tree_lstm(w, forest, root)), (None, 0))
    with jr.executor(executor):
        _, got = jax.jvp(lambda w: losses(w, jnp.asarray(forest.roots)), (weights,), (direction,))
    along = [jax.tree.map(jnp.vdot, gradient, direction) for gradient in gradients]
    assert_close(got, jnp.stack([sum(jax.tree.leaves(parts)) for parts in along]), 1e-4)
