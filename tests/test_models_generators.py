"""What models that generate trees share: losses of minibatches."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxrec import data, models

TOKEN = [0, 1, 2, 3, 1, 2, 0, 3, 1]
PARENT = [-1, 0, 0, -1, 3, 4, -1, -1, 7]
TREES = 4

KINDS = {
    "drnn": (models.DRNN, data.ordered_forest),
    "top_down": (models.TopDownTreeLSTM, data.dependency_forest),
}


@pytest.mark.parametrize("kind", ["top_down", pytest.param("drnn", marks=pytest.mark.exhaustive)])
def test_minibatches_add_up(kind):
    make, forest_of = KINDS[kind]
    model, forest = make(4, 3, 5, 2, rngs=nnx.Rngs(0)), forest_of(TOKEN, PARENT)
    vectors = jax.random.normal(jax.random.key(0), (TREES, 2))
    whole, gradient = nnx.value_and_grad(lambda model: model.loss(forest, vectors))(model)
    sums = jax.tree.map(jnp.zeros_like, (whole, gradient))
    for batch in data.batches(forest, 3, rng=0):

        def loss(model, batch=batch):
            mean = model.loss(batch.forest, vectors[batch.tree], batch.weight)
            return mean * batch.weight.sum() / TREES

        sums = jax.tree.map(jnp.add, sums, nnx.value_and_grad(loss)(model))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
        sums,
        (whole, gradient),
    )


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_trees_and_vectors(kind):
    make, forest_of = KINDS[kind]
    model, forest = make(4, 3, 5, 2, rngs=nnx.Rngs(0)), forest_of(TOKEN, PARENT)
    other = {"drnn": data.dependency_forest, "top_down": data.ordered_forest}[kind](TOKEN, PARENT)
    with pytest.raises(TypeError, match=rf"{make.__name__} reads a .*got an object of type"):
        model.loss(other, jnp.ones((TREES, 2)))
    with pytest.raises(ValueError, match=r"condition of shape \(4,\), expected \[trees, 2\]"):
        model.loss(forest, jnp.ones(TREES))
    with pytest.raises(ValueError, match=r"condition of shape \(4, 3\), expected \[trees, 2\]"):
        model.generate(jnp.ones((TREES, 3)), 2, *([3] if kind == "drnn" else []))
    with pytest.raises(ValueError, match=r"condition of shape \(3, 2\) for 4 trees"):
        model.loss(forest, jnp.ones((3, 2)))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_zero_or_too_few(kind):
    make, forest_of = KINDS[kind]
    model, forest = make(4, 3, 5, 2, rngs=nnx.Rngs(0)), forest_of(TOKEN, PARENT)
    vectors = jnp.ones((TREES, 2))
    assert model.loss(forest, vectors, jnp.zeros(TREES)) == 0
    with pytest.raises(ValueError, match=r"weight of shape \(2,\), expected \(4,\), one number"):
        model.loss(forest, vectors, jnp.ones(2))
