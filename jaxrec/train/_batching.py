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
# Evaluation pads every batch of a forest to the largest, so as to compile once.
EVAL_SIZE = 100
EVAL_RATIO = 1.1


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
    lengths = np.diff(np.asarray(forest.roots), prepend=-1)
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


def eval_batches(forest: Forest) -> Iterator[Forest]:
    """The whole forest in order, in equal shapes; what fills up the last batch has no labels."""
    size = min(EVAL_SIZE, forest.num_trees)
    for batch in batches(forest, size, ratio=EVAL_RATIO, max_shapes=1):
        yield batch.forest


def _with_rows(batch: Batch, num_words: int) -> TrainBatch:
    forest = batch.forest
    # A binary forest of n nodes and t trees has at most (n + t) / 2 leaves: a capacity that
    # depends on shapes alone adds no shapes.
    capacity = min((forest.num_nodes + forest.num_trees + 1) // 2, num_words)
    rows, local = used_rows(forest.token, num_words, capacity)
    return TrainBatch(replace(forest, token=local), rows, batch.weight)
