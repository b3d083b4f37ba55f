"""The top-down Tree-LSTM of Zhang, Lu and Lapata, NAACL 2016."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import jaxrec as jr
from jaxrec.data import DependencyForest
from jaxrec.models._classifier import array_of, node_states, vectors_of
from jaxrec.models._generator import TreeGenerator, links, tree_shares
from jaxrec.models._top_down_recursion import (
    ADD_LEFT,
    ADD_NEXT,
    ADD_RIGHT,
    EDGES,
    RIGHT,
    Origin,
    TopDownWeights,
    generate,
    next_edge,
    read_tree,
    scores,
)


class GeneratedTrees(NamedTuple):
    """Trees that a model generated, node by node in depth-first order.

    Attributes:
        word: int32 ``[nodes]``.
        add: int32 ``[nodes]``, what each node generated: 1 for a left dependent, 2 for a right
            one, 4 for a next one on its own side, added up.
        tree: int32 ``[nodes]``, which tree a node belongs to.
        valid: bool ``[nodes]``; rows that are no node are false.
    """

    word: jax.Array
    add: jax.Array
    tree: jax.Array
    valid: jax.Array

    def forest(self) -> DependencyForest:
        """The trees as arrays of indices (NumPy; not for use inside ``jit``)."""
        valid = np.asarray(self.valid)
        word, add = np.asarray(self.word)[valid], np.asarray(self.add)[valid]
        found, roots = links(add.tolist(), (ADD_LEFT, ADD_RIGHT, ADD_NEXT))
        return DependencyForest(word, *found.values(), roots=roots)


class TopDownTreeLSTM(TreeGenerator):
    """Generates dependency trees from vectors, from the root downwards.

    Zhang et al. 2016: four LSTMs, one for each kind of edge, follow the path from the root to a
    node; a node's state gives its word, and word and state decide whether it has a left dependent,
    a right one, and a next one on its side. Which nodes there are is known only as they are made,
    so generation is a recursion of computed structure. The first state is made from a vector, so
    that the model can decode what something else encodes.

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
        >>> model = models.TopDownTreeLSTM(10, 8, 16, 4, rngs=nnx.Rngs(0))
        >>> forest = data.dependency_forest(token=[4, 5, 6, 7], head=[1, 2, -1, 2])
        >>> model.loss(forest, jnp.ones((1, 4))).shape
        ()
        >>> trees = model.generate(jnp.ones((1, 4)), max_depth=3)
        >>> trees.forest().num_trees
        1
    """

    reads = DependencyForest

    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the recursion."""
        gates = [
            nnx.Linear(embed_dim + hidden_dim, 4 * hidden_dim, rngs=rngs) for _ in range(EDGES)
        ]
        self.edges = nnx.List(gates)
        self.word = nnx.Linear(hidden_dim, self.vocab_size, rngs=rngs)
        self.add = nnx.Linear(hidden_dim + embed_dim, 4, rngs=rngs)

    def weights(self) -> TopDownWeights:
        """The parameters that the recursions read, as plain arrays."""
        of_states, of_words = jnp.split(self.add.kernel[...], [self.word.in_features])
        return TopDownWeights(
            embed=self.embed.embedding[...],
            kernels=tuple(edge.kernel[...] for edge in self.edges),
            biases=tuple(array_of(edge.bias) for edge in self.edges),
            score_kernel=jnp.concatenate([self.word.kernel[...], of_states], axis=1),
            score_bias=jnp.concatenate([array_of(self.word.bias), array_of(self.add.bias)]),
            edge_embed=self.embed.embedding[...] @ of_words,
        )

    def loss(
        self, forest: DependencyForest, condition: jax.Array, weight: jax.Array | None = None
    ) -> jax.Array:
        """Minus the log-likelihood of given trees: of their words and of their structure.

        Args:
            forest: Trees as `jaxrec.data.dependency_forest` makes them. A node without a word
                (token -1) has no likelihood of one, and is the zero vector to its dependents.
            condition: ``[trees, condition_dim]``, the vector of each tree.
            weight: ``[trees]``, what each tree counts, as `jaxrec.data.batches` gives it: 0 for a
                tree that fills a batch up. 1 for all if omitted.

        Returns:
            A scalar, in nats a tree.

        Raises:
            TypeError: The forest is of another class.
            ValueError: `condition` or `weight` is of another shape.
        """
        self.check(forest, condition)
        weights, h = self.weights(), self.first_states(condition)
        start = jnp.int32(self.vocab_size)
        _, calls = jr.collect(read_tree, in_axes=(None, None, 0, None, None, 0, 0))(
            weights, forest, forest.roots, jnp.int32(RIGHT), start, h, jnp.zeros_like(h)
        )
        states, node = node_states(calls.results, calls.args[2], calls.valid, forest.num_nodes)
        entropy = node_losses(weights, forest, states, node, calls.args[3])
        shares = tree_shares(weight, forest.num_trees, calls.lane)
        return jnp.sum(jnp.where(calls.valid, entropy * shares, 0.0))

    def generate(
        self, condition: jax.Array, max_depth: int, max_nodes: int | None = None
    ) -> GeneratedTrees:
        """The most probable word and decisions at every node, one after another.

        Args:
            condition: ``[trees, condition_dim]``.
            max_depth: Nodes that many steps from the root generate nothing; every edge is a step,
                those to the next dependent included.
            max_nodes: A bound on the nodes of all trees together, needed under ``jit`` only.

        Returns:
            The trees; see `GeneratedTrees.forest`.

        Raises:
            CapacityError: More nodes than ``max_nodes``.
        """
        h = self.first_states(condition)
        trees, start = h.shape[0], jnp.int32(self.vocab_size)
        origin = Origin(jnp.full(trees, start), h, jnp.zeros_like(h))
        decode = generate if max_nodes is None else generate.with_options(max_calls=max_nodes)
        _, calls = jr.collect(decode, in_axes=(None, None, None, None, 0))(
            self.weights(), jnp.int32(max_depth), jnp.int32(0), jnp.int32(RIGHT), origin
        )
        return GeneratedTrees(calls.results.word, calls.results.add, calls.lane, calls.valid)


def node_losses(
    weights: TopDownWeights,
    forest: DependencyForest,
    states: jax.Array,
    node: jax.Array,
    edge: jax.Array,
) -> jax.Array:
    """Minus the log-likelihood of each node, which an edge of some kind leads to."""
    token = jnp.asarray(forest.token)[node]
    of_words, of_edges = scores(weights, states)
    words = optax.softmax_cross_entropy_with_integer_labels(of_words, jnp.maximum(token, 0))
    structure = _structure_losses(weights, forest, of_edges, node, edge)
    return jnp.where(token >= 0, words, 0.0) + structure


def _structure_losses(
    weights: TopDownWeights,
    forest: DependencyForest,
    of_edges: jax.Array,
    node: jax.Array,
    edge: jax.Array,
) -> jax.Array:
    """Minus the log-likelihood of what each node generates; a root decides on no next node."""
    token, left, right, following = map(
        jnp.asarray, (forest.token, forest.left, forest.right, forest.next)
    )
    every = of_edges + vectors_of(weights.edge_embed, token[node])
    following_score = jnp.take_along_axis(every, next_edge(edge)[:, None], axis=1)
    decided_by = jnp.concatenate([every[:, :2], following_score], axis=1)
    made = jnp.stack([left[node], right[node], following[node]], axis=1) >= 0
    entropy = optax.sigmoid_binary_cross_entropy(decided_by, made.astype(every.dtype))
    is_root = jnp.zeros(forest.num_nodes, bool).at[forest.roots].set(True)
    decided = jnp.ones_like(made).at[:, 2].set(~is_root[node])
    return jnp.sum(jnp.where(decided, entropy, 0.0), axis=1)
