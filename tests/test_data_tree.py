"""Trees: shape rules, orders, and no recursion whatever the depth."""

import copy
import doctest
import importlib
import pickle
from typing import Any

import numpy as np
import pytest

import jaxrec.data as jd
from jaxrec.data import NO_LABEL, Tree, Vocabulary

DEEP = 20_000


def chain(depth: int) -> Tree:
    """A binary tree that leans to the left, `depth` inner nodes deep."""
    tree = Tree(1, "w0")
    for level in range(depth):
        tree = Tree(level % 5, children=(tree, Tree(2, "w")))
    return tree


def small() -> Tree:
    return Tree(0, children=(Tree(1, children=(Tree(2, "a"), Tree(3, "b"))), Tree(4, "c")))


def test_orders_count_and_words() -> None:
    tree = small()
    assert [node.label for node in tree.preorder()] == [0, 1, 2, 3, 4]
    assert [node.label for node in tree.postorder()] == [2, 3, 1, 4, 0]
    assert tree.num_nodes == 5
    assert tree.words() == ["a", "b", "c"]
    assert not tree.is_leaf
    assert Tree(0, "a").is_leaf


def test_equality_and_hash_are_by_content() -> None:
    assert small() == small()
    assert hash(small()) == hash(small())
    assert small() != small().map_labels(lambda label: label + 1)
    assert Tree(0, "a") != Tree(0, "b")
    assert Tree(0, children=(Tree(0, "a"),)) != Tree(0, children=(Tree(0, "a"), Tree(0, "b")))
    assert Tree(0, "a") != "a"


def test_printing() -> None:
    assert str(small()) == "(0 (1 (2 a) (3 b)) (4 c))"
    assert repr(Tree(NO_LABEL, "1/2*")) == r"Tree('(-1 1\\/2\\*)')"
    assert repr(chain(50)).endswith("... 101 nodes)") is False
    assert "... 101 nodes" in repr(chain(50))
    assert len(repr(chain(50))) < 150


def test_a_label_is_an_int_whatever_integer_was_given() -> None:
    labels: list[Any] = [True, np.int64(1), np.uint8(1)]
    for label in labels:
        assert str(Tree(label, "a")) == "(1 a)"
    with pytest.raises(TypeError, match=r"got the label 1\.0 \(float\), expected an integer"):
        Tree(1.0, "a")  # pyright: ignore[reportArgumentType]


def test_map_labels_keeps_words_and_shape() -> None:
    tree = small().map_labels(lambda label: int(label > 2))
    assert str(tree) == "(0 (0 (0 a) (1 b)) (1 c))"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-2, "a"), r"got label -2, expected 0 to 2147483647, or -1 for no label"),
        ((2**31, "a"), r"got label 2147483648, expected 0 to 2147483647"),
        ((0,), r"expected a word or children, got neither"),
        ((0, "a", (Tree(0, "b"),)), r"expected a word or children, got both \(word 'a'\)"),
        ((0, ""), r"got an empty word"),
    ],
)
def test_malformed_nodes_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tree(*arguments)


@pytest.mark.parametrize("children", [("a",), "ab", 5, Tree(1, "a"), [None]])
def test_children_are_trees(children: Any) -> None:
    with pytest.raises(TypeError, match=r"Tree: got the children .*, expected a tuple of trees"):
        Tree(3, children=children)


def test_children_of_any_iterable() -> None:
    children: Any = iter([Tree(1, "a"), Tree(2, "b")])
    assert Tree(3, children=children) == Tree(3, children=(Tree(1, "a"), Tree(2, "b")))


def test_a_word_is_a_string() -> None:
    wrong: Any = 3
    with pytest.raises(TypeError, match="Tree: got the word 3, expected a string"):
        Tree(3, wrong)


def test_a_chain_of_20_000_levels() -> None:
    tree, same = chain(DEEP), chain(DEEP)
    assert tree == same
    assert hash(tree) == hash(same)
    assert tree.num_nodes == 2 * DEEP + 1
    assert pickle.loads(pickle.dumps(tree)) == tree
    assert copy.deepcopy(tree) == tree
    assert len(tree.words()) == DEEP + 1
    assert str(tree).count("(") == 2 * DEEP + 1


def test_a_deep_chain_is_written_read_packed_and_unpacked(tmp_path) -> None:
    tree = chain(DEEP)
    path = tmp_path / "deep.txt"
    jd.write_treebank(path, [tree])
    read = jd.read_treebank(path)
    assert read == [tree]
    vocabulary = Vocabulary.build([tree])
    forest = jd.pack([tree], vocabulary)
    assert forest.roots.tolist() == [2 * DEEP]
    assert int(np.sum(forest.left >= 0)) == DEEP
    assert jd.unpack(forest, vocabulary) == [tree]


@pytest.mark.parametrize(
    "name", ["_batches", "_forest", "_glove", "_listops", "_tree", "_treebank", "_vocabulary"]
)
def test_docstring_examples_run(name: str) -> None:
    results = doctest.testmod(importlib.import_module(f"jaxrec.data.{name}"))
    assert results.attempted > 0
    assert results.failed == 0
