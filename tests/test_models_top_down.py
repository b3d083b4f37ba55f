"""The top-down Tree-LSTM against plain recursion, and on trees that it learns to generate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxrec as jr
from jaxrec import data, models

VOCAB, EMBED, HIDDEN, CONDITION = 5, 4, 12, 5


def countdown(values):
    """Trees that a number determines: n has n-1 on its left, n-2 and then n-3 on its right."""
    token, head = [], []

    def visit(n):
        lefts = [visit(n - 1)] if n > 0 else []
        here = len(token)
        token.append(n)
        head.append(-1)
        rights = [visit(k) for k in (n - 2, n - 3) if k >= 0]
        for k in lefts + rights:
            head[k] = here
        return here

    for n in values:
        visit(n)
    return data.dependency_forest(token, head)


def conditions(values):
    return jax.nn.one_hot(jnp.asarray(values), CONDITION)


def build(seed=0, scale=0.5):
    model = models.TopDownTreeLSTM(VOCAB, EMBED, HIDDEN, CONDITION, rngs=nnx.Rngs(seed))
    key = jax.random.key(seed + 1)
    noisy = jax.tree.map(
        lambda leaf: leaf + scale * jax.random.normal(key, leaf.shape), nnx.state(model, nnx.Param)
    )
    nnx.update(model, noisy)
    return model


def plain_vector(table, word):
    return table[word] if word >= 0 else jnp.zeros(EMBED)


def plain_step(w, edge, word, h, c):
    x = plain_vector(w.embed, word)
    gates = x @ w.kernels[edge][:EMBED] + h @ w.kernels[edge][EMBED:] + w.biases[edge]
    i, f, o, u = jnp.split(gates, 4)
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + jax.nn.sigmoid(f) * c
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def plain_scores(model, edge, word, h):
    scores = model.add(jnp.concatenate([h, plain_vector(model.embed.embedding, word)]))
    return [scores[0], scores[1], scores[2 + edge % 2]]


def plain_loss(model, forest, condition):
    w = model.weights()

    def visit(i, edge, word, h, c, decided):
        h, c = plain_step(w, edge, word, h, c)
        here = int(forest.token[i])
        loss = -jax.nn.log_softmax(model.word(h))[here] if here >= 0 else 0.0
        scores = plain_scores(model, edge, here, h)
        nodes = int(forest.left[i]), int(forest.right[i]), int(forest.next[i])
        for k in range(decided):
            sign = 1 if nodes[k] >= 0 else -1
            loss = loss - jax.nn.log_sigmoid(sign * scores[k])
            if nodes[k] >= 0:
                loss = loss + visit(nodes[k], (0, 1, 2 + edge % 2)[k], here, h, c, 3)
        return loss

    total = 0.0
    for root, vector in zip(forest.roots.tolist(), condition, strict=True):
        h = jnp.tanh(vector @ model.first.kernel[...] + model.first.bias[...])
        total = total + visit(root, 1, VOCAB, h, jnp.zeros_like(h), 2)
    return total / forest.num_trees


def plain_generate(model, vector, max_depth):
    """The nodes in depth-first order, by Python recursion: words and decisions."""
    w, found = model.weights(), []

    def visit(edge, word, h, c, depth):
        h, c = plain_step(w, edge, word, h, c)
        here = int(np.argmax(model.word(h)))
        wanted = [bool(s > 0) and depth < max_depth for s in plain_scores(model, edge, here, h)]
        wanted[2] &= depth > 0
        found.append((here, sum(bit for bit, on in zip((1, 2, 4), wanted, strict=True) if on)))
        for k, kind in enumerate((0, 1, 2 + edge % 2)):
            if wanted[k]:
                visit(kind, here, h, c, depth + 1)

    h = jnp.tanh(vector @ model.first.kernel[...] + model.first.bias[...])
    visit(1, VOCAB, h, jnp.zeros_like(h), 0)
    return found


def test_loss_and_gradient_equal_plain_recursion():
    forest = countdown([2, 3])
    forest.token[[1, 3]] = -1  # nodes without words, one of them above others
    graph, weights = nnx.split(build())

    def loss(weights):
        return nnx.merge(graph, weights).loss(forest, conditions([2, 3]))

    def wanted(weights):
        return plain_loss(nnx.merge(graph, weights), forest, conditions([2, 3]))

    value, gradient = jax.jit(jax.value_and_grad(loss))(weights)
    plain_value, plain_gradient = jax.jit(jax.value_and_grad(wanted))(weights)
    np.testing.assert_allclose(value, plain_value, rtol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-5),
        gradient,
        plain_gradient,
    )


@pytest.mark.parametrize("executor", ["graph", "reference"])
def test_generation_equals_plain_recursion(executor):
    model, vectors = build(2), conditions([0, 1, 3])
    wanted = [plain_generate(model, vector, 4) for vector in vectors]
    with jr.executor(executor):
        trees = model.generate(vectors, 4)
    valid = np.asarray(trees.valid)
    for k, nodes in enumerate(wanted):
        mine = valid & (np.asarray(trees.tree) == k)
        assert list(zip(trees.word[mine].tolist(), trees.add[mine].tolist(), strict=True)) == nodes
    assert valid.sum() == sum(map(len, wanted)) > 8


def test_padding_changes_nothing():
    model = build()
    words, heads = data.dependency_lists(countdown([2]))[0]
    alone = data.dependency_forest(words, heads)
    padded = data.dependency_forest(words, heads, pad_to=len(words) + 4)
    one = conditions([2])
    np.testing.assert_allclose(model.loss(padded, one), model.loss(alone, one), rtol=1e-6)


def test_too_many_nodes_are_an_error():
    model = build(2)
    with pytest.raises(jr.CapacityError, match=r"generate made .* max_calls is 3"):
        jax.block_until_ready(model.generate(conditions([0, 1, 3]), 4, max_nodes=3))


@pytest.mark.slow
def test_learns_to_generate_trees():
    values = list(range(5))
    forest, vectors = countdown(values), conditions(values)
    model = models.TopDownTreeLSTM(VOCAB, 8, 24, CONDITION, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(0.02), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        value, gradient = nnx.value_and_grad(lambda model: model.loss(forest, vectors))(model)
        optimizer.update(model, gradient)
        return value

    losses = [float(step(model, optimizer)) for _ in range(80)]
    assert losses[-1] < 0.05 * losses[0]
    made = nnx.jit(lambda model: model.generate(vectors, 12, max_nodes=64))(model)
    got = data.dependency_lists(made.forest())
    assert got == data.dependency_lists(forest)
