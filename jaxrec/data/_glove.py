"""Pretrained word vectors in GloVe's text form: a word and its numbers on every line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxrec.data._arguments import check_type
from jaxrec.data._vocabulary import Vocabulary

_LARGEST = float(np.finfo(np.float32).max)

_Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


class Embeddings(NamedTuple):
    """An embedding table and how much of it was read from a file.

    Attributes:
        vectors: float32 `[len(vocabulary), dim]`.
        coverage: Share of the vocabulary, the unknown word aside, that the file holds: 0 to 1.
    """

    vectors: _Vectors
    coverage: float


def glove(
    path: str | os.PathLike[str],
    vocabulary: Vocabulary,
    rng: np.random.Generator | int = 0,
    *,
    scale: float = 0.05,
) -> Embeddings:
    r"""Reads the vectors of a vocabulary's words from a GloVe text file.

    Words are matched exactly, case included (a vocabulary in lower case finds the words that
    the file spells in lower case). The first line gives the dimension: all after its first space
    are numbers. On the other lines the last `dim` fields are the numbers, so that a word may hold
    spaces, as some of `glove.840B.300d.txt` do. A word that comes twice keeps its first vector.

    Args:
        path: The file, UTF-8.
        vocabulary: Gives the rows of the table.
        rng: Generator or seed for the rows of the words that the file lacks. The row drawn for a
            word does not depend on which other words the file holds.
        scale: Those rows are uniform in (-scale, scale).

    Returns:
        The table and its coverage.

    Raises:
        ValueError: If a line is malformed, naming the file and the line.

    Example:
        >>> import pathlib, tempfile
        >>> from jaxrec.data import Vocabulary, glove
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "vectors.txt")
        ...     _ = file.write_text("good 1.0 2.0\nbad -1.0 0.0\n", encoding="utf-8")
        ...     table = glove(file, Vocabulary(["good", "film"]))
        >>> table.vectors[1].tolist(), table.coverage
        ([1.0, 2.0], 0.5)

    Source:
        Pennington et al., "GloVe: Global Vectors for Word Representation", EMNLP 2014.
    """
    check_type("glove", "vocabulary", vocabulary, Vocabulary)
    rows = {word: row for row, word in enumerate(vocabulary.words)}
    found: dict[int, list[float]] = {}
    dim = 0
    for word, numbers in _read(Path(path)):
        dim = len(numbers)
        if (row := rows.get(word)) is not None:
            found.setdefault(row, numbers)
    draw = np.random.default_rng(rng).uniform(-scale, scale, (len(vocabulary), dim))
    vectors = draw.astype(np.float32)
    for row, numbers in found.items():
        vectors[row] = numbers
    known = len(found) - (0 in found)
    return Embeddings(vectors, known / max(len(vocabulary) - 1, 1))


def _read(path: Path) -> Iterator[tuple[str, list[float]]]:
    """Yields the words and their numbers, each line with as many as the first."""
    dim = 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = _decode(raw, path, number).rstrip("\r\n ")
            dim = dim or line.count(" ")
            if number == 1 and all(part.isdigit() for part in line.split(" ")) and dim == 1:
                raise ValueError(
                    f"{path}, line 1: expected a word and its numbers, found {_show(line)}, which "
                    "is the number of words and their size, as word2vec writes them. Delete the "
                    "line."
                )
            word, *fields = line.rsplit(" ", dim) if dim else [line]
            if not word or not fields or len(fields) != dim:
                raise ValueError(
                    f"{path}, line {number}: expected a word and {dim or 'some'} numbers with "
                    f"single spaces between, found {_show(line)}"
                )
            yield word, _floats(fields, path, number)
    if not dim:
        raise ValueError(f"{path}, line 1: expected a word and its numbers, found an empty file")


def _floats(fields: list[str], path: Path, number: int) -> list[float]:
    try:
        values = [float(text) for text in fields]
    except ValueError as error:
        raise ValueError(
            f"{path}, line {number}: expected {len(fields)} numbers at the end of the line: {error}"
        ) from None
    if not all(abs(value) <= _LARGEST for value in values):
        raise ValueError(
            f"{path}, line {number}: expected numbers that are finite in float32, found others"
        )
    return values


def _decode(raw: bytes, path: Path, number: int) -> str:
    try:
        # The mark in front of the first line says how the file is encoded.
        return raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: expected UTF-8 text: {error}") from None


def _show(line: str) -> str:
    return repr(line if len(line) <= 60 else f"{line[:60]}...")
