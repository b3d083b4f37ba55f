"""Functions with derivative rules of their own in scalar recursion on the native machine."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import in_turn
from native_programs import is_native
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])


@jax.custom_jvp
def crooked(x: Any) -> Any:
    """Its rule gives the wrong slope, and computes the value in a way that has another slope."""
    return jnp.where(x > 0, x * x, -x)


@crooked.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    value = jax.lax.cond(x > 0, lambda: x * jax.lax.stop_gradient(x), lambda: -x)
    return value, 3 * x * x * t


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 1.5


clipped.defvjp(lambda x: (clipped(x), x), lambda x, g: (jnp.clip(g, -0.5, 0.5) * x,))


def bent(lang: Language) -> Any:
    @lang.rec_fn
    def bent(x, n):
        return lang.cond(n == 0, lambda: x, lambda: 0.5 * crooked(bent(x - 0.3, n - 1)) + 0.1)

    return bent


def in_a_loop(lang: Language) -> Any:
    @lang.rec_fn
    def in_a_loop(x, n):
        def below():
            y = in_a_loop(x * 0.9, n - 1)
            return lang.fori_loop(0, 3, lambda k, y: 0.3 * crooked(y) + 0.1 * k, y)

        return lang.cond(n == 0, lambda: x, below)

    return in_a_loop


def softened(lang: Language) -> Any:
    """Functions of JAX with rules, one in another, and a checkpoint."""

    @lang.rec_fn
    def softened(x, n):
        def below():
            y = jax.checkpoint(lambda x: jax.nn.gelu(jax.nn.silu(x) + x))(softened(x, n - 1))
            return jnp.logaddexp(y, jax.nn.relu(x - n)) + jax.nn.softplus(jax.nn.log_sigmoid(y))

        return lang.cond(n == 0, lambda: jax.nn.elu(x), below)

    return softened


PROGRAMS = {bent: 1.7, in_a_loop: 0.8, softened: 0.6}
programs = pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)


class TestPrograms:
    @programs
    def test_is_native(self, build):
        assert is_native(build(JAXREC), PROGRAMS[build], 2)

    @pytest.mark.parametrize(("build", "executor"), in_turn(PROGRAMS))
    def test_derivatives_of_all_orders(self, build, executor):
        native, python, x = build(JAXREC), build(PYTHON), jnp.float32(PROGRAMS[build])
        for order in range(3):
            want = python(x, 2)
            with jr.executor(executor):
                assert_close(native(x, 2), want, 1e-4 if order else 1e-5)
            native, python = (
                jax.grad(native) if order % 2 else jax.jacfwd(native),
                jax.grad(python),
            )

    @programs
    def test_compiled_without_a_bound(self, build):
        native, python, x = build(JAXREC), build(PYTHON), jnp.float32(PROGRAMS[build])
        found = jax.jit(jax.vmap(jax.value_and_grad(native), (0, None)))(x + jnp.arange(3.0), 2)
        want = [jax.value_and_grad(python)(x + k, 2) for k in range(3)]
        assert_close(found, jax.tree.map(lambda *y: jnp.stack(y), *want), 1e-5)
        twice = jax.jit(jax.grad(jax.grad(native)))(x, 2)
        assert_close(twice, jax.grad(jax.grad(python))(x, 2), 1e-4)


@executors
def test_a_rule_for_reverse_mode(executor: str) -> None:
    def build(lang: Language) -> Any:
        @lang.rec_fn(max_calls=9)
        def f(x, n):
            return lang.cond(n == 0, lambda: x, lambda: clipped(f(x, n - 1)) + jnp.sin(x))

        return f

    native, python = build(JAXREC), build(PYTHON)
    assert is_native(native, 0.3, 2)
    with jr.executor(executor):
        assert_close(jax.value_and_grad(native)(0.3, 2), jax.value_and_grad(python)(0.3, 2), 1e-5)
        assert_close(jax.grad(jax.grad(native))(0.3, 2), jax.grad(jax.grad(python))(0.3, 2), 1e-4)


def test_a_rule_of_what_all_calls_read():
    """A matrix fits no registers; it is computed before."""

    @jr.rec_fn
    def f(w, i):
        return jr.cond(i < 1, lambda: 0.0, lambda: jax.nn.relu(w)[i, 2] + f(w, i - 1))

    w = jnp.asarray(np.random.default_rng(0).normal(size=(20, 20)), jnp.float32)
    assert is_native(f, w, 5)
    assert_close(f(w, 19), jax.nn.relu(w)[1:, 2].sum(), 1e-5)
    assert_close(jax.grad(f)(w, 19), jax.grad(lambda w: jax.nn.relu(w)[1:, 2].sum())(w), 1e-6)
