"""Dependency trees as arrays: dependents on the left, dependents on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np

from jaxrec.data._arguments import check_type
from jaxrec.data._ordered import check_parents, column
from jaxrec.data._packed import NONE, Array, Int32, Packed, pad


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DependencyForest(Packed):
    """Trees whose nodes have dependents on either side, nearest first; a JAX pytree.

    `dependency_forest` makes it from sentences.

    Attributes:
        token: int32 `[nodes]`, the id of the node's word, -1 on padding.
        left: int32 `[nodes]`, the nearest dependent on the left, -1 for none.
        right: int32 `[nodes]`, the nearest dependent on the right, -1 for none.
        next: int32 `[nodes]`, the next dependent of the same head on the same side, farther out.
        roots: int32 `[trees]`, the root of each tree.
    """

    token: Array
    left: Array
    right: Array
    next: Array
    roots: Array

    columns: ClassVar = ("token", "left", "right", "next")
    links: ClassVar = ("left", "right", "next")


def dependency_forest(
    token: Sequence[int] | np.ndarray,
    head: Sequence[int] | np.ndarray,
    pad_to: int | None = None,
) -> DependencyForest:
    """Makes a forest from sentences and the head of every word, as dependency parsers give them.

    Args:
        token: Word ids, all sentences one after another.
        head: The position of each word's head in `token`, -1 for the root of a sentence.
        pad_to: Length of the node arrays: nodes of -1 are added at the end. `None` adds none.

    Returns:
        The forest in NumPy arrays, `roots` in the order in which they stand.

    Raises:
        ValueError: As for `ordered_forest`.

    Example:
        >>> from jaxrec.data import dependency_forest
        >>> forest = dependency_forest(token=[4, 5, 6, 7], head=[1, 2, -1, 2])
        >>> forest.left.tolist(), forest.right.tolist(), forest.roots.tolist()
        ([-1, 0, 1, -1], [-1, -1, 3, -1], [2])
    """
    columns = {"token": token, "head": head}
    token, head = (column("dependency_forest", n, x) for n, x in columns.items())
    check_parents("dependency_forest", "head", head, token=token)
    links = np.full((3, len(head)), NONE, np.int32)
    for side, outward in enumerate((range(len(head) - 1, -1, -1), range(len(head)))):
        _link(links[side], links[2], head, outward, before=side == 0)
    roots = np.flatnonzero(head < 0).astype(np.int32)
    return pad(DependencyForest(token, *links, roots=roots), pad_to, "dependency_forest")


def _link(first: Int32, following: Int32, head: Int32, outward: range, *, before: bool) -> None:
    """Chains the dependents of one side, which `outward` visits from their head to the outside."""
    last = np.full(len(head), NONE, np.int32)
    for i in outward:
        above = int(head[i])
        if above < 0 or (i < above) != before:
            continue
        if last[above] < 0:
            first[above] = i
        else:
            following[last[above]] = i
        last[above] = i


def dependency_lists(forest: DependencyForest) -> list[tuple[list[int], list[int]]]:
    """The sentences of a forest: for each root its words in order and their heads.

    Args:
        forest: As `dependency_forest` or `jaxrec.models.GeneratedTrees.forest` makes it.

    Returns:
        `(words, heads)` of each tree; a head is a position in the sentence, -1 for the root. The
        links say on which side of its head a word is, and in which order on that side. So where
        arcs cross, the words come in the order in which no arcs do.

    Example:
        >>> from jaxrec.data import dependency_forest, dependency_lists
        >>> dependency_lists(dependency_forest(token=[4, 5, 6, 7], head=[1, 2, -1, 2]))
        [([4, 5, 6, 7], [1, 2, -1, 2])]
    """
    check_type("dependency_lists", "forest", forest, DependencyForest)
    columns = (forest.token, forest.left, forest.right, forest.next, forest.roots)
    token, left, right, following, roots = (np.asarray(column).tolist() for column in columns)
    return [_sentence(token, left, right, following, root) for root in roots]


def _sentence(
    token: list[int], left: list[int], right: list[int], following: list[int], root: int
) -> tuple[list[int], list[int]]:
    def chain(first: int) -> list[int]:
        found = []
        while first >= 0:
            found.append(first)
            first = following[first]
        return found

    order: list[int] = []
    head = {root: NONE}
    pending = [(root, False)]
    while pending:
        node, open_ = pending.pop()
        if open_:
            order.append(node)
            continue
        sides = chain(left[node]), chain(right[node])
        head.update((k, node) for side in sides for k in side)
        # The stack is read from its end: left dependents, farthest first, the node, then the right.
        pending += [(k, False) for k in reversed(sides[1])]
        pending.append((node, True))
        pending += [(k, False) for k in sides[0]]
    place = {node: k for k, node in enumerate(order)} | {NONE: NONE}
    return [token[k] for k in order], [place[head[k]] for k in order]
