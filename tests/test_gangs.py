"""Scalar recursion of many lanes at once, which the machine runs in lockstep.

Each lane gives, bit for bit, what it gives alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxrec as jr

_LANES = 150  # more than a gang has, for any number of workers that a test asks for
_WORKERS = 2

_INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
_DTYPES = (*_INTEGERS, "float32", "bool")

_STEPS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "sum": ("iuf", lambda x, y: x + y),
    "difference": ("iuf", lambda x, y: x - y),
    "product": ("iuf", lambda x, y: x * y),
    "quotient": ("iuf", lambda x, y: lax.div(x, y)),
    "remainder": ("iuf", lambda x, y: lax.rem(y, x)),
    "negative": ("if", lambda x, y: -x),
    "absolute": ("if", lambda x, y: lax.abs(x) - y),
    "sign": ("if", lambda x, y: lax.sign(x) + y),
    "least": ("iufb", lambda x, y: lax.min(x, y)),
    "most": ("iufb", lambda x, y: lax.max(x, y)),
    "and": ("iub", lambda x, y: x & y),
    "or": ("iub", lambda x, y: x | y),
    "xor": ("iub", lambda x, y: x ^ y),
    "not": ("iub", lambda x, y: ~x),
    "left": ("iu", lambda x, y: lax.shift_left(x, y)),
    "right": ("iu", lambda x, y: lax.shift_right_logical(x, y) ^ y),
    "arithmetic right": ("i", lambda x, y: lax.shift_right_arithmetic(x, y) ^ y),
    "chosen": ("iufb", lambda x, y: jnp.where(x < y, y, x)),
    "equal": ("iufb", lambda x, y: lax.convert_element_type(x == y, x.dtype)),
    "through float": ("iu", lambda x, y: (x.astype(jnp.float32) * 1.5).astype(x.dtype) ^ y),
    "through int": ("f", lambda x, y: (x * 3 + y).astype(jnp.int32).astype(x.dtype)),
    "root": ("f", lambda x, y: jnp.sqrt(lax.abs(x)) - y),
    "sine": ("f", lambda x, y: jnp.sin(x) + y),
    "floor": ("f", lambda x, y: jnp.floor(x * 1.25) + y),
    "power": ("f", lambda x, y: jnp.power(lax.abs(x), 0.5) - y),
    "bits": ("f", lambda x, y: jnp.where(jnp.isfinite(x), x, y)),
}


def _taken(names: Iterable[str], dtypes: Iterable[str]) -> list[tuple[str, str]]:
    """Operations with the types that they take."""
    return [(n, t) for n in names for t in dtypes if np.dtype(t).kind in _STEPS[n][0]]


def _numbers(dtype: str, seed: int) -> Any:
    rng = np.random.RandomState(seed)
    if dtype == "bool":
        return rng.rand(_LANES) < 0.5
    if dtype == "float32":
        x = rng.randn(_LANES).astype(dtype) * 10.0 ** rng.randint(-3, 4, _LANES)
        x[:8] = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -1]
        return x.astype(dtype)
    info = np.iinfo(dtype)
    x = rng.randint(info.min, int(info.max) + 1, _LANES, dtype=np.int64)
    x[::3] = rng.randint(0, 9, len(x[::3]))
    x[:4] = [info.min, info.max, 0, 1]
    return x.astype(dtype)


def _assert_each_as_alone(f: Callable[..., Any], *arrays: Any) -> None:
    together = jax.jit(jax.vmap(f))(*arrays)
    alone = jax.jit(f)
    each = [alone(*(a[i] for a in arrays)) for i in range(len(arrays[0]))]
    for k, made in enumerate(jax.tree.leaves(together)):
        want = np.stack([np.asarray(jax.tree.leaves(e)[k]) for e in each])
        np.testing.assert_array_equal(np.asarray(made), want)
        if made.dtype == np.float32:
            np.testing.assert_array_equal(np.signbit(made), np.signbit(want))


@pytest.mark.parametrize(("name", "dtype"), _taken(_STEPS, _DTYPES))
def test_operations(name: str, dtype: str) -> None:
    _, step = _STEPS[name]

    @jr.rec_fn(workers=_WORKERS)
    def f(x, y, n):
        return jr.cond(n <= 0, lambda: x, lambda: f(step(x, y), y, n - 1))

    turns = np.arange(_LANES, dtype=np.int32) % 5
    _assert_each_as_alone(f, _numbers(dtype, 0), _numbers(dtype, 1), turns)


@pytest.mark.parametrize(
    ("name", "dtype"),
    _taken(
        ["sum", "product", "quotient", "least", "chosen", "root", "sine"],
        ["float64", "int64", "uint64", "float32"],
    ),
)
def test_wide_types(name: str, dtype: str) -> None:
    _, step = _STEPS[name]
    with jax.enable_x64(True):

        @jr.rec_fn(workers=_WORKERS)
        def f(x, y, n):
            return jr.cond(n <= 0, lambda: x, lambda: f(step(x, y), y, n - 1))

        rng = np.random.RandomState(0)
        x, y = (rng.randint(0, 1 << 40, _LANES).astype(dtype) for _ in range(2))
        _assert_each_as_alone(f, x, y, np.arange(_LANES) % 5)


class TestShapes:
    """Recursion of every shape."""

    def test_two_calls(self):
        @jr.rec_fn(workers=_WORKERS)
        def f(n, x):
            return jr.cond(n < 2, lambda: x + n, lambda: f(n - 1, x * 3) - f(n - 2, x + 1))

        n = np.arange(_LANES, dtype=np.int32) % 12
        _assert_each_as_alone(f, n, np.arange(_LANES, dtype=np.int32))

    def test_calls_of_one_another(self):
        @jr.rec_fn(workers=_WORKERS)
        def even(n, x):
            return jr.cond(n == 0, lambda: (x, 0), lambda: odd(n - 1, x * 2))

        @jr.rec_fn(workers=_WORKERS)
        def odd(n, x):
            return jr.cond(n == 0, lambda: (x, 1), lambda: even(n - 1, x + 3))

        n = np.arange(_LANES, dtype=np.int32) % 40
        _assert_each_as_alone(even, n, np.arange(_LANES, dtype=np.int32))

    def test_results_that_change_places(self):
        @jr.rec_fn(workers=_WORKERS)
        def f(a, b, n):
            def swapped():
                x, y = f(b, a + b, n - 1)
                return y, x

            return jr.cond(n == 0, lambda: (a, b), swapped)

        n = np.arange(_LANES, dtype=np.int32) % 17
        _assert_each_as_alone(f, np.ones(_LANES, np.int32), n, n)

    def test_a_loop_in_a_call(self):
        @jr.rec_fn(workers=_WORKERS)
        def f(n, x):
            def more():
                turns = lax.rem(n, 5)
                y = lax.fori_loop(0, turns, lambda i, y: y * 2 + i, x)
                return f(n - 1, y)

            return jr.cond(n <= 0, lambda: x, more)

        n = np.arange(_LANES, dtype=np.int32) % 30
        _assert_each_as_alone(f, n, np.ones(_LANES, np.int32))

    def test_arrays_of_all_lanes_and_of_each(self):
        table = jnp.arange(60.0).reshape(6, 10) ** 2

        def of_lane(own, scale, n):
            @jr.rec_fn(workers=_WORKERS)
            def walk(i, total):
                def more():
                    step = own[i % 4] + 1
                    return walk(i + step, total + scale * table[i % 6, step % 10])

                return jr.cond(i >= n, lambda: total, more)

            return walk(0, 0.0)

        rng = np.random.RandomState(3)
        own = rng.randint(0, 5, (_LANES, 4)).astype(np.int32)
        scale = rng.rand(_LANES).astype(np.float32)
        _assert_each_as_alone(of_lane, own, scale, np.arange(_LANES, dtype=np.int32) % 50)

    def test_branches_of_which_each_calls(self):
        @jr.rec_fn(workers=_WORKERS)
        def f(n, x):
            branches = [
                lambda: x,
                lambda: f(n // 2, x + 1),
                lambda: f(n - 1, x * 2) + f(n // 3, x),
                lambda: -f(n - 3, x),
            ]
            return jr.switch(jnp.where(n <= 0, 0, 1 + n % 3), branches)

        n = np.arange(_LANES, dtype=np.int32) % 25
        _assert_each_as_alone(f, n, np.ones(_LANES, np.int32))

    def test_gradients(self):
        @jr.rec_fn(workers=_WORKERS)
        def f(x, y, n):
            return jr.cond(
                n <= 0, lambda: x * y, lambda: f(x * y + 0.1, y, n - 1) + f(x - y, y, n - 2)
            )

        n = np.arange(_LANES, dtype=np.int32) % 7
        x = np.linspace(-1, 1, _LANES, dtype=np.float32)
        _assert_each_as_alone(jax.grad(f, argnums=(0, 1)), x, x[::-1].copy(), n)


def test_one_lane_out_of_range():
    table = jnp.arange(10)

    @jr.rec_fn(workers=_WORKERS)
    def f(i):
        return jr.cond(table[i] >= 9, lambda: i, lambda: f(i + 1))

    start = np.arange(_LANES, dtype=np.int32) % 10
    np.testing.assert_array_equal(jax.vmap(f)(start), 9)
    start[77] = 11
    with pytest.raises(jr.JaxRecError, match=r"f read table\[11\]"):
        jax.vmap(f)(start)


def test_one_lane_without_end():
    @jr.rec_fn(workers=_WORKERS)
    def f(n, step):
        return jr.cond(n == 0, lambda: n, lambda: f(n - step, step))

    n = np.full(_LANES, 6, np.int32)
    step = np.ones(_LANES, np.int32)
    np.testing.assert_array_equal(jax.vmap(f)(n, step), 0)
    step[100] = 4
    with pytest.raises(jr.RecursionLimitError, match=r"f nested more than \d+ calls deep"):
        jax.vmap(f)(n, step)
