"""PyTorch batched by hand: all nodes of one height at once, differentiated by autograd.

The nodes of a height are sorted by the height that reads them, so that a height's rows are cut by
one `split`, whose gradient is one `cat`, and no height touches rows that it does not read.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from benchmarks._models import Params
from benchmarks._trees import Forest, heights, parents
from benchmarks.peers import _torch_common as common
from benchmarks.peers._protocol import Program


class _Level(NamedTuple):
    """One height: where to cut its rows, and how to order the rows read as [left, right] pairs."""

    cuts: list[int]
    readers: list[int]
    order: Tensor


class _Prepared(NamedTuple):
    levels: list[_Level]
    token: Tensor
    label: Tensor
    roots: Tensor


def _prepare(forest: Forest) -> _Prepared:
    """Numbers nodes by (height, height of the parent) and lists what each height reads."""
    height, parent = heights(forest), parents(forest)
    reader = np.where(parent < 0, np.iinfo(np.int32).max, height[parent])
    order = np.lexsort((reader, height))
    row = np.empty_like(order)
    row[order] = np.arange(len(order))
    bounds = np.searchsorted(height[order], np.arange(height.max() + 2))
    by_reader = order[np.lexsort((height[order], reader[order]))]
    place = np.empty_like(order)  # the place of a row among the rows that its reader reads
    starts = np.searchsorted(reader[by_reader], reader[by_reader])
    place[by_reader] = np.arange(len(order)) - starts
    levels = [_level(forest, order[a:b], reader, place) for a, b in pairwise(bounds)]
    token = common.integers(forest.token[order[: bounds[1]]])
    label = common.integers(forest.label[order])
    return _Prepared(levels, token, label, common.integers(row[forest.roots]))


def _level(forest: Forest, nodes: np.ndarray, reader: np.ndarray, place: np.ndarray) -> _Level:
    """Cuts `nodes` by their readers; roots, which nothing reads, are the last piece."""
    readers, counts = np.unique(reader[nodes], return_counts=True)
    children = np.stack([forest.left[nodes], forest.right[nodes]], 1).ravel()
    return _Level(counts.tolist(), readers.tolist(), common.integers(place[children]))


def _states(model: str, params: common.Tensors, batch: _Prepared) -> Tensor:
    """The hidden state of every node, a height at a time."""
    cell = common.CELLS[model]
    state = cell.leaf(params, common.look_up(params, batch.token))
    hidden = [state[0]]
    waiting: dict[int, list[tuple[Tensor, ...]]] = {}
    for height, level in enumerate(batch.levels):
        if height:
            parts = [torch.cat(p) for p in zip(*waiting.pop(height), strict=True)]
            rows = len(level.order) // 2
            pairs = tuple(p.index_select(0, level.order).view(rows, -1) for p in parts)
            state = cell.node(params, pairs)
            hidden.append(state[0])
        pieces = (part.split(level.cuts) for part in state)
        for read_at, *piece in zip(level.readers, *pieces, strict=True):
            waiting.setdefault(read_at, []).append(tuple(piece))
    return torch.cat(hidden)


def build(model: str, params: Params) -> Program:
    """Builds `model` with one matmul a height."""

    def loss(tensors: common.Tensors, batch: _Prepared) -> Tensor:
        hidden = _states(model, tensors, batch)
        return common.label_loss(tensors, hidden, batch.label) / len(batch.roots)

    def scores(tensors: common.Tensors, batch: _Prepared) -> Tensor:
        return common.logits(tensors, _states(model, tensors, batch)[batch.roots])

    return common.program(params, _prepare, loss, scores)
