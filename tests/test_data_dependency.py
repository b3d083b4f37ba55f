"""Dependency trees as arrays."""

from __future__ import annotations

import numpy as np
import pytest

from jaxrec import data


def random_projective(rng, size):
    """Heads of a sentence whose words below a word are next to one another."""
    head = [-1] * size

    def attach(start, end, above):
        if start >= end:
            return
        root = int(rng.integers(start, end))
        head[root] = above
        middle_left = int(rng.integers(start, root + 1))
        middle_right = int(rng.integers(root + 1, end + 1))
        for low, high in ((start, middle_left), (middle_left, root)):
            attach(low, high, root)
        for low, high in ((root + 1, middle_right), (middle_right, end)):
            attach(low, high, root)

    attach(0, size, -1)
    return head


def test_sentences_come_back():
    rng = np.random.default_rng(0)
    sentences = [
        (rng.integers(0, 9, n).tolist(), random_projective(rng, n)) for n in (1, 2, 5, 9, 20)
    ]
    token, head = [], []
    for words, heads in sentences:
        head += [h if h < 0 else h + len(token) for h in heads]
        token += words
    forest = data.dependency_forest(token, head, pad_to=len(token) + 2)
    assert forest.num_trees == 5
    assert forest.num_nodes == len(token) + 2
    assert data.dependency_lists(forest) == sentences


def test_dependents_are_listed_from_the_head_outwards():
    forest = data.dependency_forest([0, 1, 2, 3, 4], [2, 2, -1, 2, 2])
    assert (forest.left[2], forest.next[1], forest.next[0]) == (1, 0, -1)
    assert (forest.right[2], forest.next[3], forest.next[4]) == (3, 4, -1)


def test_what_is_no_tree_is_an_error():
    with pytest.raises(ValueError, match="dependency_forest: node 0 has no root above it"):
        data.dependency_forest([1, 2], [1, 0])
    with pytest.raises(ValueError, match="dependency_forest: the head of node 0 is -2"):
        data.dependency_forest([1], [-2])
