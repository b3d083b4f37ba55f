"""What the models that generate trees share: the first state, and reading what was generated."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxrec.models._classifier import (
    EMBEDDING_RANGE,
    check_forest,
    check_sizes,
    symmetric_uniform,
)


class TreeGenerator(nnx.Module):
    """Generates trees of words from vectors.

    Subclasses make the parameters of the recursion in `make_cells`. The word vectors have one row
    more than there are words: the start, which stands in front of the roots.

    Attributes:
        reads: The class of the forests that the model learns from.
        vocab_size: Number of words, and the number of the start.
        embed: The word vectors, ``embed.embedding [vocab_size + 1, embed_dim]``.
        first: The linear layer from a vector to the first state.
    """

    reads: ClassVar[type] = object

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_dim: int,
        condition_dim: int,
        *,
        rngs: nnx.Rngs,
    ) -> None:
        check_sizes(
            type(self).__name__,
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            hidden_dim=hidden_dim,
            condition_dim=condition_dim,
        )
        self.vocab_size = vocab_size
        initializer = symmetric_uniform(EMBEDDING_RANGE * 10)
        self.embed = nnx.Embed(vocab_size + 1, embed_dim, embedding_init=initializer, rngs=rngs)
        self.first = nnx.Linear(condition_dim, hidden_dim, rngs=rngs)
        self.make_cells(embed_dim, hidden_dim, rngs)

    @abc.abstractmethod
    def make_cells(self, embed_dim: int, hidden_dim: int, rngs: nnx.Rngs) -> None:
        """Makes the parameters of the recursion; called once, by the constructor."""

    def first_states(self, condition: jax.Array) -> jax.Array:
        """The states in front of the roots ``[trees, H]``, from ``condition [trees, ...]``."""
        size = self.first.in_features
        if jnp.ndim(condition) != 2 or condition.shape[1] != size:
            raise ValueError(
                f"{type(self).__name__}: got condition of shape {jnp.shape(condition)}, expected "
                f"[trees, {size}], a vector for each tree"
            )
        return jnp.tanh(self.first(condition))

    def check(self, forest: Any, condition: jax.Array) -> None:
        """Raises unless a forest is of the class that the model reads, with a vector a tree."""
        check_forest(type(self).__name__, self.reads, forest)
        if jnp.shape(condition)[:1] != (forest.num_trees,):
            raise ValueError(
                f"{type(self).__name__}: got condition of shape {jnp.shape(condition)} for "
                f"{forest.num_trees} trees, expected a vector for each tree"
            )


def tree_shares(weight: jax.Array | None, num_trees: int, tree: jax.Array) -> jax.Array | float:
    """The share that a node's tree has in a mean over trees.

    Args:
        weight: ``[trees]``, what each tree counts; the same for all if omitted.
        num_trees: Number of trees.
        tree: int ``[rows]``, the tree of the node of each row.

    Returns:
        ``[rows]``, or one number for all; zero if the weights are.
    """
    if weight is None:
        return 1 / num_trees
    weight = jnp.asarray(weight)
    if weight.shape != (num_trees,):
        raise ValueError(
            f"loss: got weight of shape {weight.shape}, expected ({num_trees},), one number for "
            "each tree"
        )
    total = jnp.sum(weight)
    return weight[tree] / jnp.where(total > 0, total, jnp.ones_like(total))


def links(add: Sequence[int], bits: Sequence[int]) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """The trees behind what each node generated.

    Args:
        add: What each node generated, the sum of some of `bits`, in depth-first order.
        bits: The kinds of nodes that one can generate, in the order in which it does.

    Returns:
        For each kind, the node that each node generated or -1, int32 ``[nodes]``; and the roots.
    """
    found = {bit: np.full(len(add), -1, np.int32) for bit in bits}
    roots: list[int] = []
    awaited: list[tuple[int, int]] = []
    for node, made in enumerate(add):
        if awaited:
            bit, origin = awaited.pop()
            found[bit][origin] = node
        else:
            roots.append(node)
        awaited += [(bit, node) for bit in reversed(bits) if made & bit]
    return found, np.array(roots, np.int32)
