"""The doubly recurrent network against plain recursion, and on trees that it learns to generate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxrec as jr
from jaxrec import data, models

VOCAB, EMBED, HIDDEN, CONDITION = 4, 3, 10, 4


def countdown(values):
    """Trees that a number determines: below n stand n-1, n-2, ..., 0."""
    token, parent = [], []

    def visit(n, above):
        here = len(token)
        token.append(n)
        parent.append(above)
        for k in range(n - 1, -1, -1):
            visit(k, here)

    for n in values:
        visit(n, -1)
    return data.ordered_forest(token, parent)


def conditions(values):
    return jax.nn.one_hot(jnp.asarray(values), CONDITION)


def build(seed=0, scale=0.5):
    model = models.DRNN(VOCAB, EMBED, HIDDEN, CONDITION, rngs=nnx.Rngs(seed))
    key = jax.random.key(seed + 1)
    noisy = jax.tree.map(
        lambda leaf: leaf + scale * jax.random.normal(key, leaf.shape), nnx.state(model, nnx.Param)
    )
    nnx.update(model, noisy)
    return model


def plain_gru(w, x, h):
    size = h.shape[0]
    r, z, n = (
        x @ w.inputs[:, k : k + size] + w.bias[k : k + size] for k in range(0, 3 * size, size)
    )
    r_h, z_h, n_h = (h @ w.state[:, k : k + size] for k in range(0, 3 * size, size))
    z = jax.nn.sigmoid(z + z_h)
    return (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + r_h) * n_h) + z * h


def plain_states(w, parent, sibling):
    a = plain_gru(w.ancestral, w.embed[parent[0]], parent[1])
    f = plain_gru(w.fraternal, w.embed[sibling[0]], sibling[1])
    return a, f, jnp.tanh(a @ w.combine[:HIDDEN] + f @ w.combine[HIDDEN:])


def start_of(model, vector):
    h = jnp.tanh(vector @ model.first.kernel[...] + model.first.bias[...])
    return (VOCAB, h), (VOCAB, jnp.zeros_like(h))


def plain_loss(model, forest, condition):
    w = model.weights()

    def visit(i, parent, sibling, is_root):
        a, f, h = plain_states(w, parent, sibling)
        nodes, here = (int(forest.child[i]), int(forest.sibling[i])), int(forest.token[i])
        made = jnp.asarray([float(n >= 0) for n in nodes])
        scores = h @ w.word + w.word_bias + made @ w.word_topology
        loss = -jax.nn.log_softmax(scores)[here]
        topology = h @ w.topology + w.topology_bias
        for k in range(1 if is_root else 2):
            loss = loss - jax.nn.log_sigmoid(topology[k] * (1 if nodes[k] >= 0 else -1))
        if nodes[0] >= 0:
            loss = loss + visit(nodes[0], (here, a), (VOCAB, jnp.zeros(HIDDEN)), False)
        if nodes[1] >= 0:
            loss = loss + visit(nodes[1], parent, (here, f), False)
        return loss

    total = 0.0
    for root, vector in zip(forest.roots.tolist(), condition, strict=True):
        total = total + visit(root, *start_of(model, vector), True)
    return total / forest.num_trees


def plain_generate(model, vector, max_depth, max_children):
    """The nodes in depth-first order, by Python recursion: words and decisions."""
    w, found = model.weights(), []

    def visit(depth, place, parent, sibling):
        a, f, h = plain_states(w, parent, sibling)
        child, later = (h @ w.topology + w.topology_bias > 0).tolist()
        child, later = child and depth < max_depth, later and depth > 0 and place + 1 < max_children
        made = jnp.asarray([child, later], jnp.float32)
        here = int(np.argmax(h @ w.word + w.word_bias + made @ w.word_topology))
        found.append((here, child + 2 * later))
        if child:
            visit(depth + 1, 0, (here, a), (VOCAB, jnp.zeros(HIDDEN)))
        if later:
            visit(depth, place + 1, parent, (here, f))

    visit(0, 0, *start_of(model, vector))
    return found


def test_loss_and_gradient_equal_plain_recursion():
    forest = countdown([2, 1])
    graph, weights = nnx.split(build())

    def loss(weights):
        return nnx.merge(graph, weights).loss(forest, conditions([2, 1]))

    def wanted(weights):
        return plain_loss(nnx.merge(graph, weights), forest, conditions([2, 1]))

    value, gradient = jax.jit(jax.value_and_grad(loss))(weights)
    plain_value, plain_gradient = jax.value_and_grad(wanted)(weights)
    np.testing.assert_allclose(value, plain_value, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5),
        gradient,
        plain_gradient,
    )


@pytest.mark.parametrize("executor", ["graph", "reference"])
def test_generation_equals_plain_recursion(executor):
    model, vectors = build(2, 1.0), conditions([0, 1, 3])
    model.topology.bias = nnx.Param(jnp.asarray([0.6, 0.4]))
    wanted = [plain_generate(model, vector, 3, 3) for vector in vectors]
    with jr.executor(executor):
        trees = model.generate(vectors, 3, 3)
        assert model.generate(vectors, 3, 0).forest().num_nodes == len(vectors)
    valid = np.asarray(trees.valid)
    for k, nodes in enumerate(wanted):
        mine = valid & (np.asarray(trees.tree) == k)
        assert list(zip(trees.word[mine].tolist(), trees.add[mine].tolist(), strict=True)) == nodes
    assert valid.sum() == sum(map(len, wanted)) > 8


@pytest.mark.slow
def test_learns_to_generate_trees():
    values = list(range(4))
    forest, vectors = countdown(values), conditions(values)
    model = models.DRNN(VOCAB, 8, 24, CONDITION, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.02), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        value, gradient = nnx.value_and_grad(lambda model: model.loss(forest, vectors))(model)
        optimizer.update(model, gradient)
        return value

    losses = [float(step(model, optimizer)) for _ in range(100)]
    assert losses[-1] < 0.05 * losses[0]
    made = nnx.jit(lambda model: model.generate(vectors, 6, 6, max_nodes=32))(model).forest()
    # Both number nodes depth first: children before later siblings.
    for name in ("token", "child", "sibling", "roots"):
        assert getattr(made, name).tolist() == getattr(forest, name).tolist()


def test_a_node_without_a_word():
    """It has no likelihood of a word: those of all words it might have add up to 1."""
    model, condition = build(), conditions([1])

    def loss(*token):
        return model.loss(data.ordered_forest(token, [-1, 0]), condition)

    chances = [jnp.exp(loss(1, -1) - loss(1, word)) for word in range(VOCAB)]
    assert sum(chances) == pytest.approx(1, rel=1e-4)
    chances = [jnp.exp(loss(1, word) - loss(-1, word)) for word in range(VOCAB)]
    assert max(chances) - min(chances) > 1e-3  # the child sees whether there is a word above
