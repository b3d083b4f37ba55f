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
    count: Array


class _Loop(NamedTuple):
    nodes: Nodes
    h: Array  # [room, H]
    c: Array
    stack: Array  # [room, 3]: origin, edge, depth
    height: Array


def generate(weights: TopDownWeights, h: Array, max_depth: int, room: int) -> Nodes:
    """Generates one tree of at most `room` nodes from its first state."""
    vocabulary = weights.word_bias.shape[0]
    zeros = jnp.zeros((room + 1, h.shape[0]))
    # Row `room` stands in front of the root.
    start = _Loop(
        Nodes(jnp.full(room + 1, vocabulary), jnp.zeros(room + 1, jnp.int32), jnp.int32(0)),
        zeros.at[room].set(h),
        zeros,
        jnp.zeros((room, 3), jnp.int32).at[0].set(jnp.asarray([room, ROOT_EDGE, 0])),
        jnp.int32(1),
    )
    body = partial(_one_node, weights, max_depth)
    return lax.while_loop(lambda s: s.height > 0, body, start).nodes


def _one_node(weights: TopDownWeights, max_depth: int, s: _Loop) -> _Loop:
    origin, edge, depth = s.stack[s.height - 1]
    node = s.nodes.count
    h, c = step(weights, edge, s.nodes.word[origin], s.h[origin], s.c[origin])
    word = best(h @ weights.word_kernel + weights.word_bias)
    following = 2 + edge % 2
    scores = jnp.concatenate([h, weights.embed[word]]) @ weights.add_kernel + weights.add_bias
    wanted = (jnp.stack([scores[0], scores[1], scores[following]]) > 0) & (depth < max_depth)
    wanted = wanted.at[2].set(wanted[2] & (depth > 0))
    stack, height = s.stack, s.height - 1
    for k, kind in ((2, following), (1, 1), (0, 0)):
        stack = stack.at[height].set(jnp.stack([node, jnp.asarray(kind), depth + 1]))
        height = height + wanted[k]
    add = jnp.sum(jnp.where(wanted, jnp.asarray([1, 2, 4]), 0))
    nodes = Nodes(s.nodes.word.at[node].set(word), s.nodes.add.at[node].set(add), node + 1)
    return _Loop(nodes, s.h.at[node].set(h), s.c.at[node].set(c), stack, height)


def step(
    weights: TopDownWeights, edge: Array, word: Array, h: Array, c: Array
) -> tuple[Array, Array]:
    """The LSTM of one kind of edge."""
    inputs = jnp.concatenate([weights.embed[word], h])
    kinds = zip(weights.kernels, weights.biases, strict=True)
    gates = lax.switch(edge, [partial(_gates, k, b) for k, b in kinds], inputs)
    i, f, o, u = jnp.split(gates, 4)
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + jax.nn.sigmoid(f) * c
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _gates(kernel: Array, bias: Array, inputs: Array) -> Array:
    return inputs @ kernel + bias


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
    nodes, trees = given.edge.shape[0], first.shape[0]
    h = jnp.zeros((nodes + trees, first.shape[1])).at[nodes:].set(first)

    def one(node: Any, state: tuple[Array, Array]) -> tuple[Array, Array]:
        h, c = state
        at = given.origin[node]
        new_h, new_c = step(weights, given.edge[node], given.word[node], h[at], c[at])
        return h.at[node].set(new_h), c.at[node].set(new_c)

    h, c = lax.fori_loop(0, nodes, one, (h, jnp.zeros_like(h)))
    return h[:nodes], (weights, given, h, c)


def _read_backward(kept: Any, cotangent: Array) -> tuple[TopDownWeights, None, Array]:
    """The loop in reverse, one node at a time; JAX cannot reverse a `while_loop` by itself."""
    weights, given, h, c = kept
    nodes, trees = given.edge.shape[0], h.shape[0] - given.edge.shape[0]
    dh = jnp.concatenate([cotangent, jnp.zeros((trees, h.shape[1]))])

    def one(k: Any, state: tuple[Any, Array, Array]) -> tuple[Any, Array, Array]:
        total, dh, dc = state
        node = nodes - 1 - k
        at, edge, word = given.origin[node], given.edge[node], given.word[node]
        x = weights.embed[word]

        def branch(kind: int, total: Any) -> Any:
            kernel, bias = weights.kernels[kind], weights.biases[kind]
            _, pull = jax.vjp(_lstm, kernel, bias, x, h[at], c[at])
            d_kernel, d_bias, dx, dh_at, dc_at = pull((dh[node], dc[node]))
            kernels, biases, embed = total
            kernels = (*kernels[:kind], kernels[kind] + d_kernel, *kernels[kind + 1 :])
            biases = (*biases[:kind], biases[kind] + d_bias, *biases[kind + 1 :])
            return (kernels, biases, embed.at[word].add(dx)), dh_at, dc_at

        total, dh_at, dc_at = lax.switch(edge, [partial(branch, kind) for kind in range(4)], total)
        return total, dh.at[at].add(dh_at), dc.at[at].add(dc_at)

    zero = jax.tree.map(jnp.zeros_like, (weights.kernels, weights.biases, weights.embed))
    total, dh, _ = lax.fori_loop(0, nodes, one, (zero, dh, jnp.zeros_like(dh)))
    rest = jax.tree.map(jnp.zeros_like, weights)
    made = rest._replace(kernels=total[0], biases=total[1], embed=total[2])
    return made, None, dh[nodes:]


def _lstm(kernel: Array, bias: Array, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    i, f, o, u = jnp.split(jnp.concatenate([x, h]) @ kernel + bias, 4)
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + jax.nn.sigmoid(f) * c
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


read.defvjp(_read_forward, _read_backward)
