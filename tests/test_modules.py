"""Modules of flax in bodies: what is pure works, and what is not is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import errors, linen, nnx
from waves import in_waves

import jaxrec as jr


def test_a_module_that_a_body_changes():
    class Layer(nnx.Module):
        def __init__(self):
            self.drop = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

        @jr.rec_fn
        def down(self, x, n):
            return jr.cond(n <= 0, lambda: x, lambda: self.drop(self.down(x, n - 1)))

        @jr.rec_fn
        def first(self, x, n):
            y = self.drop(x)
            return jr.cond(n <= 0, lambda: y, lambda: self.first(y, n - 1))

    message = r"down changes a module .* pure, .* Pass randomness as a key: dropout takes jaxrec"
    with pytest.raises(jr.UnsupportedError, match=message):
        Layer().down(jnp.ones(3), 2)
    with pytest.raises(jr.UnsupportedError, match="first changes its argument self in place"):
        Layer().first(jnp.ones(3), 2)


def drop(rngs):
    return nnx.Dropout(0.5, rngs=rngs)


@pytest.mark.parametrize(
    ("given", "draw"),
    [
        (nnx.Rngs(0), lambda rngs: jax.random.normal(rngs.dropout(), (3,))),
        ({"drop": drop(nnx.Rngs(0))}, lambda given: given["drop"](jnp.ones(3))),
        ([drop(nnx.Rngs(0)), 1.0], lambda given: given[0](jnp.ones(3))),
    ],
)
def test_an_argument_that_holds_what_a_body_changes(given, draw):
    @jr.rec_fn
    def noisy(given, n):
        y = draw(given)
        return jr.cond(n <= 0, lambda: y, lambda: y + noisy(given, n - 1))

    with pytest.raises(jr.UnsupportedError, match=r"noisy changes its argument given in place, a "):
        noisy(given, 2)


def test_modules_as_operands_of_a_choice():
    layer, x = nnx.Linear(3, 3, rngs=nnx.Rngs(1)), jnp.arange(3.0)

    def both(layer, x):
        return nnx.vmap(lambda m, x: m(x), in_axes=(None, 0))(layer, jnp.stack([x, -x])).sum(0)

    def descend(layer, x):
        return x - 0.1 * nnx.grad(lambda m, x: jnp.sum(m(x) ** 2), argnums=1)(layer, x)

    for step in (both, descend):

        @jr.rec_fn(static_argnums=0)
        def f(step, layer, x, n):
            def more(layer, x):
                return f(step, layer, step(layer, x), n - 1)

            return jr.cond(n == 0, lambda layer, x: x, more, layer, x)

        np.testing.assert_allclose(f(step, layer, x, 2), step(layer, step(layer, x)), rtol=1e-5)

    @jr.rec_fn
    def g(given, n):
        return jr.cond(n == 0, lambda d: jnp.ones(3), lambda d: d(g(given, n - 1)), given)

    with pytest.raises(jr.UnsupportedError, match="g changes an operand of a branch in place"):
        g(drop(nnx.Rngs(0)), 2)


def test_a_transformation_of_a_module_that_a_branch_closes_over():
    @jr.rec_fn
    def f(layer, x, n):
        def more():
            return nnx.vmap(lambda m, x: m(x), in_axes=(None, 0))(layer, f(layer, x, n - 1))

        return jr.cond(n == 0, lambda: x, more)

    with pytest.raises(ValueError, match="different trace level") as caught:
        f(nnx.Linear(3, 3, rngs=nnx.Rngs(1)), jnp.ones((2, 3)), 2)
    assert any("operands of jaxrec.cond" in note for note in caught.value.__notes__)


class Deep(linen.Module):
    """A layer that calls itself; its variables are made before it does."""

    def setup(self):
        self.dense = linen.Dense(2)

    @jr.rec_fn
    def go(self, x, n):
        return jr.cond(n == 0, lambda: x, lambda: jnp.tanh(self.dense(self.go(x, n - 1))))

    def __call__(self, x, n, *, first=False):
        if first and self.is_initializing():
            return self.dense(x)
        return self.go(x, n)


def test_layers_of_linen():
    x = jnp.ones(2)
    variables = Deep().init(jax.random.key(0), x, 2, first=True)
    own = {"params": variables["params"]["dense"]}

    def dense(x: Any) -> Any:
        return linen.Dense(2).apply(own, x)

    found: Any = Deep().apply(variables, x, 2)
    np.testing.assert_allclose(found, jnp.tanh(dense(jnp.tanh(dense(x)))), rtol=1e-6)
    with pytest.raises(jr.UnsupportedError, match=r"go is called while .* initialises Deep"):
        Deep().init(jax.random.key(0), x, 2)


def test_a_layer_of_linen_that_a_body_closes_over():
    layer: Any = linen.Dense(2)
    x = jnp.ones(2)
    variables = layer.init(jax.random.key(0), x)

    def last(variables: Any, n: int) -> Any:
        @jr.rec_fn
        def go(n):
            return jr.cond(n == 0, lambda: x, lambda: jnp.tanh(layer.apply(variables, go(n - 1))))

        return go(n)

    def twice(variables: Any) -> Any:
        return jnp.tanh(layer.apply(variables, jnp.tanh(layer.apply(variables, x))))

    np.testing.assert_allclose(last(variables, 2), twice(variables), rtol=1e-6)
    found = jax.grad(lambda v: last(v, 2).sum())(variables)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
        found,
        jax.grad(lambda v: twice(v).sum())(variables),
    )


class Noisy(linen.Module):
    """Layers that draw or write in a body: once a trace, not once a call."""

    kind: str

    @linen.compact
    def __call__(self, n, key):
        layer: Any = linen.Dropout(0.5) if self.kind != "norm" else linen.BatchNorm()

        def make(key):  # closes over the layer for the body
            if self.kind == "norm":
                return layer(jnp.ones((2, 3)), use_running_average=False)[0]
            if self.kind == "sow":
                self.sow("intermediates", "n", n)
            rng = None if self.kind == "drop" else jr.call_key(key)
            return layer(jnp.ones(3), deterministic=False, rng=rng)

        @jr.rec_fn
        def noisy(n, key):
            y = make(key)
            return jr.cond(n <= 0, lambda: y, lambda: y + 10 * noisy(n - 1, key))

        return noisy(n, key)


@pytest.mark.parametrize("kind", ["drop", "sow", "norm"])
def test_what_linen_keeps_is_not_changed(kind):
    key = jax.random.key(0)
    variables = {
        "batch_stats": {"BatchNorm_0": {"mean": jnp.zeros(3), "var": jnp.ones(3)}},
        "params": {"BatchNorm_0": {"scale": jnp.ones(3), "bias": jnp.zeros(3)}},
    }
    with pytest.raises(jr.UnsupportedError, match=r"noisy changes what flax\.linen keeps of"):
        Noisy(kind).apply(
            variables, 2, key, rngs={"dropout": key}, mutable=["intermediates", "batch_stats"]
        )


class Inside(linen.Module):
    """Layers are made in the body, or stand in a list."""

    kind: str

    @linen.compact
    def __call__(self, n):
        kind = self.kind
        listed: list[Any] = [linen.Dropout(0.5, deterministic=False), linen.Dense(3)]

        def layer(x):
            made: Any = linen.Dropout(0.5, deterministic=False)
            if kind == "dense":
                made = linen.Dense(3)
            return (listed[kind == "listed dense"] if "listed" in kind else made)(x)

        @jr.rec_fn
        def noisy(n):
            return jr.cond(n == 0, lambda: layer(jnp.ones(3)), lambda: noisy(n - 1) * 2)

        return noisy(n)


@pytest.mark.parametrize("kind", ["dropout", "dense", "listed dropout", "listed dense"])
def test_layers_that_are_made_in_a_body(kind):
    def run():
        return Inside(kind).init_with_output(
            {"params": jax.random.key(0), "dropout": jax.random.key(1)}, jnp.int32(2)
        )

    with pytest.raises(jr.UnsupportedError, match=r"noisy changes what flax\.linen keeps of"):
        run()


def test_a_layer_that_has_another_name_each_time():
    class Named(linen.Module):
        @linen.compact
        def __call__(self, n):
            @jr.rec_fn
            def go(n):
                layer: Any = linen.Dense(3, name="d")
                return jr.cond(n == 0, lambda: jnp.ones(3), lambda: layer(go(n - 1)))

            return go(n)

    weights = {"params": {"d": {"kernel": jnp.eye(3), "bias": jnp.zeros(3)}}}
    with pytest.raises(errors.FlaxError, match='"d"') as caught:
        Named().apply(weights, jnp.int32(2))
    assert "This is from the body of go" in "".join(caught.value.__notes__)


def test_a_recursion_that_makes_no_layers_in_a_module():
    class Weighed(linen.Module):
        @linen.compact
        def __call__(self, n):
            w = self.param("w", linen.initializers.ones, (3,))

            @jr.rec_fn
            def go(w, n):
                return jr.cond(n == 0, lambda: w, lambda: in_waves(go(w, n - 1) * 2))

            return go(w, n)

    made, variables = Weighed().init_with_output(jax.random.key(0), jnp.int32(2))
    np.testing.assert_allclose(made, 4 * jnp.ones(3))
    assert [x.shape for x in jax.tree.leaves(variables)] == [(3,)]


def test_dropout_of_linen_with_keys():
    key = jax.random.key(0)
    found: Any = Noisy("key").apply({}, 2, key, rngs={"dropout": key})
    with jr.executor("reference"):
        np.testing.assert_array_equal(found, Noisy("key").apply({}, 2, key, rngs={"dropout": key}))
    assert len(set(np.asarray(found).tolist())) > 1  # calls have masks of their own
