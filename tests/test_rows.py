"""A wave computes more rows than it has calls: what that must not be seen by."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])
LENGTHS = jnp.array([1, 5, 9, 2, 7])


class Seen:
    """The values that a function of Python was called with."""

    def __init__(self) -> None:
        self.values: set[float] = set()

    def look(self, x: Any) -> Any:
        def looked(x: Any) -> Any:
            self.values.add(float(x))
            return x

        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(looked, shape, x, vmap_method="sequential")


@executors
def test_python_sees_calls_alone(executor: str) -> None:
    seen = Seen()

    @jr.rec_fn
    def f(w: Any, n: Any) -> Any:
        def on() -> Any:
            rest = f(w, n - 1)
            return 0 * rest + seen.look(rest[0])

        return jr.cond(n < 1, lambda: w + 3, on)

    with jr.executor(executor):
        made = jax.vmap(f, (None, 0))(jnp.zeros(2), LENGTHS)
    np.testing.assert_array_equal(made, np.full((5, 2), 3.0))
    assert seen.values == {3.0}


@executors
def test_python_sees_calls_alone_in_reverse(executor: str) -> None:
    """Also where nothing in front of the derivative tells that it calls Python."""
    seen = Seen()

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, x), lambda x, ct: (2 * ct + 0 * seen.look(x + ct),))

    @jr.rec_fn
    def f(w: Any, x: Any, n: Any) -> Any:
        return jr.cond(n < 1, lambda: w * x, lambda: doubled(f(w, x, n - 1)) / 2)

    def loss(w: Any) -> Any:
        return jnp.sum(jax.vmap(f, (None, None, 0))(w, jnp.float32(3), LENGTHS[:3]))

    with jr.executor(executor):
        value, slope = jax.value_and_grad(loss)(jnp.float32(5))
    assert (float(value), float(slope)) == (45.0, 9.0)
    assert seen.values == {15.5}


@pytest.mark.parametrize("policy", ["adaptive", "batch"])
def test_no_cost_is_measured_on_values_that_no_call_has(policy: str, monkeypatch: Any) -> None:
    seen = Seen()
    monkeypatch.setattr("jaxrec.executors.host._schedule.pays", lambda *_: True)

    @jr.rec_fn
    def f(w: Any, n: Any) -> Any:
        return jr.cond(n < 1, lambda: w + 3, lambda: seen.look(1 + f(w, n - 1)) - 1)

    with jr.executor("host", policy=policy, workers=2):
        made = jax.vmap(f, (None, 0))(jnp.float32(0), LENGTHS)
    np.testing.assert_array_equal(made, np.full(5, 3.0))
    assert seen.values == {4.0}


@pytest.mark.parametrize("stepped", [False, True])
def test_a_pullback_that_jit_closes_over(stepped: bool) -> None:
    """The schedule is a constant then, and the contraction a loop whose length XLA knows."""

    @jr.rec_fn(max_calls=8)
    def f(w: Any, x: Any, i: Any) -> Any:
        last = jnp.sum(x) * (i == 0) > 0 if stepped else i == 0
        return jr.cond(last, lambda: w * x, lambda: jnp.sin(f(w, x, i - 1) * w))

    _, pull = jax.vjp(lambda w, x: f(w, x, 2), jnp.ones(3), jnp.arange(3.0))
    for made, expected in zip(jax.jit(pull)(jnp.ones(3)), pull(jnp.ones(3)), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)
