r"""A parser of one line of a treebank, `(label left right)` or `(label word)`.

It keeps the open brackets on a list of its own instead of recursing, so that depth costs memory
only, and it says of every malformed line where it went wrong and what it expected there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from jaxrec.data._tree import MAX_LABEL, NO_LABEL, Tree, unescape

# ASCII: a no-break space is part of a word (`8 1\/2` in the Stanford Sentiment Treebank).
_TOKEN = re.compile(r"[()]|[^()\s]+", re.ASCII)
_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)
_WHITE = " \t\n\r\f\v"
_SHOWN_CHARACTERS = 40


class LineError(Exception):
    """What is wrong with a line and at which column; the reader adds the file and the line."""

    def __init__(self, column: int, message: str) -> None:
        super().__init__(message)
        self.column = column
        self.message = message


@dataclass(frozen=True)
class Grammar:
    """Which trees a reader accepts.

    Attributes:
        num_labels: Labels are below it; `None` for no bound but `MAX_LABEL`.
        binary: Whether every inner node must have exactly two children.
        unlabelled: Whether the label -1, "none", is allowed.
    """

    num_labels: int | None
    binary: bool
    unlabelled: bool

    def describe_labels(self) -> str:
        """The labels accepted, in words, for an error message."""
        known = f"0 to {self._largest}"
        return f"{known}, or {NO_LABEL} for none" if self.unlabelled else known

    def accepts(self, label: int) -> bool:
        """Whether a node may carry the label."""
        if label < 0:
            return self.unlabelled and label == NO_LABEL
        return label <= self._largest

    @property
    def _largest(self) -> int:
        return MAX_LABEL if self.num_labels is None else self.num_labels - 1


@dataclass(slots=True)
class _Open:
    """A node whose closing bracket has not come yet."""

    column: int
    label: int | None = None
    word: str | None = None
    children: list[Tree] = field(default_factory=list)


def parse_line(text: str, grammar: Grammar) -> Tree:
    """Parses a line that holds exactly one tree.

    Args:
        text: The line, with or without its line end.
        grammar: Which labels and shapes are accepted.

    Raises:
        LineError: At the first character where the line stops being a tree.
    """
    return _LineParser(grammar).parse(text)


class _LineParser:
    """The open nodes, innermost last, and the tree once its last bracket has closed."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.open: list[_Open] = []
        self.result: Tree | None = None

    def parse(self, text: str) -> Tree:
        for match in _TOKEN.finditer(text):
            token, column = match.group(), match.start() + 1
            if self.result is not None:
                _fail(column, "the end of the line after a whole tree", token)
            elif token == "(":
                self.open_node(column)
            elif not self.open:
                _fail(column, "'(' at the start of a tree", token)
            elif token == ")":
                self.close_node(column)
            else:
                self.atom(token, column)
        return self.finish(len(text.rstrip(_WHITE)) + 1)

    def open_node(self, column: int) -> None:
        if self.open:
            parent = self.open[-1]
            if parent.label is None:
                _fail(column, "an integer label after '('", "(")
            if parent.word is not None:
                _fail(column, f"')' after the word {_show(parent.word)}", "(")
            if self.grammar.binary and len(parent.children) == 2:
                _fail(column, "')' after two subtrees, the trees being binary", "(")
        self.open.append(_Open(column))

    def atom(self, token: str, column: int) -> None:
        node = self.open[-1]
        if node.label is None:
            node.label = self.label(token, column)
        elif node.word is not None:
            _fail(column, f"')' after the word {_show(node.word)}", token)
        elif node.children:
            _fail(column, "'(' or ')' after a subtree", token)
        else:
            node.word = unescape(token)

    def label(self, token: str, column: int) -> int:
        if not _INTEGER.fullmatch(token):
            _fail(column, "an integer label after '('", token)
        label = int(token)
        if not self.grammar.accepts(label):
            _fail(column, f"a label in the range {self.grammar.describe_labels()}", token)
        return label

    def close_node(self, column: int) -> None:
        node = self.open.pop()
        if node.label is None:
            _fail(column, "an integer label after '(' (the tree is empty)", ")")
        if node.word is None and not node.children:
            _fail(column, f"a word or subtrees after the label {node.label}", ")")
        if self.grammar.binary and len(node.children) == 1:
            _fail(column, "a second subtree, the trees being binary", ")")
        tree = Tree(node.label, node.word, tuple(node.children))
        if self.open:
            self.open[-1].children.append(tree)
        else:
            self.result = tree

    def finish(self, column: int) -> Tree:
        if self.open:
            opened = self.open[-1].column
            _fail(column, f"')' for the '(' at column {opened} ({len(self.open)} unclosed)", None)
        if self.result is None:
            _fail(column, "'(' at the start of a tree", None)
        return self.result


def _fail(column: int, expected: str, found: str | None) -> NoReturn:
    what = "the end of the line" if found is None else _show(found)
    raise LineError(column, f"expected {expected}, found {what}")


def _show(token: str) -> str:
    if len(token) > _SHOWN_CHARACTERS:
        token = f"{token[:_SHOWN_CHARACTERS]}..."
    return repr(token)
