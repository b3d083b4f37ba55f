"""The same model as loops: one node at a time, with an explicit stack.

This is what the recursion has to be rewritten to where only `lax.while_loop` is there.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxrec.models import TopDownWeights
from jaxrec.models._classifier import best

ROOT_EDGE = 1


class Nodes(NamedTuple):
    """What a loop has generated: [room] each, in depth-first order, and how many there are."""

    word: Array
    add: Array
    size: Array


class _Loop(NamedTuple):
    nodes: Nodes
    states: Array  # [room, 2H]: h, c; XLA copies two arrays at every node, but not one
    stack: Array  # [room, 3]: origin, edge, depth
    height: Array


def generate(weights: TopDownWeights, h: Array, max_depth: int, room: int) -> Nodes:
    """Generates one tree of at most `room` nodes from its first state."""
    vocabulary = weights.embed.shape[0] - 1
    states = jnp.zeros((room + 1, 2 * h.shape[0]))
    # Row `room` stands in front of the root.
    start = _Loop(
        Nodes(jnp.full(room + 1, vocabulary), jnp.zeros(room + 1, jnp.int32), jnp.int32(0)),
        states.at[room, : h.shape[0]].set(h),
        jnp.zeros((room, 3), jnp.int32).at[0].set(jnp.asarray([room, ROOT_EDGE, 0])),
        jnp.int32(1),
    )
    body = partial(_one_node, weights, max_depth)
    return lax.while_loop(lambda s: s.height > 0, body, start).nodes


def _one_node(weights: TopDownWeights, max_depth: int, s: _Loop) -> _Loop:
    origin, edge, depth = s.stack[s.height - 1]
    node = s.nodes.size
    h, c = step(weights, edge, s.nodes.word[origin], *jnp.split(s.states[origin], 2))
    scores = h @ weights.score_kernel + weights.score_bias
    word = best(scores[:-4])
    following = 2 + edge % 2
    scores = scores[-4:] + weights.edge_embed[word]
    wanted = (jnp.stack([scores[0], scores[1], scores[following]]) > 0) & (depth < max_depth)
    wanted = wanted.at[2].set(wanted[2] & (depth > 0))
    stack, height = s.stack, s.height - 1
    for k, kind in ((2, following), (1, 1), (0, 0)):
        stack = stack.at[height].set(jnp.stack([node, jnp.asarray(kind), depth + 1]))
        height = height + wanted[k]
    add = jnp.sum(jnp.where(wanted, jnp.asarray([1, 2, 4]), 0))
    nodes = Nodes(s.nodes.word.at[node].set(word), s.nodes.add.at[node].set(add), node + 1)
    return _Loop(nodes, s.states.at[node].set(jnp.concatenate([h, c])), stack, height)


def step(
    weights: TopDownWeights, edge: Array, word: Array, h: Array, c: Array
) -> tuple[Array, Array]:
    """The LSTM of one kind of edge."""
    return _lstm(_gates(weights, edge, jnp.concatenate([weights.embed[word], h])), c)


def _gates(weights: TopDownWeights, edge: Array, inputs: Array) -> Array:
    kinds = zip(weights.kernels, weights.biases, strict=True)
    return lax.switch(edge, [partial(_affine, k, b) for k, b in kinds], inputs)


def _affine(kernel: Array, bias: Array, inputs: Array) -> Array:
    return inputs @ kernel + bias


def _lstm(gates: Array, c: Array) -> tuple[Array, Array]:
    i, f, o, u = jnp.split(gates, 4)
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + jax.nn.sigmoid(f) * c
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


class Given(NamedTuple):
    """Given trees, one after another, in depth-first order, each field [nodes].

    Attributes:
        origin: the node before it; the number of nodes plus the tree's number for a root.
        edge: the kind of edge.
        word: the word of the node before it.
    """

    origin: Array
    edge: Array
    word: Array


@jax.custom_vjp
def read(weights: TopDownWeights, given: Given, first: Array) -> Array:
    """The states h [nodes, H] of given trees, one node after another."""
    return _read_forward(weights, given, first)[0]


def _read_forward(weights: TopDownWeights, given: Given, first: Array) -> tuple[Array, Any]:
    nodes, (trees, size) = given.edge.shape[0], first.shape
    states = jnp.zeros((nodes + trees, 2 * size)).at[nodes:, :size].set(first)

    def one(node: Any, states: Array) -> Array:
        h, c = jnp.split(states[given.origin[node]], 2)
        made = step(weights, given.edge[node], given.word[node], h, c)
        return states.at[node].set(jnp.concatenate(made))

    states = lax.fori_loop(0, nodes, one, states)
    return states[:nodes, :size], (weights, given, states)


def _read_backward(kept: Any, cotangent: Array) -> tuple[TopDownWeights, None, Array]:
    """The loop in reverse, one node at a time; JAX cannot reverse a `while_loop` by itself.

    Weights of all kinds of edges add up in one array, where XLA adds in place.
    """
    weights, given, states = kept
    nodes, size = cotangent.shape
    ahead = jnp.zeros_like(states).at[:nodes, :size].set(cotangent)
    transposed = [partial(jnp.matmul, kernel) for kernel in weights.kernels]

    def one(k: Any, state: tuple[Any, Array]) -> tuple[Any, Array]:
        (kernels, biases, embed), ahead = state
        node = nodes - 1 - k
        at, edge, word = given.origin[node], given.edge[node], given.word[node]
        h, c = jnp.split(states[at], 2)
        inputs = jnp.concatenate([weights.embed[word], h])
        _, pull = jax.vjp(_lstm, _gates(weights, edge, inputs), c)
        d_gates, d_c = pull(tuple(jnp.split(ahead[node], 2)))
        dx, dh = jnp.split(lax.switch(edge, transposed, d_gates), [weights.embed.shape[1]])
        total = (
            kernels.at[edge].add(inputs[:, None] * d_gates),
            biases.at[edge].add(d_gates),
            embed.at[word].add(dx),
        )
        return total, ahead.at[at].add(jnp.concatenate([dh, d_c]))

    stacked = jnp.stack(weights.kernels), jnp.stack(weights.biases), weights.embed
    zero = jax.tree.map(jnp.zeros_like, stacked)
    (kernels, biases, embed), ahead = lax.fori_loop(0, nodes, one, (zero, ahead))
    rest = jax.tree.map(jnp.zeros_like, weights)
    made = rest._replace(kernels=tuple(kernels), biases=tuple(biases), embed=embed)
    return made, None, ahead[nodes:, :size]


read.defvjp(_read_forward, _read_backward)
