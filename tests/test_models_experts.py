"""The hierarchical mixture of experts against plain recursion, and on a task that it learns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import jaxrec as jr
from jaxrec import models


def build(branches=2, depth=2, seed=0):
    model = models.HierarchicalExperts(3, 5, 2, branches=branches, depth=depth, rngs=nnx.Rngs(seed))
    key = jax.random.key(seed + 1)
    noisy = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(key, leaf.shape), nnx.state(model, nnx.Param)
    )
    nnx.update(model, noisy)
    return model


def plain(w, x, branches):
    """One input's output and expert, by Python recursion."""

    def below(gate, chance):
        if gate >= len(w.gates):
            k = gate - len(w.gates)
            hidden = jnp.maximum(x @ w.inner[k] + w.inner_biases[k], 0)
            return chance * (hidden @ w.outer[k] + w.outer_biases[k]), k
        scores = x @ w.gates[gate] + w.gate_biases[gate]
        best = int(np.argmax(jax.lax.stop_gradient(scores)))
        chances = jnp.exp(scores) / jnp.sum(jnp.exp(scores))
        return below(branches * gate + 1 + best, chance * chances[best])

    return below(0, 1.0)


@pytest.mark.parametrize(
    ("branches", "depth"), [pytest.param(2, 2, marks=pytest.mark.exhaustive), (3, 1)]
)
def test_values_and_gradients_equal_plain_recursion(branches, depth):
    weights = build(branches, depth).weights()
    xs = jax.random.normal(jax.random.key(3), (4, 3))
    routed = models.route.with_options(max_calls=4 * (depth + 1))
    mixture = jax.vmap(routed, (None, 0, None, None))

    def loss(weights, xs):
        result = mixture(weights, xs, jnp.int32(0), jnp.float32(1))
        return jnp.sum(result.output**2), result

    def plain_loss(weights, xs):
        results = [plain(weights, x, branches) for x in xs]
        outputs = jnp.stack([output for output, _ in results])
        return jnp.sum(outputs**2), (outputs, [k for _, k in results])

    grad = jax.grad(loss, (0, 1), has_aux=True)
    wanted, (outputs, chosen) = jax.grad(plain_loss, (0, 1), has_aux=True)(weights, xs)
    got, result = jax.jit(grad)(weights, xs)
    assert result.expert.tolist() == chosen
    assert len(set(chosen)) > 1
    np.testing.assert_allclose(result.output, outputs, rtol=1e-5, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, wanted)


def test_executors_agree():
    model, xs = build(), jax.random.normal(jax.random.key(5), (6, 3))
    wanted = model(xs)
    with jr.executor("reference"):
        got = model(xs)
    np.testing.assert_allclose(got.output, wanted.output, rtol=1e-5, atol=1e-6)
    assert got.expert.tolist() == wanted.expert.tolist()


def test_an_expert_that_is_not_chosen_does_not_run():
    """Its weights are NaN: neither values nor the gradients of the others notice."""
    model, x = build(), jnp.ones((1, 3))
    chosen = int(model(x).expert[0])
    for k, layer in enumerate(model.inner):
        if k != chosen:
            layer.kernel[...] = jnp.full_like(layer.kernel[...], jnp.nan)
    graph, state = nnx.split(model)
    gradient = jax.grad(lambda s: jnp.sum(nnx.merge(graph, s)(x).output))(state)
    assert np.isfinite(model(x).output).all()
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_learns_classes_of_a_checkerboard():
    """No linear expert does: the gates have to find regions."""
    rng = np.random.default_rng(0)

    def sample(size):
        x = rng.uniform(-2, 2, (size, 2)).astype(np.float32)
        return jnp.asarray(x), jnp.asarray(np.floor(x).sum(axis=1) % 2, jnp.int32)

    (x, y), (unseen, wanted) = sample(512), sample(512)
    model = models.HierarchicalExperts(2, 16, 2, rngs=nnx.Rngs(1))
    optimizer = nnx.Optimizer(model, optax.adam(0.02), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            entropy = optax.softmax_cross_entropy_with_integer_labels(model(x).output, y)
            return jnp.mean(entropy)

        value, gradient = nnx.value_and_grad(loss)(model)
        optimizer.update(model, gradient)
        return value

    losses = [float(step(model, optimizer)) for _ in range(300)]
    assert losses[-1] < 0.4 * losses[0]
    routed = model(unseen)
    assert (routed.output.argmax(axis=1) == wanted).mean() > 0.85  # 0.86 to 0.93 by seed
    assert len(set(routed.expert.tolist())) > 2


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="got branches=1, expected 2 or more"):
        models.HierarchicalExperts(2, 3, 1, branches=1, rngs=nnx.Rngs(0))
    with pytest.raises(TypeError, match=r"HierarchicalExperts: got branches=2\.5, expected an int"):
        models.HierarchicalExperts(2, 3, 1, branches=2.5, rngs=nnx.Rngs(0))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="got depth=0, expected 1 or more"):
        models.HierarchicalExperts(2, 3, 1, depth=0, rngs=nnx.Rngs(0))


def test_an_input_of_another_shape():
    for shape in ((3,), (5, 4)):
        message = rf"HierarchicalExperts: got x of shape \({shape[0]},.*expected \[batch, 3\]"
        with pytest.raises(ValueError, match=message):
            build()(jnp.ones(shape))


def test_gates_decide_however_many_there_are():
    model = models.HierarchicalExperts(64, 1, 1, depth=6, rngs=nnx.Rngs(0))
    assert np.std(model.gates[...]) == pytest.approx(1, rel=0.1)


def test_of_other_types_and_under_vmap():
    model = build()
    x = jax.random.normal(jax.random.key(3), (4, 5, 3))
    together = jax.vmap(lambda x: model(x, max_calls=4 * 5 * 3))(x)
    for one, output in zip(x, together.output, strict=True):
        np.testing.assert_allclose(output, model(one).output, rtol=1e-5)
    assert model(x[0].astype(jnp.bfloat16)).output.dtype == jnp.float32
    assert model(jnp.ones((2, 3), jnp.int32)).output.dtype == jnp.float32
