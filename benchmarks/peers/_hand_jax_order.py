"""Host side of the hand-batched JAX program: which node is computed when, and where its row is.

Inner nodes go into chunks of one fixed width. A chunk takes the ready nodes that are farthest from
their root (Hu 1961: optimal for unit tasks in trees), so that chunks stay full until near the end,
where batching by height leaves a long tail of narrow levels.
"""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array

from benchmarks._trees import Forest, depths, parents
from benchmarks.peers._jax_common import bucket, padded


class Plan(NamedTuple):
    """A batch as index arrays. Rows: `L` leaves (padded), then `K` chunks of `W` inner nodes.

    Attributes:
        words: the different words of the batch, shape [L], padded with the size of the table.
        word: which of `words` a leaf holds, shape [L].
        label: of every row, -1 for padding, shape [L + K * W].
        children: rows of [left, right] of each inner node, shape [K, 2 * W].
        reader: where the parent reads a row, as 2 * inner row + side, shape [L + K * W]; roots and
            padding name the row 2 * K * W, which holds zeros.
        chunks: how many of the `K` chunks are used, shape [].
        roots: rows of the roots, shape [trees].
    """

    words: Array
    word: Array
    label: Array
    children: Array
    reader: Array
    chunks: Array
    roots: Array


def chunk_width(forest: Forest) -> int:
    """The chunk width for a batch: the number of trees, for trees like those of sentences.

    About as wide as keeps chunks full: there cannot be fewer chunks than the highest tree is high.
    Bushier trees get a power of two times that; wider than 128 gains nothing in a matmul.
    """
    trees, inner = len(forest.roots), int((forest.left >= 0).sum())
    ready = inner / (trees * max(1, int(depths(forest).max())))
    return min(128, trees * 2 ** max(0, int(np.log2(max(1.0, ready / 1.5)))))


def _chunks(forest: Forest, parent: np.ndarray, width: int) -> list[np.ndarray]:
    """Lists the inner nodes of every chunk."""
    inner = forest.left >= 0
    urgency = depths(forest)
    missing = np.where(inner, 2, 0)
    ready_next = [np.flatnonzero(~inner)]
    waiting = np.empty(0, np.int64)
    chunks = []
    while True:
        above = parent[ready_next.pop()]
        above = above[above >= 0]
        np.subtract.at(missing, above, 1)
        waiting = np.concatenate([waiting, np.unique(above[missing[above] == 0])])
        if not waiting.size:
            return chunks
        waiting = waiting[np.argsort(-urgency[waiting], kind="stable")]
        chunks.append(waiting[:width])
        waiting = waiting[width:]
        ready_next.append(chunks[-1])


def plan(forest: Forest, words: int, width: int) -> Plan:
    """Orders a batch.

    Args:
        forest: the trees.
        words: size of the word table, which marks padding in `Plan.words`.
        width: of the chunks.
    """
    parent = parents(forest)
    chunks = _chunks(forest, parent, width)
    leaves = np.flatnonzero(forest.left < 0)
    num_leaves, num_chunks = bucket(len(leaves)), bucket(max(len(chunks), 1))
    row = np.empty(len(parent), np.int32)
    row[leaves] = np.arange(len(leaves))
    for k, nodes in enumerate(chunks):
        row[nodes] = num_leaves + k * width + np.arange(len(nodes))
    label = np.full(num_leaves + num_chunks * width, -1, np.int32)
    label[row] = forest.label
    children = np.zeros((num_chunks * width, 2), np.int32)
    inner = np.flatnonzero(forest.left >= 0)
    children[row[inner] - num_leaves, 0] = row[forest.left[inner]]
    children[row[inner] - num_leaves, 1] = row[forest.right[inner]]
    reader = np.full(len(label), 2 * num_chunks * width, np.int32)
    below = np.flatnonzero(parent >= 0)
    side = forest.right[parent[below]] == below
    reader[row[below]] = 2 * (row[parent[below]] - num_leaves) + side
    unique, inverse = np.unique(forest.token[leaves], return_inverse=True)
    arrays = (
        padded(unique, num_leaves, words),
        padded(inverse, num_leaves, 0),
        label,
        children.reshape(num_chunks, 2 * width),
        reader,
        np.int32(len(chunks)),
        row[forest.roots],
    )
    return Plan(*map(jax.device_put, arrays))
