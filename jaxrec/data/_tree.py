"""The tree that everything else here reads, generates and packs.

Nothing in this file recurses: a tree may be a chain 100,000 nodes deep, and Python's stack is not.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

NO_LABEL = -1
"""The label of a node that has none."""

MAX_LABEL = 2**31 - 1
"""The largest label: those of a forest are int32."""

_REPR_CHARACTERS = 100

# What one node says without its children: label, word, number of children.
_Item = tuple[int, str | None, int]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tree:
    """A labelled tree: a leaf holds a word, any other node holds children.

    Trees compare, hash, pickle and print by their whole content, at any depth.
    `str(tree)` is the Penn bracket form that `read_treebank` reads.

    Attributes:
        label: Class of the node, 0 to 2**31 - 1, or `NO_LABEL` (-1).
        word: The word of a leaf; `None` on every other node.
        children: One subtree or more; empty on a leaf.

    Raises:
        ValueError: If the node has both a word and children, neither of them, an empty word, or
            a label out of range.
        TypeError: If the label is no integer, the word no string, or a child no tree.

    Example:
        >>> from jaxrec.data import Tree
        >>> tree = Tree(3, children=(Tree(3, "good"), Tree(2, "film")))
        >>> str(tree), tree.num_nodes, tree.words()
        ('(3 (3 good) (2 film))', 3, ['good', 'film'])
    """

    label: int
    word: str | None = None
    children: tuple[Tree, ...] = ()

    def __post_init__(self) -> None:
        # A frozen dataclass has no other way to set a field of its own.
        object.__setattr__(self, "label", _as_label(self.label))
        object.__setattr__(self, "children", _as_children(self.children))
        if not isinstance(self.word, str | None):
            raise TypeError(f"Tree: got the word {self.word!r}, expected a string")
        if (self.word is None) == (not self.children):
            got = "neither" if self.word is None else f"both (word {self.word!r})"
            raise ValueError(
                f"Tree: expected a word or children, got {got}; "
                "a leaf is Tree(label, word), any other node is Tree(label, children=(...))"
            )
        if self.word == "":
            raise ValueError("Tree: got an empty word, expected at least one character")

    @property
    def is_leaf(self) -> bool:
        """Whether the node holds a word."""
        return self.word is not None

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole tree, this one included."""
        return sum(1 for _ in self.preorder())

    def preorder(self) -> Iterator[Tree]:
        """Yields every node, parents before their children, left before right."""
        stack: list[Tree] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def postorder(self) -> Iterator[Tree]:
        """Yields every node, children before their parent, left before right."""
        order: list[Tree] = []
        stack: list[Tree] = [self]
        # Parents first and right before left, read backwards, is postorder.
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(node.children)
        return reversed(order)

    def words(self) -> list[str]:
        """The words of the leaves, left to right."""
        return [node.word for node in self.preorder() if node.word is not None]

    def map_labels(self, function: Callable[[int], int]) -> Tree:
        """The same tree with `function(label)` in place of every label.

        Args:
            function: Takes each label, `NO_LABEL` included, to a label.

        Example:
            >>> from jaxrec.data import Tree
            >>> str(Tree(3, "good").map_labels(lambda label: int(label > 2)))
            '(1 good)'
        """
        return _build([(function(label), word, arity) for label, word, arity in _items(self)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tree):
            return NotImplemented
        # Trees whose nodes agree in their numbers of children all along have the same length.
        pairs = zip(_items(self), _items(other), strict=False)
        return all(mine == theirs for mine, theirs in pairs)

    def __hash__(self) -> int:
        return hash(tuple(_items(self)))

    def __reduce__(self) -> tuple[Callable[[list[_Item]], Tree], tuple[list[_Item]]]:
        # The default would recurse once per level.
        return _build, (list(_items(self)),)

    def __str__(self) -> str:
        return format_tree(self)

    def __repr__(self) -> str:
        text = format_tree(self)
        if len(text) > _REPR_CHARACTERS:
            text = f"{text[:_REPR_CHARACTERS]}... {self.num_nodes} nodes"
        return f"Tree({text!r})"


def _as_children(children: Iterable[Tree]) -> tuple[Tree, ...]:
    found = tuple(children) if isinstance(children, Iterable) else None
    if found is None or not all(isinstance(child, Tree) for child in found):
        raise TypeError(f"Tree: got the children {children!r}, expected a tuple of trees")
    return found


def _as_label(label: int) -> int:
    try:
        number = int(operator.index(label))
    except TypeError:
        raise TypeError(
            f"Tree: got the label {label!r} ({type(label).__name__}), expected an integer"
        ) from None
    if not NO_LABEL <= number <= MAX_LABEL:
        raise ValueError(
            f"Tree: got label {number}, expected 0 to {MAX_LABEL}, or {NO_LABEL} for no label"
        )
    return number


def _items(tree: Tree) -> Iterator[_Item]:
    return ((node.label, node.word, len(node.children)) for node in tree.preorder())


def _build(items: Iterable[_Item]) -> Tree:
    """Rebuilds a tree from its nodes in preorder."""
    done: list[Tree] = []
    for label, word, arity in reversed(list(items)):
        # Read backwards, a node's subtrees are finished, the first of them last.
        done.append(Tree(label, word, tuple(done.pop() for _ in range(arity))))
    return done.pop()


def format_tree(tree: Tree) -> str:
    """The Penn bracket form of a tree, on one line, with `/` and `*` escaped."""
    parts: list[str] = []
    pending: list[Tree | str] = [tree]
    while pending:
        entry = pending.pop()
        if isinstance(entry, str):
            parts.append(entry)
        elif entry.word is not None:
            parts.append(f"({entry.label} {escape(entry.word)})")
        else:
            parts.append(f"({entry.label}")
            pending.append(")")
            for child in reversed(entry.children):
                pending += (child, " ")
    return "".join(parts)


def escape(word: str) -> str:
    r"""`1/2` to `1\/2`: the Penn Treebank's spelling of a slash and of an asterisk."""
    return word.replace("/", r"\/").replace("*", r"\*")


def unescape(word: str) -> str:
    r"""`1\/2` to `1/2`: the inverse of `escape`; any other backslash stands for itself."""
    return word.replace(r"\/", "/").replace(r"\*", "*")
