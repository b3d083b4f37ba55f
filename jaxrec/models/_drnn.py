"""The doubly recurrent neural network of Alvarez-Melis and Jaakkola, ICLR 2017."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxrec as jr
from jaxrec.data import OrderedForest
from jaxrec.models._classifier import array_of, node_states
from jaxrec.models._drnn_recursion import (
    ADD_CHILD,
    ADD_SIBLING,
    Before,
    DRNNWeights,
    GRUWeights,
    produce,
    read_ordered,
    topology_scores,
    word_scores,
)
from jaxrec.models._generator import TreeGenerator, links, tree_shares


class ProducedTrees(NamedTuple):
    """Trees that a model generated, node by node in depth-first order.

    Attributes:
        word: int32 ``[nodes]``.
        add: int32 ``[nodes]``, what each node generated: 1 for children, 2 for a next sibling.
        tree: int32 ``[nodes]``, which tree a node belongs to.
        valid: bool ``[nodes]``; rows that are no node are false.
    """

    word: jax.Array
    add: jax.Array
    tree: jax.Array
    valid: jax.Array

    def forest(self) -> OrderedForest:
        """The trees as arrays of indices (NumPy; not for use inside ``jit``)."""
        valid = np.asarray(self.valid)
        word, add = np.asarray(self.word)[valid], np.asarray(self.add)[valid]
        found, roots = links(add.tolist(), (ADD_CHILD, ADD_SIBLING))
        label = np.full(len(word), -1, np.int32)
        return OrderedForest(label, word, *found.values(), roots=roots)


class DRNN(TreeGenerator):
    """Generates ordered trees of any arity from vectors.

    Alvarez-Melis & Jaakkola 2017: a node has a state from its parent (ancestral) and one from the
    sibling before it (fraternal). Together they say whether it has children, whether it has a next
    sibling, and, given that, its word. The first ancestral state is made from a vector, so that the
    model can decode what something else encodes. The recurrences are gated recurrent units.

    Args:
        vocab_size: Number of words.
        embed_dim: Size E of a word vector.
        hidden_dim: Size H of a state.
        condition_dim: Size of the vector that a tree is generated from.
        rngs: Stream ``params``.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from jaxrec import data, models
        >>> model = models.DRNN(10, 8, 16, 4, rngs=nnx.Rngs(0))
        >>> forest = data.ordered_forest(token=[7, 8, 9, 5], parent=[-1, 0, 0, 2])
        >>> model.loss(forest, jnp.ones((1, 4))).shape
        ()
        >>> trees = model.generate(jnp.ones((1, 4)), max_depth=3, max_children=4)
        >>> trees.forest().num_trees
        1
    """

    reads = OrderedForest

    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the recursion."""
        gates = 3 * hidden_dim
        self.inputs = nnx.List([nnx.Linear(embed_dim, gates, rngs=rngs) for _ in range(2)])
        states = [nnx.Linear(hidden_dim, gates, use_bias=False, rngs=rngs) for _ in range(2)]
        self.states = nnx.List(states)
        self.combine = nnx.Linear(2 * hidden_dim, hidden_dim, use_bias=False, rngs=rngs)
        self.topology = nnx.Linear(hidden_dim, 2, rngs=rngs)
        self.word = nnx.Linear(hidden_dim, self.vocab_size, rngs=rngs)
        self.word_topology = nnx.Param(jnp.zeros((2, self.vocab_size), jnp.float32))

    def weights(self) -> DRNNWeights:
        """The parameters that the recursions read, as plain arrays."""
        pairs = zip(self.inputs, self.states, strict=True)
        ancestral, fraternal = (
            GRUWeights(x.kernel[...], h.kernel[...], array_of(x.bias)) for x, h in pairs
        )
        return DRNNWeights(
            embed=self.embed.embedding[...],
            ancestral=ancestral,
            fraternal=fraternal,
            combine=self.combine.kernel[...],
            topology=self.topology.kernel[...],
            topology_bias=array_of(self.topology.bias),
            word=self.word.kernel[...],
            word_bias=array_of(self.word.bias),
            word_topology=self.word_topology[...],
        )

    def loss(
        self, forest: OrderedForest, condition: jax.Array, weight: jax.Array | None = None
    ) -> jax.Array:
        """Minus the log-likelihood of given trees: of their topology and, given it, their words.

        Args:
            forest: Trees as `jaxrec.data.ordered_forest` makes them. A node without a word (token
                -1) has no likelihood of one, and is the zero vector to its children and siblings.
            condition: ``[trees, condition_dim]``, the vector of each tree.
            weight: ``[trees]``, what each tree counts, as `jaxrec.data.batches` gives it: 0 for a
                tree that fills a batch up. 1 for all if omitted.

        Returns:
            A scalar, in nats a tree (equation 8 of the paper).

        Raises:
            TypeError: The forest is of another class.
            ValueError: `condition` or `weight` is of another shape.
        """
        self.check(forest, condition)
        weights = self.weights()
        parent, sibling = self._origins(condition)
        _, calls = jr.collect(read_ordered, in_axes=(None, None, 0, 0, 0))(
            weights, forest, forest.roots, parent, sibling
        )
        states, node = node_states(calls.results, calls.args[2], calls.valid, forest.num_nodes)
        entropy = _losses(weights, forest, states, node)
        shares = tree_shares(weight, forest.num_trees, calls.lane)
        return jnp.sum(jnp.where(calls.valid, entropy * shares, 0.0))

    def generate(
        self, condition: jax.Array, max_depth: int, max_children: int, max_nodes: int | None = None
    ) -> ProducedTrees:
        """The most probable decisions and word at every node, one after another.

        Args:
            condition: ``[trees, condition_dim]``.
            max_depth: Nodes that many edges below the root have no children.
            max_children: Nodes have at most that many.
            max_nodes: A bound on the nodes of all trees together, needed under ``jit`` only.

        Returns:
            The trees; see `ProducedTrees.forest`.

        Raises:
            CapacityError: More nodes than ``max_nodes``.
        """
        limits = jnp.int32(max_depth), jnp.int32(max_children)
        decode = produce if max_nodes is None else produce.with_options(max_calls=max_nodes)
        _, calls = jr.collect(decode, in_axes=(None, None, None, None, 0, 0))(
            self.weights(), limits, jnp.int32(0), jnp.int32(0), *self._origins(condition)
        )
        return ProducedTrees(calls.results.word, calls.results.add, calls.lane, calls.valid)

    def _origins(self, condition: jax.Array) -> tuple[Before, Before]:
        """What stands above and in front of the roots."""
        state = self.first_states(condition)
        start = jnp.full(state.shape[0], self.vocab_size, jnp.int32)
        return Before(start, state), Before(start, jnp.zeros_like(state))


def _losses(
    weights: DRNNWeights, forest: OrderedForest, states: jax.Array, node: jax.Array
) -> jax.Array:
    """Minus the log-likelihood of each node; that a root has no sibling is no decision."""
    token, child, sibling = map(jnp.asarray, (forest.token, forest.child, forest.sibling))
    made = (jnp.stack([child[node], sibling[node]], axis=1) >= 0).astype(states.dtype)
    topology = optax.sigmoid_binary_cross_entropy(topology_scores(weights, states), made)
    is_root = jnp.zeros(forest.num_nodes, bool).at[jnp.asarray(forest.roots)].set(True)
    decided = jnp.ones(made.shape, bool).at[:, 1].set(~is_root[node])
    words = optax.softmax_cross_entropy_with_integer_labels(
        word_scores(weights, states, made), jnp.maximum(token[node], 0)
    )
    words = jnp.where(token[node] >= 0, words, 0.0)
    return words + jnp.sum(jnp.where(decided, topology, 0.0), axis=1)
