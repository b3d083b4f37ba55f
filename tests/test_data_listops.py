"""ListOps: every label against an evaluator that reads the words alone."""

import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrec.data import Tree, listops, read_treebank, write_treebank

REDUCE = {
    "[MAX": max,
    "[MIN": min,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: int(np.sum(values)) % 10,
}


def evaluate(words: list[str]) -> int | None:
    """The value of a digit, of a list, or of a list that misses its `]`; else `None`."""
    stack: list[tuple[str, list[int]]] = [("", [])]
    for word in words:
        if word.startswith("["):
            stack.append((word, []))
        elif word.isdigit():
            stack[-1][1].append(int(word))
        elif len(stack) > 1:
            operator, values = stack.pop()
            stack[-1][1].append(REDUCE[operator](values))
        else:
            return None
    operator, values = stack.pop()
    if not values:
        return None
    return REDUCE[operator](values) if operator else values[0]


def expected_label(node: Tree) -> int:
    value = evaluate(node.words())
    return -1 if value is None else value


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(2, 5), st.floats(0, 0.4))
def test_every_node_has_the_value_of_its_words(
    seed: int, max_depth: int, max_args: int, op_prob: float
) -> None:
    for tree in listops(seed, 2, max_depth=max_depth, max_args=max_args, op_prob=op_prob):
        for node in tree.preorder():
            assert node.label == expected_label(node)


def depth_and_arguments(words: list[str]) -> tuple[int, list[int]]:
    deepest, open_lists, arguments = 0, [], []
    for word in words:
        if word == "]":
            arguments.append(open_lists.pop())
        elif open_lists:
            open_lists[-1] += 1
        if word.startswith("["):
            open_lists.append(0)
            deepest = max(deepest, len(open_lists))
    assert not open_lists
    return deepest, arguments


@pytest.mark.parametrize(("max_depth", "max_args"), [(1, 2), (3, 4), (6, 5)])
def test_depth_and_number_of_arguments(max_depth: int, max_args: int) -> None:
    trees = listops(1, 300, max_depth=max_depth, max_args=max_args)
    measured = [depth_and_arguments(tree.words()) for tree in trees]
    assert max(deepest for deepest, _ in measured) == max_depth
    counts = {count for _, counts in measured for count in counts}
    assert counts == set(range(2, max_args + 1))


def test_the_paper_s_left_branching_form() -> None:
    tree = listops(5, 1, max_depth=1, max_args=3)[0]
    *arguments, end = tree.words()[1:]
    node = tree
    for word in [end, *reversed(arguments)]:
        node, last = node.children
        assert last.word == word
    assert node.word == tree.words()[0]
    assert node.label == -1


def test_all_operators_digits_and_values_occur() -> None:
    trees = listops(0, 500)
    words = {word for tree in trees for word in tree.words()}
    assert words == {*REDUCE, *"0123456789", "]"}
    assert {tree.label for tree in trees} == set(range(10))


def test_seeds_decide_and_more_only_adds() -> None:
    assert listops(7, 20) == listops(7, 20)
    assert listops(7, 5) == listops(7, 20)[:5]
    assert listops(7, 20) != listops(8, 20)
    assert listops(7, 0) == []


def test_the_default_is_small_with_a_long_tail() -> None:
    sizes = [tree.num_nodes for tree in listops(0, 1000)]
    assert 40 < statistics.mean(sizes) < 100
    assert max(sizes) > 500


def test_they_can_be_written_and_read(tmp_path: Path) -> None:
    trees = listops(2, 30)
    write_treebank(tmp_path / "listops.txt", trees)
    assert read_treebank(tmp_path / "listops.txt", num_labels=10, unlabelled=True) == trees


@pytest.mark.parametrize(
    "wrong", [{"num": -1}, {"max_depth": 0}, {"max_args": 1}, {"op_prob": 1.5}, {"op_prob": -0.1}]
)
def test_wrong_arguments(wrong: dict) -> None:
    with pytest.raises(ValueError, match=r"listops: got num=.*expected num >= 0, max_depth >= 1"):
        listops(**({"seed": 0, "num": 1} | wrong))
