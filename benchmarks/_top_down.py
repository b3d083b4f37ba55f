"""What the top-down benchmark runs: a model whose values make trees of a useful size."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import _top_down_loop as loop
from jaxrec import models
from jaxrec.data import DependencyForest

VOCABULARY = 1000
CONDITION = 16


class Task(NamedTuple):
    """A model and the trees that it generates, one for each vector.

    Attributes:
        model: its weights are those of all peers.
        condition: [trees, CONDITION].
        sizes: nodes of each tree.
        forest: the trees that are generated, nodes depth first.
    """

    model: models.TopDownTreeLSTM
    condition: jax.Array
    sizes: np.ndarray
    forest: DependencyForest


def make_model(hidden: int) -> models.TopDownTreeLSTM:
    """A model with random weights, scaled so that its decisions differ from node to node.

    A node then decides on about 1.5 nodes after it. Word vectors are as large as states.
    """
    model = models.TopDownTreeLSTM(VOCABULARY, hidden, hidden, CONDITION, rngs=nnx.Rngs(0))
    model.add.kernel[...] = model.add.kernel[...] * 6.0
    for edge in model.edges:
        edge.kernel[...] = edge.kernel[...] * 2.0
    return model


def make_task(model: models.TopDownTreeLSTM, condition: jax.Array, max_depth: int) -> Task:
    """What a model generates from some vectors."""
    made = model.generate(condition, max_depth)
    forest = made.forest()
    tree = np.asarray(made.tree)[np.asarray(made.valid)]
    return Task(model, condition, np.bincount(tree, minlength=len(condition)), forest)


def vectors(batch: int, seed: int) -> jax.Array:
    """What trees are generated from."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(batch, CONDITION)) * 2, jnp.float32)


def given(forest: DependencyForest) -> loop.Given:
    """The trees as the loop reads them: for each node, what it is generated from."""
    nodes, trees = forest.num_nodes, forest.num_trees
    origin, edge = np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)
    origin[np.asarray(forest.roots)], edge[np.asarray(forest.roots)] = nodes + np.arange(trees), 1
    for kind, links in enumerate((forest.left, forest.right)):
        at = np.flatnonzero(np.asarray(links) >= 0)
        origin[links[at]], edge[links[at]] = at, kind
    # A node comes after the one before it on its side, whose kind is known by then.
    for node in np.flatnonzero(np.asarray(forest.next) >= 0):
        following = int(forest.next[node])
        origin[following], edge[following] = node, 2 + edge[node] % 2
    words = np.append(np.asarray(forest.token), np.full(trees, VOCABULARY))
    return loop.Given(*map(jnp.asarray, (origin, edge, words[origin].astype(np.int32))))
