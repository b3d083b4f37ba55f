"""jaxrec: the recursion as its user writes it, with the public API alone."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import jaxrec as jr
from benchmarks._models import Params
from benchmarks._trees import Forest
from benchmarks.peers._jax_common import (
    Arrays,
    Step,
    Weights,
    adagrad,
    full_table,
    padded,
    word_rows,
)
from benchmarks.peers._protocol import Gradients, Program
from jaxrec.data import bucket

State = tuple[Array, ...]

_SMALLEST = 16
"""Nodes of the smallest forest that is told from smaller ones."""


class Trees(NamedTuple):
    """A forest, padded to a bucket of nodes; tokens count the different words of the batch."""

    label: Array
    token: Array
    left: Array
    right: Array
    roots: Array


class Batch(NamedTuple):
    """Trees and the ids of their different words, padded with the size of the table."""

    trees: Trees
    words: Array


def _lstm_leaf(params: Arrays, x: Array) -> State:
    i, o, u = jnp.split(x @ params["W_leaf"] + params["b_leaf"], 3)
    c = jax.nn.sigmoid(i) * jnp.tanh(u)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _lstm_node(params: Arrays, left: State, right: State) -> State:
    pre = jnp.concatenate([left[0], right[0]]) @ params["U"] + params["b"]
    i, fl, fr, o, u = jnp.split(pre, 5)
    c = jax.nn.sigmoid(i) * jnp.tanh(u)
    c += jax.nn.sigmoid(fl) * left[1] + jax.nn.sigmoid(fr) * right[1]
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _word(params: Arrays, x: Array) -> State:
    return (x,)


def _rnn_node(params: Arrays, left: State, right: State) -> State:
    children = jnp.concatenate([left[0], right[0]])
    return (jnp.tanh(children @ params["W"] + params["b"]),)


def _rntn_node(params: Arrays, left: State, right: State) -> State:
    v = jnp.concatenate([left[0], right[0]])
    inner = (v @ params["T"].reshape(len(v), -1)).reshape(len(v), -1)
    return (jnp.tanh(v @ inner + v @ params["W"] + params["b"]),)


_CELLS = {
    "treelstm": (_lstm_leaf, _lstm_node),
    "treernn": (_word, _rnn_node),
    "rntn": (_word, _rntn_node),
}


def recursion(model: str) -> Any:
    """The recursive function of `model`: (params, trees, node) to the node's state."""
    leaf_cell, node_cell = _CELLS[model]

    @jr.rec_fn
    def tree(params: Arrays, trees: Trees, i: Array) -> State:
        def leaf() -> State:
            return leaf_cell(params, params["embed"][trees.token[i]])

        def node() -> State:
            left = tree(params, trees, trees.left[i])
            right = tree(params, trees, trees.right[i])
            return node_cell(params, left, right)

        return jr.cond(trees.left[i] < 0, leaf, node)

    return tree


def prepare(forest: Forest, words: int) -> Batch:
    """Pads `forest` and lists its words, each once; `words` is the size of the word table."""
    nodes, leaf = bucket(len(forest.label), base=_SMALLEST), forest.left < 0
    unique, inverse = np.unique(forest.token[leaf], return_inverse=True)
    token = np.full(len(leaf), -1)
    token[leaf] = inverse

    def column(values: np.ndarray) -> Array:
        return jax.device_put(padded(values, nodes, -1))

    leaves = (nodes + len(forest.roots) + 1) // 2
    trees = Trees(
        column(forest.label),
        column(token),
        column(forest.left),
        column(forest.right),
        jax.device_put(forest.roots),
    )
    return Batch(trees, jax.device_put(padded(unique, leaves, words)))


def label_loss(tree: Any, params: Arrays, trees: Trees) -> Array:
    """Cross entropy summed over all nodes, by the number of trees."""
    _, calls = jr.collect(tree, (None, None, 0))(params, trees, trees.roots)
    logits = calls.results[0] @ params["Ws"] + params["bs"]
    label = trees.label[jnp.where(calls.valid, calls.args[2], 0)]
    picked = jnp.take_along_axis(logits, jnp.maximum(label, 0)[:, None], 1)[:, 0]
    losses = jax.nn.logsumexp(logits, 1) - picked
    return jnp.where(calls.valid, losses, 0.0).sum() / len(trees.roots)


def loss_and_gradients(tree: Any, params: Arrays, batch: Batch) -> tuple[Array, Arrays]:
    """The loss and all gradients, that of `embed` for the rows `batch.words`."""
    rows = params | {"embed": word_rows(params["embed"], batch.words)}
    return jax.value_and_grad(partial(label_loss, tree))(rows, batch.trees)


def jitted_train_step(tree: Any) -> Callable[..., Any]:
    """The training step: (params, totals, batch) to new params, totals and the loss."""

    def step(params: Arrays, totals: Arrays, batch: Batch) -> Step:
        loss, grads = loss_and_gradients(tree, params, batch)
        return *adagrad(params, totals, grads, batch.words), loss

    return jax.jit(step, donate_argnums=(0, 1))


def build(model: str, params: Params) -> Program:
    """Builds `model` as a jitted step around the recursive function."""
    tree, weights = recursion(model), Weights(params)
    jitted_step = jitted_train_step(tree)

    @jax.jit
    def jitted_scores(params: Arrays, batch: Batch) -> Array:
        rows = params | {"embed": word_rows(params["embed"], batch.words)}
        states = jax.vmap(tree, (None, None, 0))(rows, batch.trees, batch.trees.roots)
        return states[0] @ params["Ws"] + params["bs"]

    @jax.jit
    def jitted_gradients(params: Arrays, batch: Batch) -> tuple[Array, Arrays]:
        loss, grads = loss_and_gradients(tree, params, batch)
        return loss, grads | {"embed": full_table(params["embed"], batch.words, grads["embed"])}

    def train_step(batch: Batch) -> float:
        weights.params, weights.totals, loss = jitted_step(weights.params, weights.totals, batch)
        return float(loss)

    def infer(batch: Batch) -> np.ndarray:
        return np.asarray(jitted_scores(weights.params, batch))

    def gradients(batch: Batch) -> Gradients:
        loss, grads = jitted_gradients(weights.params, batch)
        return float(loss), {name: np.asarray(grad) for name, grad in grads.items()}

    return Program(partial(prepare, words=len(params["embed"])), train_step, infer, gradients)
