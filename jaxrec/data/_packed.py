"""What forests of every kind share: a column of numbers for each property, links between nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import jax
import numpy as np

from jaxrec.data._arguments import check_integers

NONE = -1
"""Stands for "no child", "no word" and "no label" in the arrays of a forest."""

Array = np.ndarray | jax.Array
Int32 = np.ndarray[tuple[int], np.dtype[np.int32]]


class Packed:
    """Trees as arrays of one length, a number for each node, and the roots.

    Attributes:
        columns: Names of these arrays.
        links: Names of those that hold other nodes, by which a tree is walked from its root.
    """

    columns: ClassVar[tuple[str, ...]]
    links: ClassVar[tuple[str, ...]]
    token: Array
    roots: Array

    @property
    def num_nodes(self) -> int:
        """Length of the node arrays, padding included."""
        return self.token.shape[0]

    @property
    def num_trees(self) -> int:
        """Number of roots."""
        return self.roots.shape[0]

    def column(self, name: str) -> Int32:
        """One of the arrays, in NumPy."""
        return np.asarray(getattr(self, name))


F = TypeVar("F", bound=Packed)


def pad(forest: F, num_nodes: int | None, caller: str) -> F:
    """Adds nodes of -1 at the end until the forest has `num_nodes` of them; `None` adds none."""
    check_integers(caller, pad_to=num_nodes)
    extra = 0 if num_nodes is None else num_nodes - forest.num_nodes
    if extra < 0:
        raise ValueError(
            f"{caller}: got pad_to={num_nodes}, but there are {forest.num_nodes} nodes in "
            f"{forest.num_trees} trees; pass pad_to={forest.num_nodes} or more, or None"
        )
    padding = np.full(extra, NONE, np.int32)
    padded = {name: np.append(forest.column(name), padding) for name in forest.columns}
    return _replace(forest, padded)


def check_arrays(forest: Packed, caller: str) -> None:
    """Raises unless the arrays are of one length and hold nodes where they should."""
    nodes = forest.num_nodes
    shapes = {name: forest.column(name).shape for name in forest.columns}
    if any(shape != (nodes,) for shape in shapes.values()):
        raise ValueError(
            f"{caller}: got arrays of nodes of shapes {shapes}, expected one length for all"
        )
    wrong = {n: forest.column(n).dtype for n in (*forest.columns, "roots")}
    wrong = {n: str(t) for n, t in wrong.items() if not np.issubdtype(t, np.integer)}
    if wrong:
        raise ValueError(f"{caller}: got arrays of the types {wrong}, expected integers")
    for name in forest.links:
        _check_range(caller, f"{name} of a node", forest.column(name), NONE, nodes)
    _check_range(caller, "root", forest.column("roots"), 0, nodes)


def _check_range(caller: str, what: str, values: Int32, low: int, nodes: int) -> None:
    outside = values[(values < low) | (values >= nodes)]
    if outside.size:
        raise ValueError(f"{caller}: got {outside[0]} as {what} in a forest of {nodes} nodes")


def topmost(parent: Int32) -> Int32:
    """The node at the top above each: one without a parent, or else one on a circle of parents."""
    top = np.where(parent < 0, np.arange(len(parent)), parent)
    # Each round goes up twice as far as the one before it.
    for _ in range(len(parent).bit_length()):
        higher = top[top]
        if np.array_equal(higher, top):
            break
        top = higher
    return top


class Corpus(Generic[F]):
    """The trees of a forest, ready for some of them to be chosen.

    Their nodes may stand in any order; padding and what no root leads to are left out.

    Attributes:
        lengths: The number of nodes of each tree.
    """

    def __init__(self, forest: F, caller: str) -> None:
        check_arrays(forest, caller)
        self._forest = forest
        tree = _trees(forest, caller)
        # The nodes of one tree after those of another, in the order of the roots.
        order = np.argsort(tree, kind="stable")[np.count_nonzero(tree < 0) :]
        self.lengths = np.bincount(tree[order], minlength=forest.num_trees)
        self._starts = np.cumsum(self.lengths) - self.lengths
        # Places count from the start of a tree; that of -1, which is the last entry, is -1.
        place = np.full(forest.num_nodes + 1, NONE, np.int32)
        place[order] = np.arange(len(order)) - self._starts[tree[order]]
        self._columns = {name: forest.column(name)[order] for name in forest.columns}
        self._columns |= {name: place[self._columns[name]] for name in forest.links}
        self._roots = place[forest.column("roots")]

    def take(self, chosen: Int32, size: int) -> F:
        """The chosen trees, `[k]` of them, and one-node trees of the unknown word up to `size`.

        What comes is a forest of the same kind, unpadded and in NumPy arrays.
        """
        lengths = self.lengths[chosen]
        starts = np.cumsum(lengths) - lengths
        source = np.repeat(self._starts[chosen] - starts, lengths)
        source += np.arange(len(source))
        moved = np.repeat(starts, lengths)
        dummies = size - len(chosen)

        def gather(name: str) -> Int32:
            values = self._columns[name][source]
            if name in self._forest.links:
                values = np.where(values < 0, NONE, values + moved)
            # The unknown word is number 0.
            return _joined(values, np.full(dummies, 0 if name == "token" else NONE))

        found = {name: gather(name) for name in self._forest.columns}
        roots = _joined(starts + self._roots[chosen], len(source) + np.arange(dummies))
        return _replace(self._forest, {**found, "roots": roots})


def _trees(forest: Packed, caller: str) -> Int32:
    """The number of the tree that each node is in, -1 for none."""
    nodes = forest.num_nodes
    parent = np.full(nodes, NONE, np.int32)
    targets = np.concatenate([forest.column(name) for name in forest.links])
    parent[targets[targets >= 0]] = np.tile(np.arange(nodes), len(forest.links))[targets >= 0]
    roots = forest.column("roots")
    if not roots.size:
        raise ValueError(f"{caller}: got a forest without roots")
    linked = np.bincount(np.append(targets[targets >= 0], roots), minlength=nodes)
    if (linked > 1).any():
        raise ValueError(
            f"{caller}: node {np.argmax(linked > 1)} is in several places, as a root or below "
            "other nodes; expected each node in one place of one tree"
        )
    number = np.full(nodes, NONE, np.int32)
    number[roots] = np.arange(len(roots))
    return number[topmost(parent)]


def _joined(values: np.ndarray, more: np.ndarray) -> Int32:
    return np.append(values, more).astype(np.int32)


def _replace(forest: F, columns: dict[str, Any]) -> F:
    return replace(forest, **columns)  # pyright: ignore[reportArgumentType] (each kind is a dataclass)
