"""The child-sum Tree-LSTM of Tai, Socher and Manning, ACL 2015."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

import jaxrec as jr
from jaxrec.data import OrderedForest
from jaxrec.models._classifier import NodeStates, TreeClassifier, node_states, vectors_of


class ChildSumWeights(NamedTuple):
    """What `child_sum` reads, with H the hidden size.

    Attributes:
        words: ``[nodes, 4H]``, what the words of the nodes add to the gates i, o, u, f, biases
            included: ``W x + b`` of the paper, which waits for no other node.
        kernel: ``[H, 3H]``, from the sum of the children's h to the gates i, o, u.
        forget: ``[H, H]``, from a child's h to its own forget gate.
    """

    words: jax.Array
    kernel: jax.Array
    forget: jax.Array


class Siblings(NamedTuple):
    """The result of `child_sum`.

    Attributes:
        hidden: ``[H]``, the sum of h over a node and its later siblings.
        memory: ``[H]``, the sum of f * c over the same nodes.
        own: ``[H]``, the node's h alone.
    """

    hidden: jax.Array
    memory: jax.Array
    own: jax.Array


Sums = tuple[jax.Array, jax.Array]


@jr.rec_fn
def child_sum(
    weights: ChildSumWeights, forest: OrderedForest, i: jax.Array, parent: jax.Array
) -> Siblings:
    """The states of node ``i`` and of its later siblings (Tai et al. 2015, equations 2-8).

    A list of siblings is itself a recursive structure. A node needs the sums over its first
    child's list; those over its own list are its contribution and those of its next sibling. So
    every call has at most two calls in it, whatever the arity, and all nodes share their batches.
    The forget gate of a child belongs to an edge: it is computed with the child, where h is.
    """
    size = weights.forget.shape[0]

    def none() -> Sums:
        return jnp.zeros(size, weights.words.dtype), jnp.zeros(size, weights.words.dtype)

    def listed(first: jax.Array, above: jax.Array) -> Sums:
        sums = child_sum(weights, forest, first, above)
        return sums.hidden, sums.memory

    hidden, memory = jr.cond(forest.child[i] < 0, none, lambda: listed(forest.child[i], i))
    gates = weights.words[i, : 3 * size] + hidden @ weights.kernel
    i_gate, o_gate, u = jnp.split(gates, 3)
    c = jax.nn.sigmoid(i_gate) * jnp.tanh(u) + memory
    h = jax.nn.sigmoid(o_gate) * jnp.tanh(c)
    kept = jax.nn.sigmoid(weights.words[parent, 3 * size :] + h @ weights.forget) * c
    later = jr.cond(forest.sibling[i] < 0, none, lambda: listed(forest.sibling[i], parent))
    return Siblings(h + later[0], kept + later[1], h)


class ChildSumTreeLSTM(TreeClassifier):
    """The child-sum (dependency) Tree-LSTM with a classifier on every node.

    Tai et al. 2015: equations 2-8, over trees whose nodes have any number of children and a word
    each; a node without a word (token -1) has the zero vector. The sum makes the order of children
    immaterial.

    Args:
        vocab_size: Rows of the word vector table.
        embed_dim: Size E of a word vector.
        hidden_dim: Size H of h and of c.
        num_classes: Classes of a node.
        rngs: Streams ``params`` and, with dropout, ``dropout``.
        dropout: Rate on the classifier's input, in ``[0, 1)``.

    Example:
        >>> from flax import nnx
        >>> from jaxrec import data, models
        >>> forest = data.ordered_forest(token=[1, 2, 3, 4], parent=[-1, 0, 0, 0])
        >>> model = models.ChildSumTreeLSTM(20, 8, 16, 10, rngs=nnx.Rngs(0))
        >>> model(forest).shape
        (4, 10)
    """

    reads = OrderedForest

    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the composition."""
        self.word = nnx.Linear(embed_dim, 4 * hidden_dim, rngs=rngs)
        self.children = nnx.Linear(hidden_dim, 3 * hidden_dim, use_bias=False, rngs=rngs)
        self.forget = nnx.Linear(hidden_dim, hidden_dim, use_bias=False, rngs=rngs)

    def weights(self, forest: OrderedForest) -> ChildSumWeights:
        """What the recursion reads: parameters, and the words' part of all gates at once."""
        token = jnp.asarray(forest.token)
        # Not `self.embed(...)`, which looks words up in the type that it was made with.
        words = vectors_of(self.embed.embedding[...], token)
        return ChildSumWeights(self.word(words), self.children.kernel[...], self.forget.kernel[...])

    def states(self, forest: OrderedForest) -> NodeStates:
        """The hidden state h of every node below ``forest.roots``."""
        _, calls = jr.collect(child_sum, in_axes=(None, None, 0, 0))(
            self.weights(forest), forest, forest.roots, forest.roots
        )
        return node_states(calls.results.own, calls.args[2], calls.valid, forest.num_nodes)
