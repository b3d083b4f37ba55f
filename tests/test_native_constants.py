"""What follows from constants is computed while a scalar program is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from native_programs import native_of

import jaxrec as jr

_INTEGERS = {
    "quotient": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "cut quotient": lax.div,
    "cut remainder": lax.rem,
    "shifted": lambda a, b: (a << 3) ^ lax.shift_right_logical(a, b) ^ (a >> 1),
    "bits": lambda a, b: ~(a & b) | lax.population_count(a) ^ lax.clz(b),
    "float": lambda a, b: a.astype(jnp.float32) / b,
    "chosen": lambda a, b: jnp.where(a > b, a, b) + jnp.clip(a, 0, 1),
    "compared": lambda a, b: ((a < b) & (a != b)) | ~(a >= b) ^ (a == b),
}
_FLOATS = {
    "arithmetic": lambda a, b: (a - b) * a / b + -a,
    "remainder": lambda a, b: a % b,
    "cut": lambda a, b: (
        jnp.floor(a) + jnp.ceil(b) + jnp.sign(a) * jnp.abs(b) + jnp.sqrt(jnp.abs(a))
    ),
    "integer": lambda a, b: a.astype(jnp.int32) + (a < b).astype(jnp.int32),
    "chosen": lambda a, b: jnp.where(jnp.isfinite(a / b), jnp.minimum(a, b), jnp.maximum(a, b)),
    "none": lambda a, b: (a - a) / (b - b),
}
_CASES = [
    *((name, step, t, a, b) for name, step in _INTEGERS.items()
      for t, a, b in [("int32", 7, 2), ("int32", -7, 2), ("int32", -(2**31), -1), ("int8", 100, 3),
                      ("uint32", 2**32 - 1, 5), ("uint8", 250, 7), ("int32", 5, 0)]),
    *((name, step, "float32", a, b) for name, step in _FLOATS.items()
      for a, b in [(7.5, 2.0), (-7.5, 2.25), (0.0, -1.0), (1e-30, 3.0), (3.0, 0.0)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "dtype", "a", "b"), [c[1:] for c in _CASES], ids=[f"{c[0]}-{c[2:]}" for c in _CASES]
)
def test_operations(step: Callable[..., Any], dtype: str, a: float, b: float) -> None:
    values = np.array([a, b]).astype(dtype)
    compiled = jax.jit(step)

    @jr.rec_fn
    def f(n):
        return jr.cond(n <= 0, lambda: compiled(values[0], values[1]), lambda: f(n - 1))

    program = native_of(f, 2)
    assert program is not None and program.outers == ()
    np.testing.assert_array_equal(f(2), compiled(values[0], values[1]))


def test_what_a_constant_leaves_as_it_is():
    @jr.rec_fn
    def f(n, flag):
        same = jax.jit(lambda x, yes, no: ((x & yes) | no) ^ no)(flag, True, False)
        equal = jax.jit(lambda x, yes, no: (x == yes) & (x != no))(flag, True, False)
        return jr.cond(n <= 0, lambda: (same, equal), lambda: f(n - 1, flag))

    for flag in (True, False):
        assert f(3, flag) == (flag, flag)
        both = jax.vmap(f, (None, 0))(3, jnp.array([flag] * 40))
        np.testing.assert_array_equal(both, np.full((2, 40), flag))


def test_an_array_of_constants_is_read_where_it_is():
    @jr.rec_fn
    def f(n, total):
        squares = jax.jit(lambda: jnp.arange(8) ** 2)()
        return jr.cond(n < 0, lambda: total, lambda: f(n - 1, total + squares[n]))

    assert f(7, 0) == 140
