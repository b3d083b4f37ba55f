"""Many trees as four arrays of indices: the form in which a recursive function walks them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import jax
import numpy as np

from jaxrec.data._arguments import check_integers, check_trees, check_type
from jaxrec.data._tree import NO_LABEL, Tree
from jaxrec.data._vocabulary import Vocabulary

NONE = -1
"""Stands for "no child", "no word" and "no label" in the arrays of a forest."""

Array = np.ndarray | jax.Array
Int32 = np.ndarray[tuple[int], np.dtype[np.int32]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Forest:
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

    @property
    def num_nodes(self) -> int:
        """Length of the node arrays, padding included."""
        return self.label.shape[0]

    @property
    def num_trees(self) -> int:
        """Number of roots."""
        return self.roots.shape[0]


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
                f"expected 2; binarise the tree first. The node: {node!r}"
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
    check_trees("pack", trees)
    check_type("pack", "vocabulary", vocabulary, Vocabulary)
    check_integers("pack", pad_to=pad_to)
    columns = _Columns()
    for number, tree in enumerate(trees):
        if not isinstance(tree, Tree):
            raise TypeError(f"pack: trees[{number}] is {tree!r}, expected a jaxrec.data.Tree")
        columns.append_tree(tree, vocabulary)
    if not columns.roots:
        raise ValueError("pack: got no trees, expected at least one")
    forest = columns.forest()
    return forest if pad_to is None else pad(forest, pad_to)


def pad(forest: Forest, num_nodes: int) -> Forest:
    """Adds nodes of -1 at the end until the forest has `num_nodes` of them."""
    extra = num_nodes - forest.num_nodes
    if extra < 0:
        raise ValueError(
            f"pack: got pad_to={num_nodes}, but the {forest.num_trees} trees have "
            f"{forest.num_nodes} nodes; pass pad_to={forest.num_nodes} or more, or None"
        )
    padding = np.full(extra, NONE, np.int32)
    nodes = (forest.label, forest.token, forest.left, forest.right)
    return Forest(*(np.concatenate([column, padding]) for column in nodes), roots=forest.roots)


def unpack(forest: Forest, vocabulary: Vocabulary) -> list[Tree]:
    """The trees of a forest: the inverse of `pack`, but for words that were unknown.

    Args:
        forest: A forest whose children come before their parents, as `pack` makes them.
        vocabulary: Gives the words; an id of 0 becomes the word `UNKNOWN`.

    Raises:
        ValueError: If a child comes after its parent, or the arrays do not fit together.

    Example:
        >>> from jaxrec.data import Tree, Vocabulary, pack, unpack
        >>> vocabulary = Vocabulary(["good"])
        >>> unpack(pack([Tree(4, "good"), Tree(2, "film")], vocabulary), vocabulary)
        [Tree('(4 good)'), Tree('(2 <unk>)')]
    """
    check_type("unpack", "forest", forest, Forest)
    check_type("unpack", "vocabulary", vocabulary, Vocabulary)
    check_order(forest, "unpack")
    end = int(np.max(np.asarray(forest.roots), initial=NONE)) + 1
    nodes = (forest.label, forest.token, forest.left, forest.right)
    done: list[Tree] = []
    for label, token, left, right in zip(*(column[:end].tolist() for column in nodes), strict=True):
        if left < 0:
            done.append(Tree(label, vocabulary.decode(token)))
        else:
            done.append(Tree(label, children=(done[left], done[right])))
    return [done[root] for root in forest.roots.tolist()]


def check_order(forest: Forest, caller: str) -> None:
    """Raises unless the arrays fit together and every child comes before its parent."""
    _check_arrays(forest, caller)
    latest = np.maximum(np.asarray(forest.left), np.asarray(forest.right))
    late = np.flatnonzero(latest >= np.arange(forest.num_nodes))
    if late.size:
        node = int(late[0])
        raise ValueError(
            f"{caller}: node {node} has child {int(latest[node])}, expected children before "
            "their parents; make the forest with pack"
        )


def _check_arrays(forest: Forest, caller: str) -> None:
    shapes = {name: np.shape(getattr(forest, name)) for name in ("label", "token", "left", "right")}
    if any(shape != (forest.num_nodes,) for shape in shapes.values()):
        raise ValueError(
            f"{caller}: got arrays of nodes of shapes {shapes}, expected one length for all; "
            "make the forest with pack"
        )
    roots = np.asarray(forest.roots).tolist()
    outside = [root for root in roots if not 0 <= root < forest.num_nodes]
    if outside:
        raise ValueError(
            f"{caller}: got root {outside[0]} in a forest of {forest.num_nodes} nodes; make the "
            "forest with pack"
        )


def select(forest: Forest, chosen: Int32, size: int) -> Forest:
    """The chosen trees alone, and one-node trees of the unknown word up to `size` trees.

    Args:
        forest: As `pack` makes it: each tree a contiguous block that ends with its root.
        chosen: int32 `[k]`, which trees, `k <= size`.
        size: Number of trees of the result.

    Returns:
        An unpadded forest in NumPy arrays.
    """
    ends = np.asarray(forest.roots) + 1
    starts = np.concatenate([[0], ends[:-1]])
    lengths = (ends - starts)[chosen]
    new_ends = np.cumsum(lengths)
    # What to add to a node's number in the old forest to get its number in the new one.
    shift = np.repeat(new_ends - ends[chosen], lengths)
    source = np.arange(len(shift)) - shift
    dummies = size - len(chosen)

    def gather(column: Array, fill: int, moved: bool) -> Int32:
        values = np.asarray(column)[source]
        if moved:
            values = np.where(values < 0, NONE, values + shift)
        return np.concatenate([values, np.full(dummies, fill)]).astype(np.int32)

    roots = np.concatenate([new_ends - 1, len(shift) + np.arange(dummies)])
    return Forest(
        label=gather(forest.label, NO_LABEL, moved=False),
        token=gather(forest.token, 0, moved=False),
        left=gather(forest.left, NONE, moved=True),
        right=gather(forest.right, NONE, moved=True),
        roots=roots.astype(np.int32),
    )
