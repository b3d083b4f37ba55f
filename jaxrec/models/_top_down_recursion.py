"""The recursions of the top-down Tree-LSTM: over a given tree, and one that makes the tree."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import jaxrec as jr
from jaxrec.data import DependencyForest
from jaxrec.models._classifier import best, vectors_of

EDGES = 4
LEFT, RIGHT, NEXT_LEFT, NEXT_RIGHT = range(EDGES)
"""The kinds of edges, each with an LSTM of its own (Zhang et al. 2016, section 2.2)."""

ADD_LEFT, ADD_RIGHT, ADD_NEXT = 1, 2, 4
"""What a node decides to generate: bits of a number, so that control reads one value a node."""


class TopDownWeights(NamedTuple):
    """What the recursions read, with E the size of a word vector and H that of a state.

    A state and its word give one score for each kind of edge. The state's part of it is computed
    with the scores of words, by one product, and the word's part is a table: a product of four
    columns takes longer than it should.

    Attributes:
        embed: ``[vocab + 1, E]``; the last row stands in front of every root.
        kernels: for each kind of edge ``[E + H, 4H]``, to the gates i, f, o, u side by side.
        biases: for each kind of edge ``[4H]``.
        score_kernel: ``[H, vocab + 4]``, from a state to the scores of its word, and its part of
            those of edges.
        score_bias: ``[vocab + 4]``.
        edge_embed: ``[vocab + 1, 4]``, a word's part of the scores of edges.
    """

    embed: jax.Array
    kernels: tuple[jax.Array, ...]
    biases: tuple[jax.Array, ...]
    score_kernel: jax.Array
    score_bias: jax.Array
    edge_embed: jax.Array


class Origin(NamedTuple):
    """What a node is generated from: the node before it on its path.

    Attributes:
        word: int32, the word of that node.
        h: ``[H]``.
        c: ``[H]``.
    """

    word: jax.Array
    h: jax.Array
    c: jax.Array


class Generated(NamedTuple):
    """The result of `generate`.

    Attributes:
        word: int32, the most probable word.
        add: int32, what the node generated: the sum of ``ADD_LEFT``, ``ADD_RIGHT``, ``ADD_NEXT``.
    """

    word: jax.Array
    add: jax.Array


def next_edge(edge: Any) -> Any:
    """The kind of edge to the next dependent on the same side."""
    return NEXT_LEFT + edge % 2


def _state(
    weights: TopDownWeights, edge: int, x: jax.Array, h: jax.Array, c: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One step of the LSTM of a kind of edge (Zhang et al. 2016, equations 3-8).

    ``x`` is the word vector of the node that the edge leaves, ``h`` and ``c`` are its state.
    """
    inputs = jnp.concatenate([x, h])
    gates = inputs @ weights.kernels[edge] + weights.biases[edge]
    i, f, o, u = jnp.split(gates, 4)
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + jax.nn.sigmoid(f) * c
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def scores(weights: TopDownWeights, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The scores of words ``[..., vocab]``, and the part of those of edges ``[..., 4]``."""
    both = h @ weights.score_kernel + weights.score_bias
    return both[..., :-EDGES], both[..., -EDGES:]


@jr.rec_fn
def read_tree(
    weights: TopDownWeights,
    forest: DependencyForest,
    i: jax.Array,
    edge: jax.Array,
    word: jax.Array,
    h: jax.Array,
    c: jax.Array,
) -> jax.Array:
    """The state h ``[H]`` of node ``i``; its dependents and the next node are calls of their own.

    The tree is given, so all calls are known before the first runs, and scores of words wait
    until the states of all nodes are there: one product for all.
    """
    x = vectors_of(weights.embed, word)
    steps = [functools.partial(_state, weights, k, x, h, c) for k in range(EDGES)]
    state = jr.switch(edge, steps)

    def follow(node: jax.Array, kind: jax.Array | int) -> None:
        def go() -> jax.Array:
            return read_tree(weights, forest, node, kind, forest.token[i], *state)

        jr.cond(node < 0, lambda: state[0], go)

    follow(forest.left[i], LEFT)
    follow(forest.right[i], RIGHT)
    follow(forest.next[i], next_edge(edge))
    return state[0]


@jr.rec_fn
def generate(
    weights: TopDownWeights,
    max_depth: jax.Array,
    depth: jax.Array,
    edge: jax.Array,
    origin: Origin,
) -> Generated:
    """A node and, in calls of their own, all that it decides to generate.

    State, word and decisions are one cell for each kind of edge, so a call costs the scheduler one
    wait. Nodes at ``max_depth`` generate nothing.
    """

    def node(kind: int) -> tuple[jax.Array, jax.Array, Generated]:
        h, c = _state(weights, kind, weights.embed[origin.word], origin.h, origin.c)
        of_words, of_edges = scores(weights, h)
        word = best(of_words)
        wanted = of_edges + weights.edge_embed[word] > 0
        chosen = jnp.stack([wanted[LEFT], wanted[RIGHT], wanted[next_edge(kind)] & (depth > 0)])
        add = jnp.sum(jnp.where(chosen, jnp.asarray([ADD_LEFT, ADD_RIGHT, ADD_NEXT]), 0))
        return h, c, Generated(word, jnp.where(depth < max_depth, add, 0).astype(jnp.int32))

    h, c, made = jr.switch(edge, [functools.partial(node, k) for k in range(EDGES)])

    def follow(bit: int, kind: jax.Array | int) -> None:
        def go() -> Generated:
            return generate(weights, max_depth, depth + 1, kind, Origin(made.word, h, c))

        jr.cond(made.add & bit != 0, go, lambda: made)

    follow(ADD_LEFT, LEFT)
    follow(ADD_RIGHT, RIGHT)
    follow(ADD_NEXT, next_edge(edge))
    return made
