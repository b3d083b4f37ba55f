"""Treebank files: one tree a line in Penn bracket form, UTF-8."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxrec.data._arguments import check_integers, each_tree
from jaxrec.data._parse import Grammar, LineError, parse_line
from jaxrec.data._tree import Tree

_SPLITS = ("train", "dev", "test")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UNWRITABLE = re.compile(r"[()\s]", re.ASCII)


class TreebankError(ValueError):
    """A treebank file that cannot be read, with the place where reading stopped.

    Attributes:
        path: The file.
        line: Number of the line, from 1.
        column: Number of the character in the line, from 1.
    """

    def __init__(self, path: Path, line: int, column: int, message: str) -> None:
        super().__init__(f"{path}, line {line}, column {column}: {message}")
        self.path = path
        self.line = line
        self.column = column
        self._message = message

    def __reduce__(self) -> tuple[Any, ...]:
        """Takes it apart for pickle, which else makes an exception of its text alone."""
        return type(self), (self.path, self.line, self.column, self._message)


class Treebank(NamedTuple):
    """The three splits of a treebank directory.

    Attributes:
        train: Trees of `train.txt`.
        dev: Trees of `dev.txt`.
        test: Trees of `test.txt`.
    """

    train: list[Tree]
    dev: list[Tree]
    test: list[Tree]


def read_treebank(
    path: str | os.PathLike[str],
    *,
    num_labels: int | None = 5,
    binary: bool = True,
    unlabelled: bool = False,
) -> list[Tree] | Treebank:
    r"""Reads a file of trees, or a directory with `train.txt`, `dev.txt` and `test.txt`.

    A line holds one tree, `(label left right)` or `(label word)`. Tokens are separated by ASCII
    white space and round brackets only: any other character, a no-break space included, belongs
    to a word. `\/` and `\*` are read as `/` and `*`. `-LRB-` and `-RRB-` stay as they are: they
    are how the Stanford Sentiment Treebank spells the words `(` and `)`. Lines of white space
    only are skipped; line ends may be `\n` or `\r\n`. The defaults are those of that treebank.

    Args:
        path: The file or the directory.
        num_labels: Labels must be below it; `None` for no bound.
        binary: Whether an inner node must have exactly two children; otherwise one or more.
        unlabelled: Whether the label -1, "none", is allowed.

    Returns:
        The trees of a file in its order, or a `Treebank` of three such lists for a directory.

    Raises:
        TreebankError: If a line is not a tree, is not UTF-8, or the file holds no tree.
        FileNotFoundError: If there is no such file, or the directory lacks one of the three.

    Example:
        >>> import pathlib, tempfile
        >>> from jaxrec.data import read_treebank
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "trees.txt")
        ...     _ = file.write_text("(3 (3 good) (2 film))\n", encoding="utf-8")
        ...     print(*read_treebank(file))
        (3 (3 good) (2 film))

    Source:
        Socher et al., "Recursive Deep Models for Semantic Compositionality Over a Sentiment
        Treebank", EMNLP 2013 (the format).
    """
    check_integers("read_treebank", num_labels=num_labels)
    if num_labels is not None and num_labels < 1:
        raise ValueError(f"read_treebank: got num_labels={num_labels}, expected 1 or more, or None")
    path = Path(path)
    grammar = Grammar(num_labels, binary, unlabelled)
    if not path.is_dir():
        return _read_file(path, grammar)
    files = [path / f"{split}.txt" for split in _SPLITS]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise FileNotFoundError(
            f"read_treebank: the directory {path} has no {', '.join(missing)}; expected "
            "train.txt, dev.txt and test.txt in it, or pass the path of one file"
        )
    return Treebank(*(_read_file(file, grammar) for file in files))


def write_treebank(path: str | os.PathLike[str], trees: Iterable[Tree]) -> None:
    r"""Writes trees, one a line, so that `read_treebank` gives them back.

    Args:
        path: The file to write; an existing one is replaced.
        trees: The trees, of any shape.

    Raises:
        ValueError: If a word holds a bracket or ASCII white space, which the format cannot spell.
            Nothing is written then.

    Example:
        >>> import pathlib, tempfile
        >>> from jaxrec.data import Tree, write_treebank
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "trees.txt")
        ...     write_treebank(file, [Tree(2, "and/or")])
        ...     print(file.read_text(encoding="utf-8").strip())
        (2 and\/or)
    """
    lines = [f"{_writable(tree)}\n" for tree in each_tree("write_treebank", trees)]
    Path(path).write_bytes("".join(lines).encode("utf-8"))


def _writable(tree: Tree) -> Tree:
    for word in tree.words():
        if _UNWRITABLE.search(word):
            raise ValueError(
                f"write_treebank: the word {word!r} holds a bracket or white space; "
                "spell brackets -LRB- and -RRB- and join words with a no-break space"
            )
    return tree


def _read_file(path: Path, grammar: Grammar) -> list[Tree]:
    if not path.is_file():
        raise FileNotFoundError(
            f"read_treebank: there is no file or directory {path}; pass a file of trees, "
            "or a directory with train.txt, dev.txt and test.txt"
        )
    data = path.read_bytes().removeprefix(_BYTE_ORDER_MARK)
    trees = list(_parse_lines(path, data, grammar))
    if not trees:
        raise TreebankError(path, 1, 1, "expected at least one tree, found none")
    return trees


def _parse_lines(path: Path, data: bytes, grammar: Grammar) -> Iterator[Tree]:
    # Split as bytes: str.splitlines would also cut at the exotic line ends that words may hold.
    for number, raw in enumerate(data.split(b"\n"), start=1):
        if not raw.strip():
            continue
        try:
            yield parse_line(_decode(raw), grammar)
        except LineError as error:
            raise TreebankError(path, number, error.column, error.message) from None


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8")) + 1
        found = f"the byte 0x{raw[error.start]:02x}"
        raise LineError(column, f"expected UTF-8 text, found {found}; re-encode the file") from None
