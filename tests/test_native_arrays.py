"""Operations on small arrays in scalar recursion on the native machine, against JAX's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from native_programs import is_native
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])
INDICES = jnp.arange(-7, 8)

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "set": lambda x, i: x.at[i].set(7),
    "set_from": lambda x, i: x.at[i].set(x[-1]),
    "row": lambda x, i: x.at[:, i].set(x[:, 0] * 2),
    "element": lambda x, i: x.at[i, i + 1].add(3),
    "column_added": lambda x, i: x.at[:, i].add(x[:, 1]),
    "multiplied": lambda x, i: x.at[i].mul(3),
    "subtracted": lambda x, i: x.at[i, 0].subtract(5),
    "largest": lambda x, i: x.at[i].max(2),
    "smallest": lambda x, i: x.at[i].min(2),
    "clipped": lambda x, i: x.at[i].set(9, mode="clip"),
    "dropped": lambda x, i: x.at[i].set(9, mode="drop"),
    "twice": lambda x, i: x.at[jnp.stack([i, i, 0 * i])].add(4),
    "several": lambda x, i: x.at[jnp.stack([i, 0 * i]), jnp.stack([i + 1, 2 + 0 * i])].set(11),
    "updated": lambda x, i: lax.dynamic_update_slice(x, x[:1] * 2, (i, i)),
    "updated_element": lambda x, i: lax.dynamic_update_slice(x, x[1:2, 1:2] * 2, (i, i)),
    "taken": lambda x, i: x[jnp.stack([i, -i, i // 2])],
    "taken_of_pairs": lambda x, i: x[jnp.stack([i, 0 * i]), jnp.stack([i + 1, i])],
    "taken_and_filled": lambda x, i: x.at[jnp.stack([i, 2 * i])].get(mode="fill"),
    "taken_or_zero": lambda x, i: x.at[:, jnp.stack([i, 2 * i])].get(mode="fill", fill_value=0),
    "taken_and_clipped": lambda x, i: x.at[jnp.stack([i, 2 * i])].get(mode="clip"),
    "taken_of_columns": lambda x, i: jnp.take(x, jnp.stack([i % 3, i % 2]), axis=1),
    "taken_alone": lambda x, i: jnp.take(x[0], i % 3),
    "filled_alone": lambda x, i: x[1].at[i].get(mode="fill"),
    "of_a_row_and_column": lambda x, i: x.at[i, 1].get(mode="fill", fill_value=5),
    "argmax": lambda x, i: jnp.stack([jnp.argmax(x), jnp.argmin(x * i)]),
    "argmax_of_rows": lambda x, i: (jnp.argmax(x * i, axis=1), jnp.argmin(x, axis=0)),
    "cumulative": lambda x, i: (jnp.cumsum(x * i, axis=0), lax.cummax(x, 1, reverse=True)),
    "cumulative_too": lambda x, i: (lax.cumprod(x % 3, 1), lax.cummin(x * i, 0)),
    "padded": lambda x, i: lax.pad(x, i.astype(x.dtype), [(1, 2, 1), (-1, 0, 0)]),
    "split": lambda x, i: tuple(jnp.split(x * i, 3, axis=1)),
    "product": lambda x, i: (x[0] @ x[1], jnp.vdot(x[:, 0], x[:, i % 3]), x[:1] @ x[1:2].T),
    "xor": lambda x, i: jnp.bitwise_xor.reduce(x.astype(int) + i, axis=0),
}


def check(op: Callable[[Any, Any], Any], x: Any) -> None:
    @jr.rec_fn
    def f(x: Any, i: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: op(x, i), lambda: f(x, i, n - 1))

    assert is_native(f, x, INDICES[0], 1)
    found = jax.vmap(f, (None, 0, None))(x, INDICES, 1)
    exact = jax.vmap(op, (None, 0))(x, INDICES)
    assert jax.tree.map(lambda y: (y.dtype, y.shape), found) == jax.tree.map(
        lambda y: (y.dtype, y.shape), exact
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, exact)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.float32, jnp.int8])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations(name: str, dtype: Any) -> None:
    x = jnp.asarray(np.random.default_rng(3).integers(-6, 7, (3, 3)), dtype)
    check(OPERATIONS[name], x)


@pytest.mark.parametrize("name", ["set", "row", "taken", "taken_and_filled", "argmax"])
def test_booleans(name: str) -> None:
    x = jnp.asarray([[True, False, True], [False, False, True], [True, True, False]])
    if name == "argmax":
        check(lambda x, i: (jnp.argmax(x, axis=1), jnp.argmin(x & (i > 0), axis=0)), x)
    elif name in ("set", "row"):
        check(lambda x, i: x.at[i].set(i > 0) if name == "set" else x.at[:, i].set(x[:, 0]), x)
    else:
        check(OPERATIONS[name], x)


def test_not_a_number_is_found_first() -> None:
    nan = jnp.nan
    rows = [[nan, 1, nan], [1, nan, 2], [2, nan, nan], [1, 2, 2], [-0.0, 0.0, -1]]
    rows += [[jnp.inf, nan, jnp.inf], [nan, nan, nan]]
    check(lambda x, i: (jnp.argmax(x, axis=1), jnp.argmin(x, axis=1)), jnp.array(rows))


@pytest.mark.parametrize("numbers", [(1.0, np.nan), (np.nan, 1.0), (2.0, 1.0)])
def test_not_a_number_is_found_first_among_scalars(numbers: tuple[float, float]) -> None:
    @jr.rec_fn
    def places(x: Any, y: Any, n: Any) -> Any:
        def leaf() -> Any:
            row = jnp.stack([x, y, x + 1])
            return jnp.argmax(row), jnp.argmin(row)

        return jr.cond(n == 0, leaf, lambda: places(y, x, n - 1))

    x, y = numbers
    row = [x, y, x + 1]
    assert places(x, y, 2) == (np.argmax(row), np.argmin(row))


def queens(lang: Language) -> Any:
    """Places that are tried and taken back: a search over arrays that each call has of its own."""

    @lang.rec_fn
    def queens(taken, rising, falling, row):
        def place(column, found):
            free = ~(taken[column] | rising[row + column] | falling[row - column + 4])

            def further():
                return queens(
                    taken.at[column].set(True),
                    rising.at[row + column].set(True),
                    falling.at[row - column + 4].set(True),
                    row + 1,
                )

            return found + lang.cond(free, further, lambda: 0)

        return lang.cond(row == 5, lambda: 1, lambda: lang.fori_loop(0, 5, place, 0))

    return queens


@executors
def test_queens_on_a_board(executor: str) -> None:
    free = jnp.zeros(5, bool), jnp.zeros(9, bool), jnp.zeros(9, bool)
    native = queens(JAXREC).with_options(max_calls=1000)
    with jr.executor(executor):
        assert int(native(*free, 0)) == int(queens(PYTHON)(*free, 0)) == 10


def bounced(lang: Language) -> Any:
    """Small vectors whose elements are written, summed and multiplied, with derivatives."""

    @lang.rec_fn
    def bounced(x, n):
        def more():
            sums, k = jnp.cumsum(x), jnp.argmax(jnp.abs(x))
            y = sums.at[k].multiply(0.3).at[n % 3].add(x[::-1] @ sums)
            low, high = jnp.split(jnp.pad(y, (0, 1), constant_values=1.0), 2)
            return bounced(jnp.sin(y) + jnp.concatenate([high, low[:1]]), n - 1)

        return lang.cond(n == 0, lambda: x, more)

    return bounced


@executors
def test_derivatives(executor: str) -> None:
    x = jnp.array([0.3, -0.8, 1.1])
    native, python = bounced(JAXREC), bounced(PYTHON)
    assert is_native(native, x, 3)
    with jr.executor(executor):
        assert_close(jax.jacrev(native)(x, 3), jax.jacrev(python)(x, 3), 1e-4)
        assert_close(jax.jacfwd(native)(x, 3), jax.jacfwd(python)(x, 3), 1e-4)
        slope = jax.vmap(jax.grad(lambda x, n: native(x, n).sum()), (None, 0))
        want = jnp.stack([jax.grad(lambda x, n=n: python(x, n).sum())(x) for n in range(3)])
        assert_close(slope(x, jnp.arange(3)), want, 1e-4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=4),
    st.lists(st.integers(-9, 9), min_size=9, max_size=9),
)
def test_one_after_another(names: list[str], numbers: list[int]) -> None:
    def all_of(x: Any, i: Any) -> Any:
        for k, name in enumerate(names):
            leaves = jax.tree.leaves(OPERATIONS[name](x, i + k))
            x = jnp.resize(jnp.concatenate([y.ravel() for y in leaves]), (3, 3)).astype(x.dtype)
        return x

    check(all_of, jnp.array(numbers, jnp.int32).reshape(3, 3))
