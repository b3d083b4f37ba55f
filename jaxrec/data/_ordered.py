"""Trees of any arity as arrays: first child, next sibling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np

from jaxrec.data._arguments import check_type, each_tree
from jaxrec.data._packed import NONE, Array, Int32, Packed, pad, topmost
from jaxrec.data._tree import Tree
from jaxrec.data._vocabulary import Vocabulary


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OrderedForest(Packed):
    """Trees whose nodes have any number of children, in order; a JAX pytree.

    Two indices a node are enough for every arity, so a batch needs no padded lists of children.
    `ordered_forest` makes it from parents, `pack_ordered` from trees.

    Attributes:
        label: int32 `[nodes]`, the class of the node, -1 for none.
        token: int32 `[nodes]`, the id of the node's word, -1 for none.
        child: int32 `[nodes]`, the first child, -1 for none.
        sibling: int32 `[nodes]`, the next child of the same parent, -1 for none.
        roots: int32 `[trees]`, the root of each tree.
    """

    label: Array
    token: Array
    child: Array
    sibling: Array
    roots: Array

    columns: ClassVar = ("label", "token", "child", "sibling")
    links: ClassVar = ("child", "sibling")


def ordered_forest(
    token: Sequence[int] | np.ndarray,
    parent: Sequence[int] | np.ndarray,
    label: Sequence[int] | np.ndarray | None = None,
    pad_to: int | None = None,
) -> OrderedForest:
    """Makes a forest from the parent of every node, the usual form of dependency trees.

    Args:
        token: Word ids of the nodes, those of all trees one after another.
        parent: The index of each node's parent, -1 for a root (a node that is padding would be one:
            leave it out, and ask for `pad_to`). Children are ordered as they stand.
        label: Classes of the nodes; all -1 if omitted.
        pad_to: Length of the node arrays: nodes of -1 are added at the end. `None` adds none.

    Returns:
        The forest in NumPy arrays, `roots` in the order in which they stand.

    Raises:
        ValueError: The lengths differ, a parent is out of range, there is no root, a node is below
            itself, or `pad_to` is too small.

    Example:
        >>> from jaxrec.data import ordered_forest
        >>> forest = ordered_forest(token=[7, 8, 9, 5], parent=[-1, 0, 0, 2])
        >>> forest.child.tolist(), forest.sibling.tolist(), forest.roots.tolist()
        ([1, -1, 3, -1], [-1, 2, -1, -1], [0])
    """
    label = np.full(np.shape(token), NONE, np.int32) if label is None else label
    columns = {"token": token, "label": label, "parent": parent}
    token, label, parent = (column("ordered_forest", n, x) for n, x in columns.items())
    check_parents("ordered_forest", "parent", parent, token=token, label=label)
    child, sibling = _links(parent)
    roots = np.flatnonzero(parent < 0).astype(np.int32)
    return pad(OrderedForest(label, token, child, sibling, roots), pad_to, "ordered_forest")


def pack_ordered(
    trees: Iterable[Tree], vocabulary: Vocabulary, pad_to: int | None = None
) -> OrderedForest:
    """Packs trees whose nodes have any number of children into one forest.

    Args:
        trees: At least one tree.
        vocabulary: Gives the ids of the words; words it lacks get id 0. Nodes with children have no
            word, token -1.
        pad_to: Length of the node arrays: nodes of -1 are added at the end. `None` adds none.

    Returns:
        The forest in NumPy arrays, `roots` in the order of `trees`, each tree in preorder: a node,
        then its children.

    Raises:
        ValueError: If there are no trees, or `pad_to` is too small.
        TypeError: If what should be a tree is not one.

    Example:
        >>> from jaxrec.data import Tree, Vocabulary, pack_ordered
        >>> words = [Tree(2, word) for word in ("a", "b", "c")]
        >>> forest = pack_ordered([Tree(3, children=words)], Vocabulary(["a", "b", "c"]))
        >>> forest.token.tolist(), forest.child.tolist(), forest.sibling.tolist()
        ([-1, 1, 2, 3], [1, -1, -1, -1], [-1, 2, 3, -1])
    """
    check_type("pack_ordered", "vocabulary", vocabulary, Vocabulary)
    token, label, parent = [], [], []
    for tree in each_tree("pack_ordered", trees):
        awaited = [NONE]
        for node in tree.preorder():
            parent.append(awaited.pop())
            awaited += [len(token)] * len(node.children)
            token.append(NONE if node.word is None else vocabulary.encode(node.word))
            label.append(node.label)
    if not token:
        raise ValueError("pack_ordered: got no trees, expected at least one")
    return pad(ordered_forest(token, parent, label), pad_to, "pack_ordered")


def _links(parent: Int32) -> tuple[Int32, Int32]:
    """The first child and the next sibling of every node."""
    child, sibling = np.full((2, len(parent)), NONE, np.int32)
    # Nodes with one parent stand together, in their order.
    order = np.argsort(parent, kind="stable")
    order = order[parent[order] >= 0]
    same = parent[order[1:]] == parent[order[:-1]]
    sibling[order[:-1][same]] = order[1:][same]
    first = np.concatenate([[True], ~same])[: len(order)]
    child[parent[order[first]]] = order[first]
    return child, sibling


def column(caller: str, name: str, values: Sequence[int] | np.ndarray) -> Int32:
    """One number for each node, or an error that names what was given instead."""
    given = np.asarray(values)
    if given.ndim != 1 or (given.size and not np.issubdtype(given.dtype, np.integer)):
        raise ValueError(
            f"{caller}: {name} is {given.dtype}{list(given.shape)}, expected an integer for each "
            "node"
        )
    bounds = np.iinfo(np.int32)
    wrong = np.flatnonzero((given < bounds.min) | (given > bounds.max))
    if wrong.size:
        node = int(wrong[0])
        raise ValueError(f"{caller}: the {name} of node {node} is {given[node]}, beyond 32 bits")
    return given.astype(np.int32)


def check_parents(caller: str, name: str, parent: Int32, **columns: Int32) -> None:
    """Raises unless the argument of this name has the parents of nodes that all columns have."""
    nodes = len(parent)
    for other, column in columns.items():
        if column.shape != (nodes,):
            raise ValueError(
                f"{caller}: {other} has shape {column.shape}, expected ({nodes},), as {name}"
            )
    wrong = np.flatnonzero((parent < NONE) | (parent >= nodes))
    if wrong.size:
        node = int(wrong[0])
        raise ValueError(
            f"{caller}: the {name} of node {node} is {int(parent[node])}, expected -1 for a root "
            f"or a node below {nodes}"
        )
    _check_acyclic(caller, name, parent)


def _check_acyclic(caller: str, name: str, parent: Int32) -> None:
    stuck = np.flatnonzero(parent[topmost(parent)] >= 0)
    if stuck.size:
        raise ValueError(
            f"{caller}: node {int(stuck[0])} has no root above it; by {name} its ancestors go in a "
            "circle"
        )
    if not (parent < 0).any():
        raise ValueError(f"{caller}: got no root, expected a node whose {name} is -1")
