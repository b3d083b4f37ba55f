"""The tree models against plain recursion: NumPy for values, JAX without jaxrec for gradients."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jaxrec import data, models

CLASSES = 10
MODELS = {
    "treelstm": (models.TreeLSTM, 6, 5),
    "treernn": (models.TreeRNN, 6, 6),
    "rntn": (models.RNTN, 4, 4),
}


@pytest.fixture(scope="module")
def forest():
    trees = data.listops(seed=3, num=3, max_depth=3, max_args=3)
    packed = data.pack(trees, data.Vocabulary.build(trees))
    return data.pack(trees, data.Vocabulary.build(trees), pad_to=packed.num_nodes + 5)


def build(name, vocab=20, dropout=0.0, seed=0):
    kind, embed, hidden = MODELS[name]
    model = kind(vocab, embed, hidden, CLASSES, rngs=nnx.Rngs(seed), dropout=dropout)
    # Zero biases would hide a bias that is left out.
    weights = nnx.state(model, nnx.Param)
    key = jax.random.key(seed + 1)
    noisy = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(key, leaf.shape, leaf.dtype), weights
    )
    nnx.update(model, noisy)
    return model


def lstm_leaf(xp, w, word):
    i, o, u = xp.split(word @ w.leaf_kernel + w.leaf_bias, 3)
    c = sigmoid(xp, i) * xp.tanh(u)
    return sigmoid(xp, o) * xp.tanh(c), c


def lstm_node(xp, w, left, right):
    size = left[0].shape[0]
    gates = left[0] @ w.kernel[:size] + right[0] @ w.kernel[size:] + w.bias
    i, f_left, f_right, o, u = xp.split(gates, 5)
    c = sigmoid(xp, i) * xp.tanh(u)
    c = c + sigmoid(xp, f_left) * left[1] + sigmoid(xp, f_right) * right[1]
    return sigmoid(xp, o) * xp.tanh(c), c


def rnn_leaf(_xp, _w, word):
    return (word,)


def rnn_node(xp, w, left, right):
    return (xp.tanh(xp.concatenate([left[0], right[0]]) @ w.kernel + w.bias),)


def rntn_node(xp, w, left, right):
    both = xp.concatenate([left[0], right[0]])
    forms = [both @ w.tensor[:, :, k] @ both for k in range(w.bias.shape[0])]
    return (xp.tanh(xp.stack(forms) + both @ w.kernel + w.bias),)


CELLS = {
    "treelstm": (lstm_leaf, lstm_node),
    "treernn": (rnn_leaf, rnn_node),
    "rntn": (rnn_leaf, rntn_node),
}


def sigmoid(xp, x):
    return 1 / (1 + xp.exp(-x))


def plain_logits(name, xp, weights, kernel, bias, forest):
    """Logits of the nodes below the roots, a dictionary, by Python recursion on integers."""
    leaf, node = CELLS[name]
    token, left, right = (np.asarray(a).tolist() for a in (forest.token, forest.left, forest.right))
    logits = {}

    def visit(i):
        if left[i] < 0:
            state = leaf(xp, weights, weights.embed[token[i]])
        else:
            state = node(xp, weights, visit(left[i]), visit(right[i]))
        logits[i] = state[0] @ kernel + bias
        return state

    for root in np.asarray(forest.roots).tolist():
        visit(root)
    return logits


def head(model):
    return model.classifier.kernel[...], model.classifier.bias[...]


@pytest.mark.parametrize("name", MODELS)
def test_values_equal_numpy_recursion(name, forest):
    model = build(name)
    weights, (kernel, bias) = jax.tree.map(
        lambda leaf: np.asarray(leaf, np.float64), (model.weights(), head(model))
    )
    wanted = plain_logits(name, np, weights, kernel, bias, forest)
    got = model(forest)
    assert got.shape == (forest.num_nodes, CLASSES)
    for i in range(forest.num_nodes):
        np.testing.assert_allclose(got[i], wanted.get(i, np.zeros(CLASSES)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_equal_plain_recursion(name, forest):
    model = build(name)
    graph, weights = nnx.split(model)

    def loss(weights):
        return models.label_loss(nnx.merge(graph, weights)(forest), jnp.asarray(forest.label), 3)

    def plain_loss(weights):
        merged = nnx.merge(graph, weights)
        logits = plain_logits(name, jnp, merged.weights(), *head(merged), forest)
        picked = {i: jax.nn.log_softmax(row) for i, row in logits.items()}
        return -sum(row[forest.label[i]] for i, row in picked.items() if forest.label[i] >= 0) / 3

    value, gradient = jax.jit(jax.value_and_grad(loss))(weights)
    plain_value, plain_gradient = jax.value_and_grad(plain_loss)(weights)
    np.testing.assert_allclose(value, plain_value, rtol=1e-5)
    jax.tree.map(
        lambda got, wanted: np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-5),
        gradient,
        plain_gradient,
    )


def test_padding_changes_nothing(forest):
    model = build("treelstm")
    used = int(np.max(forest.roots)) + 1
    columns = {name: getattr(forest, name)[:used] for name in ("label", "token", "left", "right")}
    np.testing.assert_allclose(
        model(forest)[:used], model(dataclasses.replace(forest, **columns)), rtol=1e-5, atol=1e-6
    )


def test_works_on_a_smaller_table_of_the_used_rows(forest):
    """What the row-sparse step relies on: any table with the words' vectors does."""
    model, small = build("treelstm"), build("treelstm", vocab=3)
    tokens = np.asarray(forest.token)
    assert tokens.max() >= 3
    few = dataclasses.replace(forest, token=np.where(tokens < 0, -1, tokens % 3))
    graph, table, rest = nnx.split(model, nnx.PathContains("embed"), ...)
    table = jax.tree.map(lambda leaf: leaf[:3], table)
    got = nnx.merge(graph, table, rest)(few)
    nnx.update(small, table, rest)
    np.testing.assert_allclose(got, small(few), rtol=1e-6)


def test_dropout_acts_in_training_mode_on_the_classifier_alone(forest):
    model = build("treelstm", dropout=0.5)
    model.eval()
    plain = model(forest)
    np.testing.assert_array_equal(plain, model(forest))
    hidden = model.states(forest).hidden
    model.train()
    np.testing.assert_array_equal(hidden, model.states(forest).hidden)
    key = jax.random.key(7)
    dropped = model(forest, rngs=key)
    np.testing.assert_array_equal(dropped, model(forest, rngs=key))
    assert not np.allclose(dropped, plain)
    assert not np.allclose(dropped, model(forest, rngs=jax.random.key(8)))
    used = int(np.max(forest.roots)) + 1
    assert not np.asarray(dropped[used:]).any()


def test_dropout_keeps_the_mean(forest):
    model = build("treelstm", dropout=0.5)
    keys = jax.random.split(jax.random.key(0), 400)
    graph, state = nnx.split(model)
    draw = jax.jit(lambda key: nnx.merge(graph, state)(forest, rngs=key))
    mean = np.mean([draw(key) for key in keys], axis=0)
    model.eval()
    np.testing.assert_allclose(mean, model(forest), atol=0.15)


def test_label_loss_counts_labelled_nodes_only():
    logits = jnp.asarray([[1.0, 2.0], [0.5, 0.0], [jnp.nan, jnp.inf]])
    label = jnp.asarray([1, 0, -1])
    wanted = np.log1p(np.exp(-1.0)) + np.log1p(np.exp(-0.5))
    np.testing.assert_allclose(models.label_loss(logits, label, 2), wanted / 2, rtol=1e-6)
    gradient = jax.grad(models.label_loss)(logits, label, 2)
    assert np.isfinite(gradient).all()
    assert not np.asarray(gradient[2]).any()


def test_label_loss_without_labels_is_zero():
    assert models.label_loss(jnp.ones((2, 3)), jnp.asarray([-1, -1]), 1) == 0


@pytest.mark.parametrize("kind", [models.TreeRNN, models.RNTN])
def test_word_vectors_must_fit_the_state(kind):
    with pytest.raises(ValueError, match="got embed_dim=4, hidden_dim=5"):
        kind(10, 4, 5, 3, rngs=nnx.Rngs(0))


@pytest.mark.parametrize(
    ("sizes", "name"), [((0, 4, 4, 2), "vocab_size"), ((3, 4, 4, 0), "num_cl")]
)
def test_sizes_are_positive(sizes, name):
    with pytest.raises(ValueError, match=f"got {name}.*=0, expected 1 or more"):
        models.TreeLSTM(*sizes, rngs=nnx.Rngs(0))


def test_sizes_are_integers():
    with pytest.raises(TypeError, match=r"got hidden_dim=2\.5, expected an integer"):
        models.TreeLSTM(3, 4, 2.5, 2, rngs=nnx.Rngs(0))  # pyright: ignore[reportArgumentType]


def test_dropout_is_a_probability():
    with pytest.raises(ValueError, match=r"TreeLSTM: got dropout=1\.0, expected a probability"):
        models.TreeLSTM(3, 4, 4, 2, rngs=nnx.Rngs(0), dropout=1.0)
    with pytest.raises(TypeError, match="TreeLSTM: got dropout='a', expected a number"):
        models.TreeLSTM(3, 4, 4, 2, rngs=nnx.Rngs(0), dropout="a")  # pyright: ignore[reportArgumentType]


def test_trains_with_an_nnx_optimizer(forest):
    model = build("treelstm", dropout=0.1)
    optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            return models.label_loss(model(forest), jnp.asarray(forest.label), 3)

        value, gradient = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradient)
        return value

    losses = [float(step(model, optimizer)) for _ in range(20)]
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_float32_whatever_the_default(name, forest):
    with jax.enable_x64(True):
        model = build(name)
        assert {x.dtype for x in jax.tree.leaves(nnx.state(model, nnx.Param))} == {
            jnp.dtype(jnp.float32)
        }
        assert model(forest).dtype == jnp.float32


@pytest.mark.parametrize("name", MODELS)
def test_another_kind_of_forest_is_refused(name):
    dependencies = data.dependency_forest(token=[0, 1, 1], head=[1, -1, 1])
    message = r"reads a jaxrec\.data\.\w*Forest, got an object of type DependencyForest"
    with pytest.raises(TypeError, match=message):
        build(name)(dependencies)
