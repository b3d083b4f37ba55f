"""Trees of any arity as arrays."""

from __future__ import annotations

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
    with pytest.raises(ValueError, match="got pad_to=1, but there are 2 nodes"):
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
