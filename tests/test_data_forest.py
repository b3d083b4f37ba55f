"""Packing: round trips, padding, errors, and the forest as a JAX pytree."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrec.data import Forest, Tree, Vocabulary, pack, unpack

VOCABULARY = Vocabulary(["a", "b", "c"])
leaves = st.builds(Tree, st.integers(-1, 9), st.sampled_from("abc"))
trees = st.recursive(
    leaves,
    lambda kids: st.builds(
        lambda label, pair: Tree(label, children=pair), st.integers(-1, 9), st.tuples(kids, kids)
    ),
    max_leaves=15,
)
forests = st.lists(trees, min_size=1, max_size=6)


@settings(deadline=None)
@given(forests, st.integers(0, 20))
def test_pack_and_unpack_are_inverse(group: list[Tree], extra: int) -> None:
    nodes = sum(tree.num_nodes for tree in group)
    forest = pack(group, VOCABULARY, pad_to=nodes + extra)
    assert forest.num_nodes == nodes + extra
    assert forest.num_trees == len(group)
    assert unpack(forest, VOCABULARY) == group
    for column in (forest.label, forest.token, forest.left, forest.right):
        assert column.dtype == np.int32
        assert column.shape == (nodes + extra,)
        assert np.all(column[nodes:] == -1)
    assert forest.roots.dtype == np.int32


@settings(deadline=None)
@given(forests)
def test_the_documented_order(group: list[Tree]) -> None:
    forest = pack(group, VOCABULARY)
    numbers = np.arange(forest.num_nodes)
    assert np.all(forest.left < numbers)
    assert np.all(forest.right < numbers)
    assert np.array_equal(forest.left < 0, forest.token >= 0)
    assert np.array_equal(forest.left < 0, forest.right < 0)
    inner = numbers[np.asarray(forest.left) >= 0]
    assert np.array_equal(forest.right[inner], inner - 1)
    ends = np.cumsum([tree.num_nodes for tree in group])
    assert forest.roots.tolist() == (ends - 1).tolist()
    labels = [node.label for tree in group for node in tree.postorder()]
    assert forest.label.tolist() == labels


def test_a_small_forest_literally() -> None:
    tree = Tree(0, children=(Tree(1, "a"), Tree(2, children=(Tree(3, "b"), Tree(4, "what")))))
    forest = pack([tree, Tree(5, "c")], VOCABULARY, pad_to=7)
    assert forest.label.tolist() == [1, 3, 4, 2, 0, 5, -1]
    assert forest.token.tolist() == [1, 2, 0, -1, -1, 3, -1]
    assert forest.left.tolist() == [-1, -1, -1, 1, 0, -1, -1]
    assert forest.right.tolist() == [-1, -1, -1, 2, 3, -1, -1]
    assert forest.roots.tolist() == [4, 5]


def test_a_forest_is_a_pytree() -> None:
    forest = pack([Tree(1, "a")], VOCABULARY, pad_to=3)
    leaves, structure = jax.tree.flatten(forest)
    assert len(leaves) == 5
    assert isinstance(jax.tree.unflatten(structure, leaves), Forest)

    @jax.jit
    def shifted(given: Forest) -> Forest:
        assert given.num_nodes == 3
        return jax.tree.map(lambda column: column + jnp.int32(1), given)

    assert shifted(forest).label.tolist() == [2, 0, 0]
    on_device = jax.tree.map(jnp.asarray, forest)
    assert unpack(on_device, VOCABULARY) == [Tree(1, "a")]


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match=r"got no trees, expected at least one"):
        pack([], VOCABULARY)
    with pytest.raises(ValueError, match="pack: got no trees"):
        pack(iter([]), VOCABULARY)
    pair = Tree(1, children=(Tree(1, "a"), Tree(1, "b")))
    message = r"got pad_to=3, but there are 4 nodes in 2 trees; pass pad_to=4 or more, or None"
    with pytest.raises(ValueError, match=message):
        pack([pair, Tree(1, "a")], VOCABULARY, pad_to=3)
    triple = Tree(1, children=(Tree(1, "a"), Tree(1, "b"), Tree(1, "c")))
    message = r"tree 1 has a node with 3 children, expected 2; binarise .* The node: Tree\('\(1 "
    with pytest.raises(ValueError, match=message):
        pack([pair, triple], VOCABULARY)


@pytest.mark.parametrize(("left", "right"), [(0, -1), (-1, 0)])
def test_unpack_refuses_nodes_with_one_child(left: int, right: int) -> None:
    forest = pack([Tree(1, children=(Tree(0, "a"), Tree(0, "b")))], VOCABULARY)
    forest.left[2], forest.right[2] = left, right
    message = f"unpack: node 2 has left={left} and right={right}, expected two children or none"
    with pytest.raises(ValueError, match=message):
        unpack(forest, VOCABULARY)


def test_unpack_refuses_parents_before_children() -> None:
    none = np.full(1, -1, np.int32)
    forest = Forest(
        label=np.zeros(2, np.int32),
        token=np.zeros(2, np.int32),
        left=np.array([1, -1], np.int32),
        right=np.array([1, -1], np.int32),
        roots=none + 1,
    )
    message = r"node 0 has child 1, expected children before their parents; make .* with pack"
    with pytest.raises(ValueError, match=message):
        unpack(forest, VOCABULARY)
