"""What the control machine computes is what XLA computes, bit for bit: branches depend on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])
EDGES: dict[str, list[Any]] = {
    "int8": [-128, -1, 0, 1, 7, 127],
    "int32": [-(2**31), -7, -1, 0, 1, 5, 31, 32, 2**31 - 1],
    "uint8": [0, 1, 7, 8, 255],
    "uint32": [0, 1, 31, 32, 2**32 - 1],
    "float32": [0.0, -0.0, 1.0, -1.5, 2.5, 3.5, 3e38, np.inf, -np.inf, np.nan, 0.5, -2.5, 7.0],
}
BOTH = [lax.add, lax.sub, lax.mul, lax.div, lax.rem, lax.min, lax.max, lambda x, y: lax.square(x)]
ORDER = [lax.eq, lax.ne, lax.lt, lax.le, lax.gt, lax.ge]
OF_INTEGERS = [
    lax.bitwise_and,
    lax.bitwise_or,
    lax.bitwise_xor,
    lax.shift_left,
    lax.shift_right_arithmetic,
    lax.shift_right_logical,
    lambda x, y: lax.bitwise_not(x),
    lambda x, y: lax.population_count(x),
    lambda x, y: lax.clz(x),
    lambda x, y: x.astype(jnp.int8),
    lambda x, y: x.astype(jnp.float32),
]
OF_FLOATS = [
    lambda x, y: lax.floor(x),
    lambda x, y: lax.ceil(x),
    lambda x, y: lax.sqrt(x),
    lambda x, y: lax.round(x),
    lambda x, y: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    lambda x, y: lax.is_finite(x),
    lambda x, y: x.astype(jnp.int32),
    lambda x, y: x.astype(jnp.uint8),
    lambda x, y: x.astype(bool),
    *(lambda x, y, n=n: lax.integer_pow(x, n) for n in (-3, -1, 0, 3, 4, 5, 7, 11)),
]
SIGNED = [lambda x, y: lax.neg(x), lambda x, y: lax.abs(x), lambda x, y: lax.sign(x)]


def operations(dtype: str) -> list[Callable[..., Any]]:
    found = [*BOTH, *ORDER, *(OF_FLOATS if dtype == "float32" else OF_INTEGERS)]
    return found if dtype.startswith("u") else [*found, *SIGNED]


@pytest.mark.parametrize("dtype", EDGES)
def test_every_operation(dtype: str) -> None:
    ops = operations(dtype)

    @jr.rec_fn
    def f(x: Any, y: Any, n: Any) -> Any:
        return jr.cond(n < 1, lambda: tuple(op(x, y) for op in ops), lambda: f(y, x, n - 1))

    pairs = np.array(list(itertools.product(EDGES[dtype], repeat=2)), dtype)
    x, y = jnp.asarray(pairs[:, 0]), jnp.asarray(pairs[:, 1])
    made = jax.vmap(f, (0, 0, None))(x, y, 2)
    assert f.schedule(x[0], y[0], 2).num_calls == 3
    for op, got in zip(ops, made, strict=True):
        expected = jax.jit(op)(x, y)
        np.testing.assert_array_equal(got, expected)
        if dtype == "float32" and got.dtype == np.float32:
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(expected)[numbers])


@executors
def test_numbers_too_small_to_be_normal_are_zero(executor: str) -> None:
    """As in XLA's programs, in scalar recursion and where waves are planned."""

    @jr.rec_fn(max_calls=200)
    def count(x: Any, n: Any) -> Any:
        return jr.cond(x == 0, lambda: n, lambda: count(x / 2, n + 1))

    @jr.rec_fn(max_calls=200)
    def steps(w: Any, x: Any) -> Any:
        return jr.cond(x == 0, lambda: w, lambda: 1 + steps(w, x / 2))

    looped = lax.while_loop(lambda c: c[0] != 0, lambda c: (c[0] / 2, c[1] + 1), (1.0, 0))[1]
    with jr.executor(executor):
        assert count(1.0, 0) == looped
        assert float(steps(jnp.zeros(3), 1.0)[0]) == looped
        assert jr.collect(steps)(jnp.zeros(3), 1.0)[1].valid.sum() == looped + 1
    assert jax.jit(count)(1.0, 0) == looped
    assert steps.schedule(jnp.zeros(3), 1.0).num_calls == looped + 1


def test_workers_flush_as_one_does() -> None:
    @jr.rec_fn(workers=2)
    def count(x: Any, n: Any) -> Any:
        def both() -> Any:
            return count(x, n - 1) + count(x, n - 1)

        def halved() -> Any:
            return jr.cond(x == 0, lambda: 1, lambda: 1 + count(x / 2, 0))

        return jr.cond(n > 0, both, halved)

    assert count(1e-38, 16) == 2**16


@pytest.mark.parametrize("size", [20, 32, 33, 40, 64])
def test_sums_round_as_those_of_cells(size: int) -> None:
    @jr.rec_fn
    def f(x: Any, n: Any) -> Any:
        return jr.cond(n < 1, lambda: (jnp.sum(x), jnp.prod(x)), lambda: f(x + 1, n - 1))

    for seed in range(8):
        x = np.random.default_rng(seed).uniform(-1, 1, size).astype(np.float32)
        expected = jnp.sum(x + 1), jnp.prod(x + 1)
        np.testing.assert_array_equal(f(x, 1), expected)


@executors
@pytest.mark.parametrize(
    ("dtype", "step", "end"),
    [(jnp.int8, 3, 180 - 256), (jnp.uint32, 2**32 - 1, 2**32 - 60), (jnp.uint8, 255, 256 - 60)],
)
def test_a_counter_of_a_loop_wraps_around(executor: str, dtype: Any, step: int, end: int) -> None:
    by = dtype(step)

    @jr.rec_fn(max_calls=500)
    def f(x: Any, n: Any) -> Any:
        def looped() -> Any:
            def add(carry: Any, _: Any) -> Any:
                return (carry[0] + by, carry[1] + f(x, n - 1)[1]), carry[0]

            (counter, total), seen = lax.scan(add, (dtype(0), x), None, length=60)
            return counter, total + (seen[1] == by)

        return jr.cond(n < 1, lambda: (dtype(0), x), looped)

    with jr.executor(executor):
        counter, total = f(1.0, 1)
    assert (int(counter), float(total)) == (end, 62.0)
