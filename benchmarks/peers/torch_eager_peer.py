"""PyTorch, one node at a time: the recursion as one writes it, differentiated by autograd.

Only the word vectors are looked up together, before, and the class scores computed together, after.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from benchmarks._models import Params
from benchmarks._trees import Forest
from benchmarks.peers import _torch_common as common
from benchmarks.peers._protocol import Program

Compose = Callable[[common.Tensors, tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]


class _Prepared(NamedTuple):
    """The forest as Python lists (`word` counts leaves), and word ids and labels as tensors."""

    left: list[int]
    right: list[int]
    word: list[int]
    token: Tensor
    label: Tensor
    roots: list[int]


def _prepare(forest: Forest) -> _Prepared:
    leaf = forest.left < 0
    word = (leaf.cumsum() - 1).tolist()
    token = common.integers(forest.token[leaf])
    label = common.integers(forest.label)
    left, right = forest.left.tolist(), forest.right.tolist()
    return _Prepared(left, right, word, token, label, forest.roots.tolist())


def _states(model: str, params: common.Tensors, batch: _Prepared) -> list[Tensor]:
    """The hidden state of every node, by plain recursion."""
    cell = common.CELLS[model]
    vectors = common.look_up(params, batch.token).split(1)
    hidden: list[Tensor] = [torch.empty(0)] * len(batch.left)

    def visit(node: int) -> tuple[Tensor, ...]:
        if batch.left[node] < 0:
            state = cell.leaf(params, vectors[batch.word[node]])
        else:
            left, right = visit(batch.left[node]), visit(batch.right[node])
            state = cell.node(params, tuple(torch.cat(p, 1) for p in zip(left, right, strict=True)))
        hidden[node] = state[0]
        return state

    for root in batch.roots:
        visit(root)
    return hidden


def build(model: str, params: Params) -> Program:
    """Builds `model` as a recursion over tensors of one row."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10_000))

    def loss(tensors: common.Tensors, batch: _Prepared) -> Tensor:
        hidden = torch.cat(_states(model, tensors, batch))
        return common.label_loss(tensors, hidden, batch.label) / len(batch.roots)

    def scores(tensors: common.Tensors, batch: _Prepared) -> Tensor:
        hidden = _states(model, tensors, batch)
        return common.logits(tensors, torch.cat([hidden[root] for root in batch.roots]))

    return common.program(params, _prepare, loss, scores)
