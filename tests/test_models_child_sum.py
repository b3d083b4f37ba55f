"""The child-sum Tree-LSTM against plain recursion, and on a task that it learns."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxrec import data, models

CLASSES, VOCAB = 3, 6


def random_forest(seed, trees, pad=0):
    """Trees whose nodes have up to four children; a node's label is the most of its tokens // 2."""
    rng = np.random.default_rng(seed)
    parent = []
    for _ in range(trees):
        start = len(parent)
        arity = [0] * int(rng.integers(1, 12))
        parent.append(-1)
        for k in range(1, len(arity)):
            above = int(rng.choice([j for j in range(k) if arity[j] < 4]))
            arity[above] += 1
            parent.append(start + above)
    token = rng.choice(VOCAB, len(parent), p=[0.3, 0.3, 0.15, 0.1, 0.1, 0.05])
    most = token.copy()
    for i in reversed(range(len(parent))):
        if parent[i] >= 0:
            most[parent[i]] = max(most[parent[i]], most[i])
    return data.ordered_forest(token, parent, label=most // 2, pad_to=len(parent) + pad)


def build(seed=0):
    model = models.ChildSumTreeLSTM(VOCAB, 5, 7, CLASSES, rngs=nnx.Rngs(seed))
    weights = nnx.state(model, nnx.Param)
    key = jax.random.key(seed + 1)
    noisy = jax.tree.map(lambda leaf: leaf + 0.4 * jax.random.normal(key, leaf.shape), weights)
    nnx.update(model, noisy)
    return model


def children_of(forest, i):
    child = int(forest.child[i])
    while child >= 0:
        yield child
        child = int(forest.sibling[child])


def plain_logits(model, forest):
    """Equations 2-8 as they stand, one gate at a time, by Python recursion."""
    embed, word = model.embed.embedding[...], (model.word.kernel[...], model.word.bias[...])
    w = dict(zip("iouf", jnp.split(word[0], 4, axis=1), strict=True))
    b = dict(zip("iouf", jnp.split(word[1], 4), strict=True))
    u = dict(zip("iou", jnp.split(model.children.kernel[...], 3, axis=1), strict=True))
    u["f"] = model.forget.kernel[...]
    logits = {}

    def visit(j):
        x = embed[int(forest.token[j])]
        states = [visit(k) for k in children_of(forest, j)]
        total = sum((h for h, _ in states), jnp.zeros(u["f"].shape[0]))
        i, o = (jax.nn.sigmoid(x @ w[g] + total @ u[g] + b[g]) for g in "io")
        c = i * jnp.tanh(x @ w["u"] + total @ u["u"] + b["u"])
        for h_k, c_k in states:
            c = c + jax.nn.sigmoid(x @ w["f"] + h_k @ u["f"] + b["f"]) * c_k
        h = o * jnp.tanh(c)
        logits[j] = h @ model.classifier.kernel[...] + model.classifier.bias[...]
        return h, c

    for root in np.asarray(forest.roots).tolist():
        visit(root)
    return logits


def test_values_and_gradients_equal_plain_recursion():
    forest = random_forest(1, 2, pad=3)
    used = forest.num_nodes - 3
    graph, weights = nnx.split(build())

    def loss(weights):
        logits = nnx.merge(graph, weights)(forest)
        return models.label_loss(logits, jnp.asarray(forest.label), 2), logits

    def plain_loss(weights):
        logits = plain_logits(nnx.merge(graph, weights), forest)
        stacked = jnp.stack([logits[i] for i in range(used)])
        return models.label_loss(stacked, jnp.asarray(forest.label[:used]), 2), stacked

    (value, got), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(weights)
    (plain, wanted), plain_gradient = jax.jit(jax.value_and_grad(plain_loss, has_aux=True))(weights)
    np.testing.assert_allclose(value, plain, rtol=1e-5)
    np.testing.assert_allclose(got[:used], wanted, rtol=1e-4, atol=1e-5)
    assert not np.asarray(got[used:]).any()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5),
        gradient,
        plain_gradient,
    )


def test_the_order_of_children_is_immaterial():
    model = build()
    one = data.ordered_forest([0, 1, 2, 3, 4], [-1, 0, 0, 0, 1])
    other = data.ordered_forest([0, 3, 2, 1, 4], [-1, 0, 0, 0, 3])
    np.testing.assert_allclose(model(one)[0], model(other)[0], rtol=1e-5, atol=1e-6)


def test_a_node_without_a_word_has_the_zero_vector():
    model = build()
    forest = data.ordered_forest([-1, 2], [-1, 0])
    table = jnp.concatenate([model.embed.embedding[...][:-1], jnp.zeros((1, 5))])
    wordless = model(forest)
    model.embed.embedding[...] = table
    last = dataclasses.replace(forest, token=np.array([VOCAB - 1, 2]))
    np.testing.assert_allclose(wordless, model(last), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_learns_the_greatest_token_below_a_node():
    forest, unseen = random_forest(2, 60), random_forest(3, 60)
    model = models.ChildSumTreeLSTM(VOCAB, 8, 16, CLASSES, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.03), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            return models.label_loss(model(forest), jnp.asarray(forest.label), 60)

        value, gradient = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradient)
        return value

    losses = [float(step(model, optimizer)) for _ in range(60)]
    assert losses[-1] < 0.1 * losses[0]
    right = np.asarray(model(unseen)).argmax(axis=1) == unseen.label
    assert right.mean() > 0.95
