"""A branch that no call takes does not run, even where it reads only what all calls share."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxrec as jr

SCRIPT = """
import jax, jax.numpy as jnp
import jaxrec as jr

def doubled(x):  # without end for zeros
    return jax.lax.while_loop(lambda v: jnp.max(v) < 1e6, lambda v: 2 * v, x)

@jr.rec_fn(max_calls=20)
def scalar(x, n):
    def on():
        return jr.cond(n == 0, lambda: doubled(x), lambda: scalar(x, n - 1) + 1)

    return jr.cond(x <= 0, lambda: jnp.float32(0), on)

@jr.rec_fn
def planned(w, kinds, i):
    branches = [lambda: w, lambda: jnp.tanh(planned(w, kinds, i + 1)), lambda: doubled(w)]
    return jr.switch(kinds[i], branches)

@jr.rec_fn(max_calls=20)
def stepped(w, x, n):
    def on():
        return jr.cond(jnp.sum(x) > 9, lambda: doubled(w), lambda: stepped(w, x / 2, n - 1))

    return jr.cond(n == 0, lambda: x, on)

@jax.custom_vjp
def fit(x):
    return doubled(x)

fit.defvjp(lambda x: (doubled(x), x), lambda x, g: (g * doubled(x),))

@jr.rec_fn
def fitted(w, kinds, i):
    branches = [lambda: 0 * w, lambda: jnp.tanh(fitted(w, kinds, i + 1)), lambda: fit(w)]
    return jr.switch(kinds[i], branches)

def gradient(*args):
    return jax.grad(lambda w: fitted(w, *args[1:]).sum())(args[0])

programs = {
    "gradient": (gradient, (jnp.zeros(4), jnp.array([1, 1, 0, 2]), 0)),
    "scalar": (scalar, (jnp.float32(0), 3)),
    "planned": (planned, (jnp.zeros(4), jnp.array([1, 1, 0, 2]), 0)),
    "stepped": (stepped, (jnp.zeros(4), jnp.zeros(4), 3)),
}
for kind, (run, args) in programs.items():
    for executor in ("graph", "host", "reference"):
        with jr.executor(executor):
            assert not run(*args).any()
        print(kind, executor, flush=True)
    assert not jax.jit(run)(*args).any()
    print(kind, "compiled", flush=True)
"""

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])


def test_loop_without_end() -> None:
    """In a process of its own, which can be stopped."""
    command = [sys.executable, "-c", SCRIPT]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    except subprocess.TimeoutExpired as stopped:
        pytest.fail(f"without end, after {stopped.stdout}")
    ways = ("graph", "host", "reference", "compiled")
    kinds = ("gradient", "scalar", "planned", "stepped")
    ended = [f"{kind} {way}" for kind in kinds for way in ways]
    assert done.stdout.splitlines() == ended, done.stderr


@executors
def test_call_of_python(executor: str) -> None:
    seen: list[float] = []

    def look(x: Any) -> Any:
        seen.append(float(x.sum()))
        return x

    @jr.rec_fn
    def f(x: Any, n: Any) -> Any:
        def called() -> Any:
            shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
            return jax.pure_callback(look, shape, x, vmap_method="sequential")

        return jr.cond(n < -5, called, lambda: jr.cond(n == 0, lambda: x, lambda: f(x, n - 1) + 1))

    with jr.executor(executor):
        assert float(f(1.0, 3)) == 4
        assert not seen
        assert float(f(1.0, -6)) == 1
    assert seen == [1.0]


@executors
def test_nan_that_nobody_sees(executor: str) -> None:
    @jr.rec_fn
    def f(x: Any, n: Any) -> Any:
        branches = [lambda: x, lambda: f(x, n - 1) + 1, lambda: jnp.log(x)]
        return jr.switch(jnp.clip(n, 0, 1), branches)

    with jr.executor(executor), jax.debug_nans(True):
        assert float(f(-1.0, 3)) == 2


@executors
def test_nan_that_only_a_residual_has(executor: str) -> None:
    """A cell that no call decides about runs for the base case too."""

    @jr.rec_fn
    def f(x: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: x, lambda: jnp.sin(f(x, n - 1)) * jnp.sqrt(n - 1.0))

    def slope(of: Any) -> Any:
        return jax.grad(lambda x: of(x, 3).sum())(jnp.ones(3))

    with jr.executor(executor), jax.debug_nans(True):
        assert not slope(f).any()
        with pytest.raises(FloatingPointError, match=r"nan"):
            slope(lambda x, n: f(x - jnp.inf, n))


def test_third_derivatives_where_some_examples_do_not_call() -> None:
    @jr.rec_fn(max_calls=50)
    def power(x: Any, n: Any) -> Any:
        return jr.cond(n == 1, lambda: jnp.sin(x), lambda: x * power(x, n - 1))

    def cube(p: Any, x: Any, n: Any) -> Any:
        return jnp.sum(jax.lax.cond(p, lambda: power(x, n), lambda: x * x * x))

    def plain(p: Any, x: Any, _: Any) -> Any:
        return jnp.sum(jnp.where(p, x * x * jnp.sin(x), x * x * x))

    def third(f: Any) -> Any:
        first = jax.grad(f, 1)
        second = jax.grad(lambda p, x, n: jnp.vdot(first(p, x, n), x), 1)
        return jax.vmap(jax.grad(lambda p, x, n: jnp.vdot(second(p, x, n), x), 1))

    given = jnp.array([True, False, True]), 1.5 * jnp.ones((3, 20)), jnp.array([3, 3, 3])
    for run in (third(cube), jax.jit(third(cube))):
        assert jnp.allclose(run(*given), third(plain)(*given), rtol=1e-4)
