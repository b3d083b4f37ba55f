"""What a run learns from: three packed forests, their vocabulary and their classes."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from jaxrec.data import Forest, Tree, Treebank, Vocabulary, glove, listops, pack, read_treebank
from jaxrec.train._errors import TrainError
from jaxrec.train._settings import Settings

# The fine-grained classes 0 to 4 as negative, neutral and positive.
POLARITY: Final = (0, 0, 1, 2, 2)
NEUTRAL: Final = 2

LISTOPS_DEPTH: Final = 4
LISTOPS_ARGS: Final = 4


@dataclass(frozen=True)
class Task:
    """Data to train on, and what is asked about them.

    Attributes:
        train: The training trees, packed.
        dev: The trees that choose the best epoch.
        test: The trees that are looked at once.
        vocabulary: Of the leaves.
        num_classes: Classes of a node.
        polar: Whether classes are ordered from negative over one neutral class to positive.
        embedding: Word vectors read from a file, ``[len(vocabulary), dim]``, or ``None``.
    """

    train: Forest
    dev: Forest
    test: Forest
    vocabulary: Vocabulary
    num_classes: int
    polar: bool
    embedding: npt.NDArray[np.float32] | None = None

    def fingerprint(self) -> str:
        """A digest of all trees and words: equal for equal data, wherever they were read."""
        digest = hashlib.sha256("\n".join(self.vocabulary.words).encode())
        for forest in (self.train, self.dev, self.test):
            for array in (forest.label, forest.token, forest.left, forest.right, forest.roots):
                digest.update(np.asarray(array).tobytes())
        return digest.hexdigest()[:16]


def load_task(settings: Settings) -> Task:
    """Generates or reads the data that the settings name.

    Raises:
        TrainError: The directory or the word vectors do not fit the settings.
        jaxrec.data.TreebankError: A file is malformed; the message names file, line and column.
    """
    if settings.data is None:
        return _listops_task(settings)
    return _treebank_task(settings, settings.data)


def _listops_task(settings: Settings) -> Task:
    """Generated ListOps; no expression of the dev or test part is also in another part."""
    held_out = max(settings.trees // 5, 1)
    total = settings.trees + 2 * held_out
    drawn = listops(settings.seed, 2 * total, max_depth=LISTOPS_DEPTH, max_args=LISTOPS_ARGS)
    trees = list(dict.fromkeys(drawn))[:total]
    vocabulary = Vocabulary.build(trees)
    parts = trees[2 * held_out :], trees[:held_out], trees[held_out : 2 * held_out]
    forests = [pack(part, vocabulary) for part in parts]
    return Task(*forests, vocabulary=vocabulary, num_classes=10, polar=False)


def _read_splits(directory: str) -> Treebank:
    if not Path(directory).is_dir():
        wrong = "this is no" if Path(directory).exists() else "there is no such"
        raise TrainError(
            f"--data {directory}: {wrong} directory. Give one that holds train.txt, "
            "dev.txt and test.txt, or leave --data out to train on generated ListOps."
        )
    treebank = read_treebank(directory)
    assert isinstance(treebank, Treebank)
    return treebank


def _treebank_task(settings: Settings, directory: str) -> Task:
    read = _read_splits(directory)
    splits = read
    if settings.binary:
        named = zip(read._fields, read, strict=True)
        splits = Treebank(*(_without_neutral_roots(name, part) for name, part in named))
    # Pretrained vectors make sense of words that training never shows; random ones do not.
    known = splits if settings.glove else splits[:1]
    vocabulary = Vocabulary.build(itertools.chain.from_iterable(known))
    forests = [_labelled(pack(part, vocabulary), settings.binary) for part in splits]
    num_classes = 3 if settings.binary else 5
    task = Task(*forests, vocabulary=vocabulary, num_classes=num_classes, polar=True)
    if settings.glove is None or settings.resume:
        return task
    return replace(task, embedding=_word_vectors(settings, settings.glove, vocabulary))


def _without_neutral_roots(split: str, trees: Sequence[Tree]) -> list[Tree]:
    """Tai et al. 2015, section 5.1: the binary task leaves neutral sentences out."""
    kept = [tree for tree in trees if tree.label != NEUTRAL]
    if not kept:
        raise TrainError(f"--binary: all roots of {split}.txt are neutral (label 2).")
    return kept


def _labelled(forest: Forest, binary: bool) -> Forest:
    """The forest with fine-grained labels, or with three polarities."""
    if not binary:
        return forest
    label = np.asarray(forest.label)
    polarity = np.asarray(POLARITY, np.int32)[label]
    return replace(forest, label=np.where(label < 0, label, polarity))


def _word_vectors(settings: Settings, path: str, vocabulary: Vocabulary) -> npt.NDArray[np.float32]:
    if not Path(path).is_file():
        raise TrainError(f"--glove {path}: there is no such file.")
    try:
        vectors, coverage = glove(path, vocabulary, settings.seed)
    except ValueError as error:
        raise TrainError(f"--glove: {error}") from error
    if vectors.shape[1] != settings.embed:
        raise TrainError(
            f"--glove {path} holds vectors of size {vectors.shape[1]}, but --embed is "
            f"{settings.embed}. Pass --embed {vectors.shape[1]}."
        )
    known = len(vocabulary) - 1  # the first row is that of unknown words
    print(f"word vectors: {coverage:.1%} of {known} words found", file=sys.stderr)
    return vectors
