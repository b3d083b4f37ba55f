"""What every tree model shares: the embedding, the dropout and the classifier on each node."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxrec.data import Forest, OrderedForest
from jaxrec.data._arguments import check_numbers

# Tai et al. 2015 and Socher et al. 2013 draw word vectors from this range.
EMBEDDING_RANGE = 0.05


class NodeStates(NamedTuple):
    """The hidden state of every call that a model made, in no particular order.

    Attributes:
        hidden: ``[calls, hidden_dim]``; rows that no call wrote are zero.
        node: int32 ``[calls]``, the node that each row belongs to. Rows that no call wrote hold
            the number of nodes, which is out of range on purpose: scatters drop them.
    """

    hidden: jax.Array
    node: jax.Array


def node_states(hidden: jax.Array, node: jax.Array, valid: jax.Array, size: int) -> NodeStates:
    """Builds `NodeStates` of a forest of ``size`` nodes from what `jaxrec.collect` reports.

    Rows without a call are selected away here, once, so that nothing that they may hold (NaN
    included) can reach a value or, through a product with a zero cotangent, a gradient.
    """
    hidden = jnp.where(valid[:, None], hidden, jnp.zeros_like(hidden))
    return NodeStates(hidden, jnp.where(valid, node, size))


def check_sizes(model: str, least: int = 1, **sizes: int) -> None:
    """Raises ``TypeError`` or ``ValueError`` for the first that is no integer from ``least``."""
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool):
            raise TypeError(f"{model}: got {name}={size!r}, expected an integer")
        if size < least:
            raise ValueError(f"{model}: got {name}={size}, expected {least} or more")


def check_same_dims(model: str, embed_dim: int, hidden_dim: int) -> None:
    """Raises ``ValueError`` unless word vectors can serve as leaf states of ``model``."""
    if embed_dim != hidden_dim:
        raise ValueError(
            f"{model} uses word vectors as the states of its leaves, so embed_dim and hidden_dim "
            f"must be equal; got embed_dim={embed_dim}, hidden_dim={hidden_dim}. Make them equal, "
            "or use TreeLSTM, which projects its leaves."
        )


def check_forest(model: str, reads: type, forest: Any) -> None:
    """Raises ``TypeError`` unless a forest is of the class that a model reads."""
    if not isinstance(forest, reads):
        raise TypeError(
            f"{model} reads a jaxrec.data.{reads.__name__}, got an object of type "
            f"{type(forest).__name__}. jaxrec.data.pack makes a Forest, ordered_forest and "
            "pack_ordered an OrderedForest, dependency_forest a DependencyForest; a batch has its "
            "forest as batch.forest."
        )


def vectors_of(table: jax.Array, word: jax.Array) -> jax.Array:
    """The rows ``[..., E]`` of words ``[...]`` in a table ``[vocab, E]``; zeros for none (-1)."""
    vectors = table[jnp.maximum(word, 0)]
    return jnp.where(jnp.expand_dims(word < 0, -1), jnp.zeros_like(vectors), vectors)


def best(scores: jax.Array) -> jax.Array:
    """The first index, int32, of the greatest of the scores ``[n]``: argmax by two reductions.

    XLA reduces pairs of a value and an index one at a time on CPU; a maximum and then a minimum
    over the indices that attain it are vectorised, and a third of the time for a thousand words.
    """
    size = scores.shape[0]
    places = jnp.arange(size, dtype=jnp.int32)
    return jnp.min(jnp.where(scores == jnp.max(scores), places, size - 1))


def array_of(param: nnx.Param[jax.Array] | None) -> jax.Array:
    """The value of a parameter that its layer can lack but here never does, such as a bias."""
    assert param is not None
    return param[...]


class TreeClassifier(nnx.Module):
    """A recursive model with a softmax classifier on every node of a forest.

    Subclasses make the parameters of the composition, in `make_cells`, and say, in `states`, how a
    forest becomes hidden states.
    Dropout acts on the input of the classifier alone (Tai et al. 2015, section 5), with one mask
    entry for each node and feature, whatever order the nodes are computed in.

    Attributes:
        reads: The class of the forests that the model reads.
        embed: The word vectors, ``embed.embedding [vocab_size, embed_dim]``.
        classifier: The linear layer from a hidden state to class scores.
        dropout: Off when ``dropout=0`` or in evaluation mode (``model.eval()``).
    """

    reads: ClassVar[type] = object

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_dim: int,
        num_classes: int,
        *,
        rngs: nnx.Rngs,
        dropout: float = 0.0,
    ) -> None:
        model = type(self).__name__
        check_sizes(
            model,
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            hidden_dim=hidden_dim,
            num_classes=num_classes,
        )
        check_numbers(model, dropout=dropout)
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"{model}: got dropout={dropout}, expected a probability below 1")
        initializer = symmetric_uniform(EMBEDDING_RANGE)
        self.embed = nnx.Embed(vocab_size, embed_dim, embedding_init=initializer, rngs=rngs)
        self.classifier = nnx.Linear(hidden_dim, num_classes, rngs=rngs)
        # Without dropout there is no stream of keys, so parameters are the model's whole state.
        self.dropout = nnx.Dropout(dropout, rngs=rngs if dropout else None)
        self.make_cells(embed_dim, hidden_dim, rngs)

    @abc.abstractmethod
    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the composition; called once, by the constructor."""

    @abc.abstractmethod
    def states(self, forest: Any) -> NodeStates:
        """The hidden state of every node of the forest, in the order of the calls."""

    def __call__(
        self, forest: Forest | OrderedForest, *, rngs: nnx.Rngs | jax.Array | None = None
    ) -> jax.Array:
        """Class scores (logits) of every node.

        Args:
            forest: Trees as `jaxrec.data.pack` makes them (`ordered_forest` or `pack_ordered` for
                a model of trees of any arity).
            rngs: A key for the dropout mask, in place of the module's own stream.

        Returns:
            ``[nodes, num_classes]``; zero at padding and at nodes that no root reaches.

        Raises:
            TypeError: The forest is of another class than the model reads.
        """
        check_forest(type(self).__name__, self.reads, forest)
        nodes = forest.num_nodes
        states = self.states(forest)
        hidden = states.hidden
        if self.dropout.rate > 0.0 and not self.dropout.deterministic:
            mask = self.dropout(jnp.ones((nodes, hidden.shape[1]), hidden.dtype), rngs=rngs)
            hidden = hidden * mask.at[states.node].get(mode="clip")
        scores = self.classifier(hidden)
        empty = jnp.zeros((nodes, scores.shape[1]), scores.dtype)
        return empty.at[states.node].set(scores, mode="drop")


def symmetric_uniform(limit: float) -> nnx.Initializer:
    """The uniform distribution over ``(-limit, limit)``."""

    def init(key: jax.Array, shape: tuple[int, ...], dtype: jnp.dtype = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -limit, limit)

    return init
