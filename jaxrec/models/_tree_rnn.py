"""The recursive neural network of Socher, Lin, Ng and Manning, ICML 2011."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

import jaxrec as jr
from jaxrec.data import Forest
from jaxrec.models._classifier import NodeStates, TreeClassifier, check_same_dims, node_states


class TreeRNNWeights(NamedTuple):
    """What `tree_rnn` reads, with H the size of a state and of a word vector.

    Attributes:
        embed: ``[vocab, H]``.
        kernel: ``[2H, H]``, from both children's states.
        bias: ``[H]``.
    """

    embed: jax.Array
    kernel: jax.Array
    bias: jax.Array


@jr.rec_fn
def tree_rnn(weights: TreeRNNWeights, forest: Forest, i: jax.Array) -> jax.Array:
    """The state ``[H]`` of node ``i``: ``tanh(W [left; right] + b)`` (Socher et al. 2011, eq. 1).

    A leaf's state is its word vector.
    """

    def leaf() -> jax.Array:
        return weights.embed[forest.token[i]]

    def node() -> jax.Array:
        left = tree_rnn(weights, forest, forest.left[i])
        right = tree_rnn(weights, forest, forest.right[i])
        return jnp.tanh(jnp.concatenate([left, right]) @ weights.kernel + weights.bias)

    return jr.cond(forest.left[i] < 0, leaf, node)


class TreeRNN(TreeClassifier):
    """The plain recursive network with a classifier on every node (Socher et al. 2011, 2013).

    Args:
        vocab_size: Rows of the word vector table.
        embed_dim: Size of a word vector, equal to ``hidden_dim``.
        hidden_dim: Size H of a state.
        num_classes: Classes of a node.
        rngs: Streams ``params`` and, with dropout, ``dropout``.
        dropout: Rate on the classifier's input, in ``[0, 1)``.

    Raises:
        ValueError: ``embed_dim`` and ``hidden_dim`` differ: a leaf's state is its word vector.

    Example:
        >>> from flax import nnx
        >>> from jaxrec import models
        >>> models.TreeRNN(20, 16, 16, 5, rngs=nnx.Rngs(0)).weights().kernel.shape
        (32, 16)
    """

    reads = Forest

    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the composition."""
        check_same_dims("TreeRNN", embed_dim, hidden_dim)
        init, shape = nnx.initializers.lecun_normal(), (2 * hidden_dim, hidden_dim)
        self.kernel = nnx.Param(init(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(hidden_dim, jnp.float32))

    def weights(self) -> TreeRNNWeights:
        """The parameters that the recursion reads, as plain arrays."""
        return TreeRNNWeights(self.embed.embedding[...], self.kernel[...], self.bias[...])

    def states(self, forest: Forest) -> NodeStates:
        """The state of every node below ``forest.roots``."""
        _, calls = jr.collect(tree_rnn, in_axes=(None, None, 0))(
            self.weights(), forest, forest.roots
        )
        return node_states(calls.results, calls.args[2], calls.valid, forest.num_nodes)
