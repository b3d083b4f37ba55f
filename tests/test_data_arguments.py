"""Arguments of other types, each named where it was given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import jaxrec.data
from jaxrec.data import Tree, Vocabulary

DATA: Any = jaxrec.data  # the types of arguments are wrong on purpose
TREES, WORDS = [Tree(0, "a"), Tree(1, "b")], Vocabulary(["a", "b"])
WRONG: dict[str, Any] = {
    r"pack: got vocabulary=None, expected a jaxrec.data.Vocabulary": lambda: DATA.pack(TREES, None),
    r"pack: got vocabulary=\{'a': 1\}, expected": lambda: DATA.pack(TREES, {"a": 1}),
    r"pack: got pad_to=10.5, expected an integer": lambda: DATA.pack(TREES, WORDS, 10.5),
    r"pack: got pad_to='10', expected an integer": lambda: DATA.pack(TREES, WORDS, "10"),
    r"unpack: got forest=\[.*expected a jaxrec.data.Forest": lambda: DATA.unpack(TREES, WORDS),
    r"unpack: got vocabulary=\['a'\]": lambda: DATA.unpack(DATA.pack(TREES, WORDS), ["a"]),
    r"batches: got size=1.5, expected an integer": lambda: DATA.batches(TREES, 1.5, WORDS),
    r"batches: got vocabulary=\['a'\], expected": lambda: DATA.batches(TREES, 1, ["a"]),
    r"batches: got rng='x', expected a numpy.random.Gen": lambda: DATA.batches(
        TREES, 1, WORDS, "x"
    ),
    r"Vocabulary.encode: got 3, expected a word": lambda: DATA.Vocabulary(["a"]).encode(3),
    r"read_treebank: got num_labels='5'": lambda: DATA.read_treebank("no.txt", num_labels="5"),
    r"read_treebank: got num_labels=2.5": lambda: DATA.read_treebank("no.txt", num_labels=2.5),
    r"listops: got num=2.5, expected an integer": lambda: DATA.listops(0, 2.5),
    r"listops: got seed='a', expected an integer": lambda: DATA.listops("a", 3),
    r"Vocabulary: got None, expected a list of words": lambda: DATA.Vocabulary(None),
    r"Vocabulary.build: got a Tree, .* pass \[tree\]": lambda: DATA.Vocabulary.build(TREES[0]),
    r"Vocabulary.build: got min_count='a'": lambda: DATA.Vocabulary.build(TREES, min_count="a"),
    r"Vocabulary.build: trees\[0\] is 'a'": lambda: DATA.Vocabulary.build(["a"]),
    r"Vocabulary.decode: got id='a'": lambda: DATA.Vocabulary(["a"]).decode("a"),
    r"pack: got None, expected a sequence of": lambda: DATA.pack(None, WORDS),
    r"pack_ordered: trees\[1\] is 7, expected a": lambda: DATA.pack_ordered([TREES[0], 7], WORDS),
    r"write_treebank: trees\[0\] is 'a'": lambda: DATA.write_treebank("no.txt", ["a"]),
    r"dependency_lists: got forest=None": lambda: DATA.dependency_lists(None),
    r"bucket: got n='a', expected an integer": lambda: DATA.bucket("a"),
    r"bucket: got base=1.5, expected an integer": lambda: DATA.bucket(70, base=1.5),
    r"bucket: got ratio='2', expected a number": lambda: DATA.bucket(70, ratio="2"),
    r"listops: got op_prob='a', expected a number": lambda: DATA.listops(0, 1, op_prob="a"),
    r"glove: got vocabulary=\['a'\], expected": lambda: DATA.glove("no.txt", ["a"]),
    r"write_treebank: got a Tree, .* pass \[tree\]": lambda: DATA.write_treebank(
        "no.txt", TREES[0]
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_types(message: str) -> None:
    with pytest.raises(TypeError, match=message):
        WRONG[message]()


def test_ranges() -> None:
    with pytest.raises(ValueError, match="read_treebank: got num_labels=0, expected 1 or more"):
        DATA.read_treebank("no.txt", num_labels=0)
    with pytest.raises(ValueError, match=r"batches: got rng=-1, expected .* a seed >= 0"):
        DATA.batches(TREES, 1, WORDS, -1)
    with pytest.raises(ValueError, match=r"listops: got .*seed=-1; expected .* seed >= 0"):
        DATA.listops(-1, 2)


def test_integers_of_numpy() -> None:
    assert DATA.pack(TREES, WORDS, np.int64(5)).num_nodes == 5
    assert len(DATA.listops(np.int32(1), np.int64(2))) == 2
