"""Buckets and minibatches."""

import dataclasses
from collections import Counter
from typing import Any, cast

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrec.data import (
    UNKNOWN,
    Tree,
    Vocabulary,
    batches,
    bucket,
    dependency_forest,
    listops,
    ordered_forest,
    pack,
    unpack,
)

TREES = listops(0, 103)
VOCABULARY = Vocabulary.build(TREES)
DUMMY = Tree(-1, UNKNOWN)


@given(st.integers(0, 10**7), st.integers(1, 100), st.floats(1.01, 4))
def test_buckets_hold_what_they_must_and_waste_little(n: int, base: int, ratio: float) -> None:
    size = bucket(n, base, ratio)
    assert size >= max(n, base)
    assert size == base or size < n * ratio + 1
    assert bucket(size, base, ratio) == size


@pytest.mark.parametrize("arguments", [(-1,), (1, 0), (1, 1, 1.0), (1, 1, float("inf"))])
def test_buckets_refuse(arguments: tuple) -> None:
    with pytest.raises(
        ValueError, match=r"bucket: got n=.*expected n >= 0, base >= 1 and a finite"
    ):
        bucket(*arguments)


def real_trees(batch) -> list[Tree]:
    found = unpack(batch.forest, VOCABULARY)
    real = int(batch.weight.sum())
    assert batch.weight.tolist() == [1.0] * real + [0.0] * (len(found) - real)
    assert found[real:] == [DUMMY] * (len(found) - real)
    return found[:real]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 120), st.integers(0, 5), st.integers(1, 4), st.booleans())
def test_an_epoch_has_every_tree_once_and_few_shapes(
    size: int, seed: int, max_shapes: int, packed: bool
) -> None:
    source = pack(TREES, VOCABULARY, pad_to=10_000) if packed else TREES
    epoch = list(batches(source, size, VOCABULARY, seed, max_shapes=max_shapes))
    assert len(epoch) == -(-len(TREES) // size)
    assert all(batch.forest.num_trees == size for batch in epoch)
    assert len({batch.forest.num_nodes for batch in epoch}) <= max_shapes
    found = [tree for batch in epoch for tree in real_trees(batch)]
    assert Counter(found) == Counter(TREES)
    shapes = {jax.tree.structure(batch) for batch in epoch}
    assert len(shapes) == 1


def test_sizes_are_buckets_and_default_to_four_shapes() -> None:
    epoch = list(batches(TREES, 1, VOCABULARY, 0))
    sizes = {batch.forest.num_nodes for batch in epoch}
    assert len(sizes) == 4
    assert all(bucket(size) == size for size in sizes)


def test_order_follows_the_generator_alone() -> None:
    def epoch(rng) -> list[Tree]:
        return [tree for batch in batches(TREES, 10, VOCABULARY, rng) for tree in real_trees(batch)]

    assert epoch(None) == TREES
    assert epoch(1) == epoch(np.random.default_rng(1))
    assert epoch(1) != epoch(2)


def test_the_generator_is_used_at_the_call() -> None:
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    first = batches(TREES, 10, VOCABULARY, rng)
    after = rng.bit_generator.state
    whole = [batch.forest.token for batch in first]
    assert rng.bit_generator.state == after != state
    rng.bit_generator.state = state
    again = [batch.forest.token for batch in batches(TREES, 10, VOCABULARY, rng)]
    assert all(np.array_equal(one, other) for one, other in zip(whole, again, strict=True))


def test_drop_last_leaves_the_rest_out() -> None:
    epoch = list(batches(TREES, 10, VOCABULARY, drop_last=True))
    assert len(epoch) == 10
    assert all(batch.weight.all() for batch in epoch)


def test_each_dummy_has_a_node_of_its_own() -> None:
    (batch,) = batches([Tree(3, "2")], 5, VOCABULARY)
    roots = np.asarray(batch.forest.roots)
    assert roots.tolist() == [0, 1, 2, 3, 4]
    assert batch.forest.token[:6].tolist() == [VOCABULARY.encode("2"), 0, 0, 0, 0, -1]
    assert batch.forest.label[:5].tolist() == [3, -1, -1, -1, -1]


def walked(forest, node: int) -> tuple:
    """A tree as nested tuples: what a node holds, then what each of its links leads to."""
    held = tuple(int(getattr(forest, name)[node]) for name in payload(forest))
    at = (int(getattr(forest, name)[node]) for name in forest.links)
    return held, *(None if k < 0 else walked(forest, k) for k in at)


def payload(forest) -> list[str]:
    return [name for name in forest.columns if name not in forest.links]


def random_forest(kind, seed: int):
    """Trees whose nodes are mixed up, roots included."""
    rng = np.random.default_rng(seed)
    parents: list[int] = []
    for _ in range(int(rng.integers(1, 9))):
        start = len(parents)
        parents += [-1] + [start + int(rng.integers(k)) for k in range(1, int(rng.integers(1, 9)))]
    number = rng.permutation(len(parents))
    parent = np.full(len(parents), -1)
    for node, above in enumerate(parents):
        parent[number[node]] = -1 if above < 0 else number[above]
    return kind(rng.integers(9, size=len(parent)), parent, pad_to=len(parent) + 3)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from([ordered_forest, dependency_forest]), st.integers(0, 99), st.integers(1, 10))
def test_forests_of_other_kinds(kind, seed: int, size: int) -> None:
    forest = random_forest(kind, seed)
    found = {}
    for batch in batches(forest, size, rng=seed):
        assert type(batch.forest) is type(forest)
        assert batch.forest.num_nodes >= 64
        for root, real, tree in zip(batch.forest.roots, batch.weight, batch.tree, strict=True):
            if real:
                assert tree not in found
                found[int(tree)] = walked(batch.forest, int(root))
            else:
                assert int(batch.forest.token[root]) == 0
                assert all(int(getattr(batch.forest, name)[root]) == -1 for name in forest.links)
    assert found == {k: walked(forest, int(root)) for k, root in enumerate(forest.roots)}


def test_a_forest_with_some_of_its_roots() -> None:
    forest = pack(TREES, VOCABULARY)
    some = dataclasses.replace(forest, roots=forest.roots[[7, 3, 50]])
    (batch,) = batches(some, 3)
    assert real_trees(batch) == [TREES[7], TREES[3], TREES[50]]


def test_batches_say_which_trees_they_have() -> None:
    for batch in batches(TREES, 10, VOCABULARY, 0):
        real = real_trees(batch)
        assert [TREES[k] for k in batch.tree[: len(real)]] == real
        assert not batch.tree[len(real) :].any()


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"got size=0, max_shapes=4, expected 1 or more"):
        batches(TREES, 0, VOCABULARY)
    with pytest.raises(ValueError, match=r"got size=1, max_shapes=0, expected 1 or more"):
        batches(TREES, 1, VOCABULARY, max_shapes=0)
    with pytest.raises(ValueError, match=r"got trees without a vocabulary; pass one, or a packed"):
        batches(TREES, 1)
    with pytest.raises(ValueError, match=r"got no trees"):
        batches([], 1, VOCABULARY)
    with pytest.raises(ValueError, match=r"got 103 trees, size=104 and drop_last=True"):
        batches(TREES, 104, VOCABULARY, drop_last=True)
    for wrong in (3, [1, 2]):
        with pytest.raises(TypeError, match=r"type int, expected a sequence of .*|trees\[0\] is 1"):
            batches(cast(Any, wrong), 1, VOCABULARY)


def test_nodes_in_several_places() -> None:
    forest = ordered_forest([1, 2, 3, 4], [-1, 0, 0, -1])
    for wrong in (
        dataclasses.replace(forest, roots=np.array([0, 0])),
        dataclasses.replace(forest, roots=np.array([0, 2])),
        dataclasses.replace(forest, child=np.array([1, 2, -1, -1])),
    ):
        with pytest.raises(ValueError, match=r"batches: node [02] is in several places"):
            batches(wrong, 1)
    with pytest.raises(ValueError, match=r"got arrays of the types .*'child': 'float.*integers"):
        batches(dataclasses.replace(forest, child=np.array([0.5, -1, -1, -1])), 1)
    with pytest.raises(ValueError, match="batches: got a forest without roots"):
        batches(dataclasses.replace(forest, roots=np.zeros(0, np.int32)), 1)
    with pytest.raises(ValueError, match="got 4 as child of a node in a forest of 4 nodes"):
        batches(dataclasses.replace(forest, child=np.array([4, -1, -1, -1])), 1)


@pytest.mark.parametrize("run", [lambda f: unpack(f, VOCABULARY), lambda f: batches(f, 1)])
def test_a_forest_whose_arrays_do_not_fit(run) -> None:
    forest = pack([Tree(0, "a"), Tree(1, "b")], VOCABULARY)
    for root in (2, -1):
        wrong = dataclasses.replace(forest, roots=np.array([0, root]))
        with pytest.raises(ValueError, match=f"got {root} as root in a forest of 2 nodes"):
            run(wrong)
    with pytest.raises(ValueError, match=r"of shapes .*'left': \(1,\).* one length for all"):
        run(dataclasses.replace(forest, left=forest.left[:1]))
