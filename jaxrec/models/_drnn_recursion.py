"""The recursions of the doubly recurrent network: over a given tree, and one making a tree."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxrec as jr
from jaxrec.data import OrderedForest
from jaxrec.models._classifier import best, vectors_of

ADD_CHILD, ADD_SIBLING = 1, 2
"""What a node decides to generate: bits of a number, so that control reads one value a node."""


class GRUWeights(NamedTuple):
    """A gated recurrent unit: ``[E, 3H]`` from the input, ``[H, 3H]`` from the state, ``[3H]``."""

    inputs: jax.Array
    state: jax.Array
    bias: jax.Array


class DRNNWeights(NamedTuple):
    """What the recursions read, with E the size of a word vector and H that of a state.

    Attributes:
        embed: ``[vocab + 1, E]``; the last row stands where there is no node before.
        ancestral: from the parent to a node.
        fraternal: from the sibling before to a node.
        combine: ``[2H, H]``, from both states to the one that predicts.
        topology: ``[H, 2]``, to the scores of having children and a next sibling.
        topology_bias: ``[2]``.
        word: ``[H, vocab]``.
        word_bias: ``[vocab]``.
        word_topology: ``[2, vocab]``, what the decisions add to the scores of the word.
    """

    embed: jax.Array
    ancestral: GRUWeights
    fraternal: GRUWeights
    combine: jax.Array
    topology: jax.Array
    topology_bias: jax.Array
    word: jax.Array
    word_bias: jax.Array
    word_topology: jax.Array


class Before(NamedTuple):
    """The parent, or the sibling before: its word, int32, and its state ``[H]``."""

    word: jax.Array
    state: jax.Array


class Produced(NamedTuple):
    """The result of `produce`: the word, and what the node generated (``ADD_CHILD`` and so on)."""

    word: jax.Array
    add: jax.Array


def _gru(weights: GRUWeights, x: jax.Array, h: jax.Array) -> jax.Array:
    """One step of a gated recurrent unit (Cho et al. 2014), reset after the product."""
    r, z, n = jnp.split(x @ weights.inputs + weights.bias, 3)
    r_state, z_state, n_state = jnp.split(h @ weights.state, 3)
    z = jax.nn.sigmoid(z + z_state)
    return (1 - z) * jnp.tanh(n + jax.nn.sigmoid(r + r_state) * n_state) + z * h


def _states(
    weights: DRNNWeights, parent: Before, sibling: Before
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The ancestral, the fraternal and the predictive state (equations 1-3 of the paper)."""
    ancestral = _gru(weights.ancestral, vectors_of(weights.embed, parent.word), parent.state)
    fraternal = _gru(weights.fraternal, vectors_of(weights.embed, sibling.word), sibling.state)
    both = jnp.concatenate([ancestral, fraternal])
    return ancestral, fraternal, jnp.tanh(both @ weights.combine)


def topology_scores(weights: DRNNWeights, predictive: jax.Array) -> jax.Array:
    """The log-odds ``[..., 2]`` of having children and of having a next sibling (equations 4-5)."""
    return predictive @ weights.topology + weights.topology_bias


def word_scores(weights: DRNNWeights, predictive: jax.Array, decided: jax.Array) -> jax.Array:
    """The scores ``[..., vocab]`` of the word, given both decisions (equation 7)."""
    return predictive @ weights.word + weights.word_bias + decided @ weights.word_topology


@jr.rec_fn
def read_ordered(
    weights: DRNNWeights,
    forest: OrderedForest,
    i: jax.Array,
    parent: Before,
    sibling: Before,
) -> jax.Array:
    """The predictive state ``[H]`` of node ``i``; its children and siblings are calls of their own.

    The tree is given, so all calls are known before the first runs, and scores wait until the
    states of all nodes are there: one product for all.
    """
    ancestral, fraternal, predictive = _states(weights, parent, sibling)
    start = jnp.int32(weights.embed.shape[0] - 1)

    def child() -> jax.Array:
        above = Before(forest.token[i], ancestral)
        before = Before(start, jnp.zeros_like(fraternal))
        return read_ordered(weights, forest, forest.child[i], above, before)

    def later() -> jax.Array:
        before = Before(forest.token[i], fraternal)
        return read_ordered(weights, forest, forest.sibling[i], parent, before)

    jr.cond(forest.child[i] < 0, lambda: predictive, child)
    jr.cond(forest.sibling[i] < 0, lambda: predictive, later)
    return predictive


@jr.rec_fn
def produce(
    weights: DRNNWeights,
    limits: tuple[jax.Array, jax.Array],
    depth: jax.Array,
    place: jax.Array,
    parent: Before,
    sibling: Before,
) -> Produced:
    """A node and, in calls of their own, its first child and its next sibling.

    Args:
        weights: the parameters.
        limits: the greatest depth, and the most children of a node.
        depth: steps from the root to the parent's level; the root has depth 0 and no siblings.
        place: how many siblings came before.
        parent: the node above.
        sibling: the sibling before.
    """
    ancestral, fraternal, predictive = _states(weights, parent, sibling)
    may = jnp.stack([(depth < limits[0]) & (limits[1] > 0), (depth > 0) & (place + 1 < limits[1])])
    decided = (topology_scores(weights, predictive) > 0) & may
    scores = word_scores(weights, predictive, decided.astype(predictive.dtype))
    word = best(scores)
    add = jnp.sum(jnp.where(decided, jnp.asarray([ADD_CHILD, ADD_SIBLING]), 0)).astype(jnp.int32)
    made = Produced(word, add)
    start = jnp.int32(weights.embed.shape[0] - 1)

    def child() -> Produced:
        before = Before(start, jnp.zeros_like(fraternal))
        return produce(weights, limits, depth + 1, 0, Before(word, ancestral), before)

    def later() -> Produced:
        return produce(weights, limits, depth, place + 1, parent, Before(word, fraternal))

    jr.cond(add & ADD_CHILD != 0, child, lambda: made)
    jr.cond(add & ADD_SIBLING != 0, later, lambda: made)
    return made
