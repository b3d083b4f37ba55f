"""Trees for the benchmarks: reading the Stanford Sentiment Treebank, and made-up shapes."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

_TOKEN = re.compile(r"[()]|[^() \n]+")


class Forest(NamedTuple):
    """Binary trees as int32 arrays: four of shape [nodes], and `roots` of shape [trees].

    A leaf has `left == right == -1`, an inner node has `token == -1`, and children come before
    their parents.
    """

    label: np.ndarray
    token: np.ndarray
    left: np.ndarray
    right: np.ndarray
    roots: np.ndarray


class Treebank(NamedTuple):
    """Trees of one tree each, and the number of different words in them (ids start at 0)."""

    trees: list[Forest]
    words: int


def sst_path() -> Path:
    """The folder of the treebank: `JAXREC_SST`, or `shared/data/sst` beside the checkout."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "sst"
    return Path(os.environ.get("JAXREC_SST", default))


def read_sst(split: str = "train", limit: int | None = None) -> Treebank:
    """Reads one split of the treebank; word ids are given in the order of appearance.

    Args:
        split: `train`, `dev` or `test`.
        limit: reads only so many trees.

    Raises:
        FileNotFoundError: the data is not there; the message says where it was looked for.
    """
    path = sst_path() / f"{split}.txt"
    if not path.exists():
        raise FileNotFoundError(f"no treebank at {path}; set JAXREC_SST to the folder that has it")
    ids: dict[str, int] = {}
    lines = path.read_text(encoding="utf-8").split("\n")
    trees = [_parse(line, ids) for line in lines if line.strip()]
    return Treebank(trees[:limit], len(ids))


def _parse(line: str, ids: dict[str, int]) -> Forest:
    """One bracketed line to arrays, in postorder."""
    rows: list[tuple[int, int, int, int]] = []
    open_labels: list[int] = []
    children: list[list[int]] = [[]]
    words: list[int] = []
    tokens = iter(_TOKEN.findall(line))
    for text in tokens:
        if text == "(":
            open_labels.append(int(next(tokens)))
            children.append([])
        elif text == ")":
            left, right = children.pop() or (-1, -1)
            rows.append((open_labels.pop(), words.pop() if left < 0 else -1, left, right))
            children[-1].append(len(rows) - 1)
        else:
            words.append(ids.setdefault(text, len(ids)))
    label, token, left_, right_ = np.array(rows, np.int32).T
    return Forest(label, token, left_, right_, np.array(children[0], np.int32))


def concatenate(trees: Sequence[Forest]) -> Forest:
    """Puts trees side by side in one forest."""
    starts = np.cumsum([0, *(len(tree.label) for tree in trees[:-1])]).astype(np.int32)

    def shifted(name: str) -> np.ndarray:
        parts = [getattr(tree, name) for tree in trees]
        return np.concatenate(
            [np.where(p < 0, p, p + s) for p, s in zip(parts, starts, strict=True)]
        )

    label, token = (np.concatenate([getattr(t, n) for t in trees]) for n in ("label", "token"))
    return Forest(label, token, shifted("left"), shifted("right"), shifted("roots"))


def batches(
    trees: Sequence[Forest], size: int, seed: int, count: int | None = None
) -> list[Forest]:
    """Shuffled minibatches of `size` trees, the last smaller one dropped; at most `count`."""
    order = np.random.default_rng(seed).permutation(len(trees))
    number = len(trees) // size
    if not number:
        raise ValueError(f"a batch of {size} trees, but there are only {len(trees)}")
    number = number if count is None else min(number, count)
    groups = (order[k * size : (k + 1) * size] for k in range(number))
    return [concatenate([trees[j] for j in group]) for group in groups]


def shaped_tree(shape: str, leaves: int, words: int, seed: int = 0) -> Forest:
    """A tree with `leaves` leaves, made by splitting spans.

    Args:
        shape: `balanced` (halves), `moderate` (uniformly random splits) or `linear` (one word at a
            time).
        leaves: number of leaves; the tree has `2 * leaves - 1` nodes.
        words: tokens are drawn below this number.
        seed: of the tokens, labels and splits.
    """
    rng = np.random.default_rng(seed)
    split = {
        "balanced": lambda n: n // 2,
        "moderate": lambda n: int(rng.integers(1, n)),
        "linear": lambda n: n - 1,
    }[shape]
    size = [leaves]
    left, right = [-1], [-1]
    for node in range(2 * leaves - 1):  # preorder of creation: parents first
        if size[node] > 1:
            part = split(size[node])
            left[node], right[node] = len(size), len(size) + 1
            size += [part, size[node] - part]
            left += [-1, -1]
            right += [-1, -1]
    return _children_first(np.array(left, np.int32), np.array(right, np.int32), words, rng)


def _children_first(
    left: np.ndarray, right: np.ndarray, words: int, rng: np.random.Generator
) -> Forest:
    """Reverses the numbering of a parents-first tree and draws its words and labels."""
    last = np.int32(len(left) - 1)
    left, right = (np.where(a < 0, a, last - a)[::-1].astype(np.int32) for a in (left, right))
    token = np.where(left < 0, rng.integers(0, words, len(left)), -1).astype(np.int32)
    label = rng.integers(0, 5, len(left)).astype(np.int32)
    return Forest(label, token, left, right, np.array([last], np.int32))


def joined(forest: Forest) -> Forest:
    """One tree that holds all trees of `forest`, in a balanced way under new nodes of label 0."""
    left, right, roots = (column.tolist() for column in (forest.left, forest.right, forest.roots))
    while len(roots) > 1:
        pairs = len(roots) // 2
        new = list(range(len(left), len(left) + pairs))
        left += roots[0 : 2 * pairs : 2]
        right += roots[1 : 2 * pairs : 2]
        roots = new + roots[2 * pairs :]
    added = len(left) - len(forest.left)
    label = np.pad(forest.label, (0, added))
    token = np.pad(forest.token, (0, added), constant_values=-1)
    return Forest(label, token, *(np.array(column, np.int32) for column in (left, right, roots)))


def parents(forest: Forest) -> np.ndarray:
    """The parent of every node, -1 for roots."""
    inner = np.flatnonzero(forest.left >= 0)
    parent = np.full(len(forest.left), -1, np.int32)
    parent[forest.left[inner]] = inner
    parent[forest.right[inner]] = inner
    return parent


def depths(forest: Forest) -> np.ndarray:
    """Distance of every node from its root, computed a level at a time."""
    depth = np.zeros(len(forest.left), np.int32)
    level = forest.roots
    for distance in range(len(depth)):
        depth[level] = distance
        level = level[forest.left[level] >= 0]
        if not level.size:
            break
        level = np.concatenate([forest.left[level], forest.right[level]])
    return depth


def heights(forest: Forest) -> np.ndarray:
    """Height of every node: 0 for leaves, one above its higher child for the rest."""
    inner = np.flatnonzero(forest.left >= 0)
    depth = depths(forest)
    inner = inner[np.argsort(-depth[inner], kind="stable")]
    height = np.zeros(len(depth), np.int32)
    for nodes in np.split(inner, 1 + np.flatnonzero(np.diff(depth[inner]))):
        height[nodes] = 1 + np.maximum(height[forest.left[nodes]], height[forest.right[nodes]])
    return height
