"""Vocabularies and pretrained vectors."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrec.data import UNKNOWN, Tree, Vocabulary, glove

TREES = [
    Tree(0, children=(Tree(0, "the"), Tree(0, children=(Tree(0, "The"), Tree(0, "film"))))),
    Tree(0, children=(Tree(0, "film"), Tree(0, "x"))),
]


def test_words_are_numbered_by_frequency_then_code_point() -> None:
    vocabulary = Vocabulary.build(TREES)
    assert vocabulary.words == (UNKNOWN, "film", "The", "the", "x")
    assert [vocabulary.encode(word) for word in vocabulary.words] == [0, 1, 2, 3, 4]
    assert [vocabulary.decode(number) for number in range(5)] == list(vocabulary.words)
    assert len(vocabulary) == 5
    assert vocabulary.encode("THE") == 0
    assert "film" in vocabulary
    assert "THE" not in vocabulary


def test_min_count_and_lower() -> None:
    assert Vocabulary.build(TREES, min_count=2).words == (UNKNOWN, "film")
    lower = Vocabulary.build(TREES, min_count=2, lower=True)
    assert lower.words == (UNKNOWN, "film", "the")
    assert lower.encode("THE") == 2
    assert "THE" in lower


def test_the_unknown_word_keeps_id_0() -> None:
    assert Vocabulary.build([Tree(0, UNKNOWN)]).words == (UNKNOWN,)
    assert Vocabulary([]).encode(UNKNOWN) == 0


@pytest.mark.parametrize(("words", "got"), [(["a", None], "None"), ([1], "1"), ("abc", "'abc'")])
def test_words_are_strings(words: Any, got: str) -> None:
    with pytest.raises(TypeError, match=f"Vocabulary: got {got}, expected a list of words"):
        Vocabulary(words)


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"got 1 words more than once, such as 'a'"):
        Vocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match=r"such as 'a'.*after putting them in lower case"):
        Vocabulary(["a", "A"], lower=True)
    with pytest.raises(ValueError, match=r"got min_count=0, expected 1 or more"):
        Vocabulary.build(TREES, min_count=0)


@pytest.mark.parametrize("number", [-1, 5])
def test_ids_out_of_range(number: int) -> None:
    with pytest.raises(IndexError, match=rf"got id {number}, expected 0 to 4"):
        Vocabulary.build(TREES).decode(number)


@pytest.mark.parametrize("lower", [False, True])
def test_saved_and_loaded(tmp_path: Path, lower: bool) -> None:
    vocabulary = Vocabulary(["naïve", "8\u00a01/2", '"', "\u2028"], lower=lower)
    vocabulary.save(tmp_path / "words.json")
    loaded = Vocabulary.load(tmp_path / "words.json")
    assert loaded == vocabulary
    assert loaded.encode("8\u00a01/2") == 2
    assert pickle.loads(pickle.dumps(vocabulary)).encode('"') == 3


def test_what_cannot_be_written_harms_no_file(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    Vocabulary(["a"]).save(path)
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        Vocabulary(["\ud800"]).save(path)
    assert Vocabulary.load(path) == Vocabulary(["a"])


def test_other_values_are_no_words() -> None:
    assert 3 not in Vocabulary(["a"]) and None not in Vocabulary(["a"], lower=True)


def test_files_that_hold_no_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "words.json"
    for text in ("{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"words\.json is not JSON"):
            Vocabulary.load(path)
    good = {"format": "jaxrec.vocabulary", "lower": False, "words": ["a"]}
    for bad in ([], good | {"format": "x"}, good | {"words": [1]}, good | {"lower": None}):
        path.write_text(json.dumps(bad))
        with pytest.raises(ValueError, match=r"words\.json is not a saved vocabulary; expected"):
            Vocabulary.load(path)


def vectors(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_vectors_are_read_and_missing_words_drawn(tmp_path: Path) -> None:
    path = vectors(tmp_path, "the 1 2 3\nfilm -0.5 0 1e-2\n. . . 7 8 9\nthe 0 0 0\n2 3 4 5\n")
    vocabulary = Vocabulary(["film", "absent", "the", ". . .", "2"])
    table, coverage = glove(path, vocabulary, 1)
    assert table.shape == (6, 3)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table[1], np.array([-0.5, 0, 1e-2], np.float32))
    assert table[3].tolist() == [1, 2, 3]
    assert table[4].tolist() == [7, 8, 9]
    assert table[5].tolist() == [3, 4, 5]
    assert coverage == 4 / 5
    drawn = table[[0, 2]]
    assert np.all((np.abs(drawn) < 0.05) & (drawn != 0))


def test_drawn_rows_depend_on_the_seed_alone(tmp_path: Path) -> None:
    vocabulary = Vocabulary(["a", "b"])
    first = glove(vectors(tmp_path, "a 1 2\n"), vocabulary, 3).vectors
    second = glove(vectors(tmp_path, "b 1 2\n"), vocabulary, np.random.default_rng(3)).vectors
    other = glove(vectors(tmp_path, "b 1 2\n"), vocabulary, 4).vectors
    np.testing.assert_array_equal(first[0], second[0])
    assert np.all(first[0] != other[0])
    assert np.abs(glove(vectors(tmp_path, "a 1 2\n"), vocabulary, scale=9).vectors).max() > 0.05


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    table, coverage = glove(vectors(tmp_path, b"\xef\xbb\xbfgood 1 2\n"), Vocabulary(["good"]))
    assert table[1].tolist() == [1, 2]
    assert coverage == 1


def test_a_file_may_hold_the_unknown_word_and_odd_line_ends(tmp_path: Path) -> None:
    table, coverage = glove(vectors(tmp_path, "<unk> 1 2 \r\nx\x85y 3 4"), Vocabulary(["x\x85y"]))
    assert table.tolist() == [[1, 2], [3, 4]]
    assert coverage == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a 1 2\nb 1\n", r"line 2: expected a word and 2 numbers .* found 'b 1'"),
        ("a 1 2\n\nb 1 2\n", r"line 2: expected a word and 2 numbers .* found ''"),
        ("a 1 2\n 1 2\n", r"line 2: expected a word and 2 numbers"),
        ("400000 300\na 1 2\n", r"line 1: .* found '400000 300', which is .* Delete the line"),
        ("a\n", r"line 1: expected a word and some numbers .* found 'a'"),
        ("a 1 2\nb c 2\n", r"line 2: expected 2 numbers at the end of the line: .*'c'"),
        ("a 1 2\nb 1  2\n", r"line 2: expected 2 numbers at the end of the line"),
        ("a 1 nan\n", r"line 1: expected numbers that are finite in float32, found others"),
        ("a 1 1\nb 1e39 2\n", r"line 2: expected numbers that are finite in float32"),
        (b"a 1 2\n\xff 1 2\n", r"line 2: expected UTF-8 text"),
        ("", r"line 1: expected a word and its numbers, found an empty file"),
    ],
)
def test_malformed_vectors(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=rf"vectors\.txt, {message}"):
        glove(vectors(tmp_path, content), Vocabulary(["x"]))
