"""Choices and loops of JAX in the lanes of a `vmap` inside a body, and what they leave of JAX."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from waves import sine
from zoo import JAXREC, PYTHON, assert_close

import jaxrec as jr
from jaxrec._compat import _rules
from jaxrec.trace._lanes import lanes_apart

_UNCHANGED = """
import jax
from jax._src.interpreters import ad, batching, mlir

tables = [ad.primitive_jvps, ad.primitive_transposes, batching.fancy_primitive_batchers,
          mlir._lowerings]
before, settings = [dict(t) for t in tables], dict(jax.config.values)
import jaxrec
for old, new in zip(before, tables):
    assert not [p for p in old if new[p] is not old[p]]
assert dict(jax.config.values) == settings
"""


def rules() -> list[Any]:
    """What batches the choices and loops of JAX now."""
    table = vars(_rules)["_batching"].fancy_primitive_batchers
    return [table[jax.lax.cond_p], table[jax.lax.while_p]]


def of_jax() -> bool:
    return all(rule.__module__.startswith("jax.") for rule in rules())


def test_importing_changes_nothing_of_jax():
    subprocess.run([sys.executable, "-c", _UNCHANGED], check=True, timeout=120)


def test_rules_are_replaced_while_a_body_is_traced():
    seen = []

    @jr.rec_fn
    def f(x, n):
        seen.append(of_jax())
        return jr.cond(n == 0, lambda: x, lambda: f(sine(x), n - 1))

    f(1.0, 3)
    assert seen
    assert not any(seen)
    assert of_jax()


def test_rules_are_put_back_after_an_error():
    @jr.rec_fn
    def f(x):
        raise KeyError("a user's error")

    with pytest.raises(KeyError, match="a user's error"):
        f(1.0)
    assert of_jax()


def test_rules_stay_while_another_thread_traces():
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lanes_apart():
            entered.set()
            leave.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    entered.wait(60)
    with lanes_apart():
        pass
    assert not of_jax()
    leave.set()
    other.join()
    assert of_jax()


def test_one_branch_in_the_lanes_of_two_vmaps():
    """JAX traces a branch once: the second `vmap` meets calls that nobody stages anew."""

    def build(lang: Any) -> Any:
        cond = jax.lax.cond if lang is JAXREC else lang.cond

        @lang.rec_fn(out=jax.ShapeDtypeStruct((), jnp.float32), max_calls=512)
        def f(x, n):
            def base(y, k):
                return y * 0.5

            def call(y, k):
                return sine(f(y, k - 1))

            def each(y, k):
                return cond(k <= 0, base, call, y, k)

            rows = jnp.stack([x, x + 1])
            first = lang.vmap(each)(rows, jnp.stack([n, n - 1]))
            second = lang.vmap(lambda y: each(y, n - 2))(rows)
            third = lang.vmap(each, (None, 0))(x, jnp.stack([n - 1, n - 2]))
            return first.sum() * second.sum() + third[0] * third[1]

        return f

    ours, plain = build(JAXREC), build(PYTHON)
    args = jnp.float32(0.7), jnp.int32(3)
    assert_close(ours(*args), plain(*args), 1e-5)
    assert_close(jax.grad(ours)(*args), jax.grad(plain)(*args), 1e-4)


def test_lanes_without_calls_are_batched_by_jax():
    """A choice without calls is one selection in a body, as everywhere."""

    @jr.rec_fn
    def f(x, n):
        def each(y):
            return jax.lax.cond(y > 0, jnp.sin, jnp.cos, y)

        return jr.cond(n == 0, lambda: jax.vmap(each)(x), lambda: f(0.5 * x, n - 1))

    text = str(f.graph(jnp.ones(3), 2))
    assert "select_n" in text
    assert_close(f(jnp.array([4.0, -4.0]), 2), jnp.array([jnp.sin(1.0), jnp.cos(-1.0)]), 1e-6)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("lanes", [0, 2])
def test_a_pullback_of_no_cotangents(executor: str, lanes: int) -> None:
    @jr.rec_fn
    def power(w: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: jnp.ones(2), lambda: w * power(w, n - 1))

    with jr.executor(executor):
        exponents = jnp.full(lanes, 2)
        made, pull = jax.vjp(lambda w: jax.vmap(power, (None, 0))(w, exponents), jnp.ones(2))
        assert jax.vmap(pull)(jnp.ones((0, *made.shape)))[0].shape == (0, 2)
        jacobian = jax.jacrev(lambda w: jax.vmap(power, (None, 0))(w, exponents))(jnp.ones(2))
    np.testing.assert_array_equal(jacobian, np.broadcast_to(2 * np.eye(2), (lanes, 2, 2)))


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_arrays_of_numpy_of_64_bits(executor: str, dtype: Any) -> None:
    """`jax.vmap` takes them for arrays of 32 bits, and hands them on as they are."""

    @jr.rec_fn
    def power(w: Any, n: Any) -> Any:
        return jr.cond(n <= 0, lambda: w, lambda: sine(w * power(w, n - 1)))

    def mapped(numbers: Any) -> Any:
        run = jax.vmap(lambda w, n: power(w * jnp.ones(2), n), (None, 0))
        return run(0.7, numbers), jax.grad(lambda w: run(w, numbers).sum())(0.7)

    with jr.executor(executor):
        found, expected = mapped(np.array([5, 3], dtype)), mapped(jnp.array([5, 3], jnp.int32))
    assert_close(found, expected, 1e-6)


def test_a_tangent_that_is_a_number_of_python() -> None:
    @jr.rec_fn
    def power(w: Any, n: Any) -> Any:
        return jr.cond(n <= 0, lambda: jnp.ones(2), lambda: w * power(w, n - 1))

    def slope(w: Any, n: Any) -> Any:
        return jax.jvp(lambda w: power(w, n), (w,), (1.0,))[1]

    found = jax.vmap(slope)(jnp.array([2.0, 3.0]), jnp.array([3, 2]))
    np.testing.assert_array_equal(found, [[12.0, 12.0], [6.0, 6.0]])


def test_lanes_that_end_apart_after_turns() -> None:
    """What tells the lanes apart reaches the condition in the third turn."""

    def apart(f: Any, while_loop: Any) -> Any:
        def one(k: Any) -> Any:
            def body(s: Any) -> Any:
                _, b, c, turns, total = s
                return b, c, k, turns + 1, total + f()

            *_, turns, total = while_loop(lambda s: (s[0] < 1) & (s[3] < 9), body, (0, 0, 0, 0, 0))
            return 100 * turns + total

        return one

    @jr.rec_fn(max_calls=4000)
    def nested(n: Any) -> Any:
        def node() -> Any:
            lanes = jax.vmap(apart(lambda: nested(n - 2), jax.lax.while_loop))
            return jnp.sum(lanes(jnp.arange(3)))

        return jr.cond(n <= 0, lambda: 1, node)

    def python(condition: Any, body: Any, state: Any) -> Any:
        while condition(state):
            state = body(state)
        return state

    assert nested(2) == sum(map(apart(lambda: 1, python), range(3)))
