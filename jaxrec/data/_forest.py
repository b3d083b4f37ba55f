"""Many trees as four arrays of indices: the form in which a recursive function walks them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import jax
import numpy as np

from jaxrec.data._arguments import check_type, each_tree
from jaxrec.data._packed import NONE, Array, Packed, check_arrays, pad
from jaxrec.data._tree import Tree
from jaxrec.data._vocabulary import Vocabulary


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Forest(Packed):
    """Binary trees packed into arrays; a JAX pytree.

    `pack` stores the trees one after another, each in postorder: children before their parent,
    left before right, the root last in its tree. Padding nodes, all -1, come after every tree.

    Attributes:
        label: int32 `[nodes]`, the class of the node, -1 for none.
        token: int32 `[nodes]`, the id of a leaf's word, -1 elsewhere.
        left: int32 `[nodes]`, the left child, -1 on leaves and padding.
        right: int32 `[nodes]`, the right child, -1 on leaves and padding.
        roots: int32 `[trees]`, the root of each tree.
    """

    label: Array
    token: Array
    left: Array
    right: Array
    roots: Array

    columns: ClassVar = ("label", "token", "left", "right")
    links: ClassVar = ("left", "right")


class _Columns:
    """The arrays of a forest while they grow, node by node in postorder."""

    def __init__(self) -> None:
        self.label: list[int] = []
        self.token: list[int] = []
        self.left: list[int] = []
        self.right: list[int] = []
        self.roots: list[int] = []

    def append(self, label: int, token: int, left: int, right: int) -> int:
        self.label.append(label)
        self.token.append(token)
        self.left.append(left)
        self.right.append(right)
        return len(self.label) - 1

    def append_tree(self, tree: Tree, vocabulary: Vocabulary) -> None:
        done: list[int] = []
        for node in tree.postorder():
            if node.word is not None:
                row = self.append(node.label, vocabulary.encode(node.word), NONE, NONE)
            else:
                self.check_binary(node)
                right, left = done.pop(), done.pop()
                row = self.append(node.label, NONE, left, right)
            done.append(row)
        self.roots.append(done.pop())

    def check_binary(self, node: Tree) -> None:
        if len(node.children) != 2:
            raise ValueError(
                f"pack: tree {len(self.roots)} has a node with {len(node.children)} children, "
                "expected 2; binarise the tree first, or pack trees of any arity with "
                f"jaxrec.data.pack_ordered. The node: {node!r}"
            )

    def forest(self) -> Forest:
        columns = (self.label, self.token, self.left, self.right, self.roots)
        return Forest(*(np.array(column, np.int32) for column in columns))


def pack(trees: Iterable[Tree], vocabulary: Vocabulary, pad_to: int | None = None) -> Forest:
    """Packs binary trees into one forest.

    Args:
        trees: At least one tree, of leaves and of nodes with two children.
        vocabulary: Gives the ids of the words; words it lacks get id 0.
        pad_to: Length of the node arrays: nodes of -1 are added at the end. `None` adds none.

    Returns:
        The forest, `roots` in the order of `trees`, in NumPy arrays.

    Raises:
        ValueError: If there are no trees, one is not binary, or `pad_to` is too small.
        TypeError: If what should be a tree is not one.

    Example:
        >>> from jaxrec.data import Tree, Vocabulary, pack
        >>> tree = Tree(3, children=(Tree(4, "good"), Tree(2, "film")))
        >>> forest = pack([tree], Vocabulary(["good", "film"]), pad_to=4)
        >>> forest.token.tolist(), forest.left.tolist(), forest.roots.tolist()
        ([1, 2, -1, -1], [-1, -1, 0, -1], [2])
    """
    check_type("pack", "vocabulary", vocabulary, Vocabulary)
    columns = _Columns()
    for tree in each_tree("pack", trees):
        columns.append_tree(tree, vocabulary)
    if not columns.roots:
        raise ValueError("pack: got no trees, expected at least one")
    return pad(columns.forest(), pad_to, "pack")


def unpack(forest: Forest, vocabulary: Vocabulary) -> list[Tree]:
    """The trees of a forest: the inverse of `pack`, but for words that were unknown.

    Args:
        forest: A forest whose children come before their parents, as `pack` makes them.
        vocabulary: Gives the words; an id of 0 becomes the word `UNKNOWN`.

    Raises:
        ValueError: If a child comes after its parent, a node has one child, or the arrays do not
            fit together.

    Example:
        >>> from jaxrec.data import Tree, Vocabulary, pack, unpack
        >>> vocabulary = Vocabulary(["good"])
        >>> unpack(pack([Tree(4, "good"), Tree(2, "film")], vocabulary), vocabulary)
        [Tree('(4 good)'), Tree('(2 <unk>)')]
    """
    check_type("unpack", "forest", forest, Forest)
    check_type("unpack", "vocabulary", vocabulary, Vocabulary)
    _check_children(forest)
    end = int(np.max(np.asarray(forest.roots), initial=NONE)) + 1
    nodes = (forest.label, forest.token, forest.left, forest.right)
    done: list[Tree] = []
    for label, token, left, right in zip(*(column[:end].tolist() for column in nodes), strict=True):
        if left < 0:
            done.append(Tree(label, vocabulary.decode(token)))
        else:
            done.append(Tree(label, children=(done[left], done[right])))
    return [done[root] for root in forest.roots.tolist()]


def _check_children(forest: Forest) -> None:
    """Raises unless the arrays fit together, with two children or none before each node."""
    check_arrays(forest, "unpack")
    left, right = np.asarray(forest.left), np.asarray(forest.right)
    single = np.flatnonzero((left < 0) != (right < 0))
    if single.size:
        node = int(single[0])
        raise ValueError(
            f"unpack: node {node} has left={left[node]} and right={right[node]}, expected two "
            "children or none (-1)"
        )
    latest = np.maximum(left, right)
    late = np.flatnonzero(latest >= np.arange(forest.num_nodes))
    if late.size:
        node = int(late[0])
        raise ValueError(
            f"unpack: node {node} has child {int(latest[node])}, expected children before "
            "their parents; make the forest with pack"
        )
