"""The binary Tree-LSTM of Tai, Socher and Manning, ACL 2015."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

import jaxrec as jr
from jaxrec.data import Forest
from jaxrec.models._classifier import NodeStates, TreeClassifier, array_of, node_states


class TreeLSTMWeights(NamedTuple):
    """What `tree_lstm` reads, with H the hidden size and E that of the word vectors.

    Attributes:
        embed: ``[vocab, E]``.
        leaf_kernel: ``[E, 3H]``, the gates i, o, u of a leaf side by side.
        leaf_bias: ``[3H]``.
        kernel: ``[2H, 5H]``, from both children's h to the gates i, f_left, f_right, o, u.
        bias: ``[5H]``.
    """

    embed: jax.Array
    leaf_kernel: jax.Array
    leaf_bias: jax.Array
    kernel: jax.Array
    bias: jax.Array


State = tuple[jax.Array, jax.Array]


def _leaf(weights: TreeLSTMWeights, word: jax.Array) -> State:
    """Equations 9 and 11-14 for a node without children: no forget gate, no U terms."""
    i, o, u = jnp.split(word @ weights.leaf_kernel + weights.leaf_bias, 3)
    c = jax.nn.sigmoid(i) * jnp.tanh(u)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def _node(weights: TreeLSTMWeights, left: State, right: State) -> State:
    """Equations 9-14 with N = 2 and no input word; each child has its own forget gate."""
    (left_h, left_c), (right_h, right_c) = left, right
    gates = jnp.concatenate([left_h, right_h]) @ weights.kernel + weights.bias
    i, f_left, f_right, o, u = jnp.split(gates, 5)
    c = (
        jax.nn.sigmoid(i) * jnp.tanh(u)
        + jax.nn.sigmoid(f_left) * left_c
        + jax.nn.sigmoid(f_right) * right_c
    )
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


@jr.rec_fn
def tree_lstm(weights: TreeLSTMWeights, forest: Forest, i: jax.Array) -> State:
    """The state ``(h, c)`` of node ``i``, both ``[H]`` (Tai et al. 2015, equations 9-14).

    All gates of a node come from one matrix product, which is what makes a batch of calls fast.
    """

    def leaf() -> State:
        return _leaf(weights, weights.embed[forest.token[i]])

    def node() -> State:
        left = tree_lstm(weights, forest, forest.left[i])
        right = tree_lstm(weights, forest, forest.right[i])
        return _node(weights, left, right)

    return jr.cond(forest.left[i] < 0, leaf, node)


class TreeLSTM(TreeClassifier):
    """The binary (constituency) Tree-LSTM with a classifier on every node.

    Tai et al. 2015: equations 9-14 with N = 2, words at the leaves only, and the classifier of
    section 4.1.

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
        >>> trees = data.listops(seed=0, num=4)
        >>> forest = data.pack(trees, data.Vocabulary.build(trees))
        >>> model = models.TreeLSTM(20, 8, 16, 10, rngs=nnx.Rngs(0))
        >>> model(forest).shape == (forest.label.shape[0], 10)
        True
    """

    reads = Forest

    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the composition."""
        self.leaf = nnx.Linear(embed_dim, 3 * hidden_dim, rngs=rngs)
        self.composition = nnx.Linear(2 * hidden_dim, 5 * hidden_dim, rngs=rngs)

    def weights(self) -> TreeLSTMWeights:
        """The parameters that the recursion reads, as plain arrays."""
        return TreeLSTMWeights(
            embed=self.embed.embedding[...],
            leaf_kernel=self.leaf.kernel[...],
            leaf_bias=array_of(self.leaf.bias),
            kernel=self.composition.kernel[...],
            bias=array_of(self.composition.bias),
        )

    def states(self, forest: Forest) -> NodeStates:
        """The hidden state h of every node below ``forest.roots``."""
        _, calls = jr.collect(tree_lstm, in_axes=(None, None, 0))(
            self.weights(), forest, forest.roots
        )
        hidden, _ = calls.results
        return node_states(hidden, calls.args[2], calls.valid, forest.num_nodes)
