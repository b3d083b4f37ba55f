"""Trees of any arity as arrays."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from jaxrec import data


def children_of(forest, i):
    found, child = [], int(forest.child[i])
    while child >= 0:
        found.append(child)
        child = int(forest.sibling[child])
    return found


def test_lists_of_children_are_those_of_the_parents():
    rng = np.random.default_rng(0)
    for nodes in (1, 2, 7, 60):
        # Any numbering: parents may come before or after their children.
        number = rng.permutation(nodes)
        parent = np.full(nodes, -1)
        for k in range(1, nodes):
            above = int(rng.integers(-1, k))
            parent[number[k]] = -1 if above < 0 else number[above]
        forest = data.ordered_forest(np.arange(nodes), parent, pad_to=nodes + 3)
        for i in range(nodes):
            assert children_of(forest, i) == np.flatnonzero(parent == i).tolist()
        assert forest.roots.tolist() == np.flatnonzero(parent < 0).tolist()
        assert (forest.child[nodes:] == -1).all()
        assert (forest.sibling[forest.roots] == -1).all()
        assert forest.num_nodes == nodes + 3


def test_labels_and_tokens_are_kept():
    forest = data.ordered_forest([5, 6], [1, -1], label=[2, 3], pad_to=3)
    assert forest.token.tolist() == [5, 6, -1]
    assert forest.label.tolist() == [2, 3, -1]
    assert forest.num_trees == 1


@pytest.mark.parametrize(
    ("parent", "message"),
    [
        ([-1, 2], "parent of node 1 is 2, expected -1 for a root or a node below 2"),
        ([-1, -2], "parent of node 1 is -2"),
        ([1, 0], "node 0 has no root above it"),
        ([-1, 1], "node 1 has no root above it"),
        ([-1], r"token has shape \(2,\), expected \(1,\)"),
    ],
)
def test_what_is_no_tree_is_an_error(parent, message):
    with pytest.raises(ValueError, match=message):
        data.ordered_forest([1, 2], parent)


def test_no_nodes_and_too_little_room_are_errors():
    with pytest.raises(ValueError, match="got no root"):
        data.ordered_forest([], [])
    with pytest.raises(ValueError, match="got pad_to=1, but there are 2 nodes in 1 trees"):
        data.ordered_forest([1, 2], [-1, 0], pad_to=1)


@pytest.mark.parametrize(
    ("token", "parent", "message"),
    [
        ([1, 2], [-1, 0.7], r"parent is float64\[2\], expected an integer for each node"),
        ([1, 2], [[-1], [0]], r"parent is int64\[2, 1\], expected an integer"),
        (["a", "b"], [-1, 0], r"token is <U1\[2\], expected an integer"),
        ([1 << 40, 2], [-1, 0], r"the token of node 0 is 1099511627776, beyond 32 bits"),
    ],
)
@pytest.mark.parametrize("forest", [data.ordered_forest, data.dependency_forest])
def test_numbers_that_are_no_numbers_of_nodes(forest, token, parent, message):
    with pytest.raises(ValueError, match=message.replace("parent", "(parent|head)")):
        forest(token, parent)


def test_trees_of_any_arity():
    words = tuple(data.Tree(k, word) for k, word in enumerate("abc"))
    trees = [
        data.Tree(3, children=(words[0], data.Tree(-1, children=words), words[2])),
        words[1],
    ]
    forest = data.pack_ordered(trees, data.Vocabulary(["a", "c"]), pad_to=9)
    assert forest.roots.tolist() == [0, 7]
    assert forest.token.tolist() == [-1, 1, -1, 1, 0, 2, 2, 0, -1]
    assert forest.label.tolist() == [3, 0, -1, 0, 1, 2, 2, 1, -1]
    assert children_of(forest, 0) == [1, 2, 6]
    assert children_of(forest, 2) == [3, 4, 5]


def test_a_chain_is_packed_without_recursion():
    tree = data.Tree(0, "a")
    for _ in range(20_000):
        tree = data.Tree(1, children=(tree,))
    forest = data.pack_ordered([tree], data.Vocabulary(["a"]))
    assert forest.child.tolist() == [*range(1, 20_001), -1]


def test_what_is_no_tree_is_not_packed():
    vocabulary = data.Vocabulary(["a"])
    with pytest.raises(ValueError, match="pack_ordered: got no trees"):
        data.pack_ordered([], vocabulary)
    with pytest.raises(TypeError, match=r"pack_ordered: trees\[0\] is 'a', expected a jaxrec"):
        data.pack_ordered(cast(Any, ["a"]), vocabulary)
    with pytest.raises(ValueError, match="pack_ordered: got pad_to=0, but"):
        data.pack_ordered([data.Tree(0, "a")], vocabulary, pad_to=0)
