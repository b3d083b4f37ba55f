"""Minibatches of the trainer: a packed forest and the rows of the word table that it uses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from jaxrec.data import Batch, Forest, batches
from jaxrec.optim import used_rows

# Minibatches larger than the common shape are rare, and so are two such steps up.
TRAIN_RATIO = 1.25
# Trees in a batch of evaluation, at most.
EVAL_SIZE = 100


class TrainBatch(NamedTuple):
    """One step's data, a pytree.

    Attributes:
        forest: The trees; ``token`` counts in ``rows``, not in the vocabulary.
        rows: int32 ``[capacity]``, see `jaxrec.optim.used_rows`.
        weight: float32 ``[trees]``, 1 for a real tree, 0 for one that fills the batch up.
    """

    forest: Forest
    rows: npt.NDArray[np.int32]
    weight: npt.NDArray[np.float32]


def steps_per_epoch(forest: Forest, size: int) -> int:
    """Minibatches in an epoch, the last one possibly filled up."""
    return -(-forest.num_trees // size)


def common_shape(forest: Forest, size: int) -> int:
    """Number of nodes that most minibatches of ``size`` trees fit in.

    One standard deviation above the mean: five batches in six fit, the others go into shapes
    `TRAIN_RATIO` apart, so that a run compiles two or three steps and no epoch adds any.
    """
    lengths = _lengths(forest)
    return math.ceil(size * lengths.mean() + math.sqrt(size) * lengths.std())


def train_batches(
    forest: Forest, size: int, num_words: int, seed: int, epoch: int, start: int = 0
) -> Iterator[TrainBatch]:
    """The minibatches of one epoch from number ``start`` on.

    The order is a function of ``seed`` and ``epoch`` alone, so that a resumed run sees the very
    batches that the interrupted one would have seen, without any generator's state to keep.
    """
    rng = np.random.default_rng([seed, epoch])
    base = common_shape(forest, size)
    epoch_batches = batches(forest, size, rng=rng, base=base, ratio=TRAIN_RATIO)
    for index, batch in enumerate(epoch_batches):
        if index >= start:
            yield _with_rows(batch, num_words)


class EvalShape(NamedTuple):
    """Sizes that every batch of evaluation is padded to, so that one program serves them all."""

    trees: int
    nodes: int


def eval_shape(*forests: Forest) -> EvalShape:
    """The smallest shape that all batches of `eval_batches` of these forests fit in."""
    size = min(EVAL_SIZE, max(forest.num_trees for forest in forests))
    nodes = 0
    for forest in forests:
        starts = np.arange(0, forest.num_trees, size)
        # A tree that is missing in the last batch is replaced by one node.
        needed = np.add.reduceat(_lengths(forest), starts)
        needed[-1] += starts[-1] + size - forest.num_trees
        nodes = max(nodes, int(needed.max()))
    return EvalShape(size, nodes)


def eval_batches(forest: Forest, shape: EvalShape) -> Iterator[Forest]:
    """The whole forest in order, in one shape; what fills up the last batch has no labels."""
    for batch in batches(forest, shape.trees, base=shape.nodes):
        yield batch.forest


def _lengths(forest: Forest) -> npt.NDArray[np.int64]:
    """The number of nodes of each tree of a forest that `jaxrec.data.pack` made."""
    return np.diff(np.asarray(forest.roots), prepend=-1)


def _with_rows(batch: Batch, num_words: int) -> TrainBatch:
    forest = batch.forest
    # A binary forest of n nodes and t trees has at most (n + t) / 2 leaves: a capacity that
    # depends on shapes alone adds no shapes.
    capacity = min((forest.num_nodes + forest.num_trees + 1) // 2, num_words)
    rows, local = used_rows(forest.token, num_words, capacity)
    return TrainBatch(replace(forest, token=local), rows, batch.weight)
