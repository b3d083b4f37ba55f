"""The recursive neural tensor network of Socher et al., EMNLP 2013."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

import jaxrec as jr
from jaxrec.data import Forest
from jaxrec.models._classifier import NodeStates, TreeClassifier, check_same_dims, node_states


class RNTNWeights(NamedTuple):
    """What `rntn` reads, with d the size of a state and of a word vector.

    Attributes:
        embed: ``[vocab, d]``.
        tensor: ``[2d, 2d, d]``; ``tensor[:, :, k]`` is the bilinear form V of output k.
        kernel: ``[2d, d]``.
        bias: ``[d]``.
    """

    embed: jax.Array
    tensor: jax.Array
    kernel: jax.Array
    bias: jax.Array


def _node(weights: RNTNWeights, left: jax.Array, right: jax.Array) -> jax.Array:
    """``tanh(v' V v + W v + b)`` for ``v = [left; right]`` (Socher et al. 2013, section 4.3).

    The first contraction is one matrix product for a whole batch of calls; the second differs
    from call to call, so it is a multiplication and a sum, which XLA fuses.
    """
    both = jnp.concatenate([left, right])
    size = both.shape[0]
    forms = (both @ weights.tensor.reshape(size, -1)).reshape(size, -1)
    bilinear = jnp.sum(both[:, None] * forms, axis=0)
    return jnp.tanh(bilinear + both @ weights.kernel + weights.bias)


@jr.rec_fn
def rntn(weights: RNTNWeights, forest: Forest, i: jax.Array) -> jax.Array:
    """The state ``[d]`` of node ``i`` (Socher et al. 2013, section 4.3); a leaf's is its word."""

    def leaf() -> jax.Array:
        return weights.embed[forest.token[i]]

    def node() -> jax.Array:
        left = rntn(weights, forest, forest.left[i])
        right = rntn(weights, forest, forest.right[i])
        return _node(weights, left, right)

    return jr.cond(forest.left[i] < 0, leaf, node)


class RNTN(TreeClassifier):
    """The recursive neural tensor network with a classifier on every node.

    Socher et al. 2013, section 4.3, which finds sizes of 25 to 35 best on sentiment. The tensor
    has ``4 hidden_dim**3`` entries.

    Args:
        vocab_size: Rows of the word vector table.
        embed_dim: Size of a word vector, equal to ``hidden_dim``.
        hidden_dim: Size d of a state.
        num_classes: Classes of a node.
        rngs: Streams ``params`` and, with dropout, ``dropout``.
        dropout: Rate on the classifier's input, in ``[0, 1)``.

    Raises:
        ValueError: ``embed_dim`` and ``hidden_dim`` differ: a leaf's state is its word vector.

    Example:
        >>> from flax import nnx
        >>> from jaxrec import models
        >>> models.RNTN(20, 8, 8, 5, rngs=nnx.Rngs(0)).weights().tensor.shape
        (16, 16, 8)
    """

    reads = Forest

    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the composition."""
        check_same_dims("RNTN", embed_dim, hidden_dim)
        both = 2 * hidden_dim
        # A bilinear form of unit-size inputs sums both**2 products: keep its variance at 1.
        tensor = jax.random.normal(rngs.params(), (both, both, hidden_dim), jnp.float32) / both
        self.tensor = nnx.Param(tensor)
        init = nnx.initializers.lecun_normal()
        self.kernel = nnx.Param(init(rngs.params(), (both, hidden_dim), jnp.float32))
        self.bias = nnx.Param(jnp.zeros(hidden_dim, jnp.float32))

    def weights(self) -> RNTNWeights:
        """The parameters that the recursion reads, as plain arrays."""
        return RNTNWeights(
            self.embed.embedding[...], self.tensor[...], self.kernel[...], self.bias[...]
        )

    def states(self, forest: Forest) -> NodeStates:
        """The state of every node below ``forest.roots``."""
        _, calls = jr.collect(rntn, in_axes=(None, None, 0))(self.weights(), forest, forest.roots)
        return node_states(calls.results, calls.args[2], calls.valid, forest.num_nodes)
