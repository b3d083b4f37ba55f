"""Waves in the form that XLA's compiler for CPU makes the fastest code of: nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr
from jaxrec._jaxprs import equations
from jaxrec.lowering._quick import quick

TABLE = jnp.arange(20 * 16, dtype=jnp.float32).reshape(20, 16)
MATRIX = jax.random.normal(jax.random.key(0), (256, 256))


def names(fun: Callable[..., Any], *args: Any) -> set[str]:
    return {eqn.primitive.name for eqn in equations([jax.make_jaxpr(fun)(*args)])}


@pytest.mark.parametrize("rows", [2, 5, 16])
def test_products_of_few_rows(rows: int) -> None:
    x = jax.random.normal(jax.random.key(rows), (rows, 256))
    fun = jax.vmap(lambda x, w: jax.jit(jnp.dot)(x, w), (0, None))
    assert "optimization_barrier" in names(quick(fun), x, MATRIX)
    np.testing.assert_allclose(jax.jit(quick(fun))(x, MATRIX), fun(x, MATRIX), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [2, 33, 64])
def test_products_of_few_rows_and_a_transpose(rows: int) -> None:
    """As the cotangents of rows are."""
    x = jax.random.normal(jax.random.key(rows), (rows, 256))
    matrix = MATRIX[:200]

    def fun(x: Any, w: Any) -> Any:
        return jax.vjp(lambda y: y @ w, jnp.ones((rows, 200)))[1](x)[0]

    assert "optimization_barrier" in names(quick(fun), x, matrix)
    found = jax.jit(quick(fun))(x, matrix)
    np.testing.assert_allclose(found, x @ matrix.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rows", "matrix"),
    [(1, MATRIX), (17, MATRIX), (4, MATRIX[:, :64]), (4, MATRIX.astype(jnp.bfloat16))],
    ids=["one row", "many rows", "small matrix", "bfloat16"],
)
def test_other_products_are_left_alone(rows: int, matrix: jax.Array) -> None:
    x = jnp.ones((rows, 256), matrix.dtype)
    assert "optimization_barrier" not in names(quick(jnp.matmul), x, matrix)


@pytest.mark.parametrize(
    ("rows", "matrix"), [(65, MATRIX), (8, MATRIX[:64])], ids=["many rows", "small matrix"]
)
def test_other_products_by_a_transpose_are_left_alone(rows: int, matrix: jax.Array) -> None:
    def fun(x: Any, w: Any) -> Any:
        return jnp.einsum("ij,kj->ik", x, w)

    assert "optimization_barrier" not in names(quick(fun), jnp.ones((rows, 256)), matrix)


@pytest.mark.parametrize(
    "index",
    [
        jnp.array([3, 0, 19]),
        jnp.array([-1, -20, 5]),
        jnp.array([20, -21, 1000]),
        jnp.array([7, 255], jnp.uint8),
        jnp.array([-3, 100], jnp.int8),
        jnp.array([1, 2**32 - 1], jnp.uint32),
    ],
    ids=["inside", "from the end", "outside", "uint8", "int8", "uint32"],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.int8, jnp.bool, jnp.complex64])
def test_look_ups(index: jax.Array, dtype: Any) -> None:
    table = (TABLE % 7).astype(dtype)
    fun = jax.vmap(lambda table, i: table[i], (None, 0))
    assert "ffi_call" in names(quick(fun), table, index)
    np.testing.assert_array_equal(jax.jit(quick(fun))(table, index), fun(table, index))


def test_look_ups_of_matrices() -> None:
    table, index = jnp.arange(6 * 3 * 8.0).reshape(6, 3, 8), jnp.array([5, 0, 2])
    fun = jax.vmap(lambda table, i: table[i], (None, 0))
    assert "ffi_call" in names(quick(fun), table, index)
    np.testing.assert_array_equal(jax.jit(quick(fun))(table, index), table[index])


@pytest.mark.parametrize(
    "fun",
    [
        lambda table, i: jnp.take(table, i, axis=0),  # NaN where it is outside
        lambda table, i: table[0, i],
        lambda table, i: table[i, :4],
        lambda table, i: table.at[:, 3].get()[i],
        lambda table, i: table.T[i],
    ],
    ids=["filled", "elements", "parts of rows", "numbers", "columns"],
)
def test_other_look_ups_give_the_same(fun: Callable[..., Any]) -> None:
    index, mapped = jnp.array([3, 0, -1, 30]), jax.vmap(fun, (None, 0))
    np.testing.assert_array_equal(jax.jit(quick(mapped))(TABLE, index), mapped(TABLE, index))


@jr.rec_fn
def deep(weights: Any, x: Any, n: Any) -> Any:
    """Large matrices, look-ups, and a choice that is computed: few rows a wave."""

    def on() -> Any:
        h = jnp.tanh(x @ weights["matrix"] / 16 + weights["table"][n])
        return deep(weights, h, n - 1) + deep(weights, h, jnp.where(h[0] > 0, n - 2, n - 1))

    return jr.cond(n < 1, lambda: x, on)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_recursion_with_large_matrices(executor: str) -> None:
    weights = {"matrix": MATRIX, "table": jax.random.normal(jax.random.key(1), (6, 256))}
    xs, depths = jax.random.normal(jax.random.key(2), (3, 256)), jnp.array([1, 4, 2])

    def loss(weights: Any, xs: Any) -> Any:
        return jnp.sum(jax.vmap(deep, (None, 0, 0))(weights, xs, depths) ** 2)

    with jr.executor("reference"):
        expected = jax.value_and_grad(loss, (0, 1))(weights, xs)
    with jr.executor(executor):
        made = jax.value_and_grad(loss, (0, 1))(weights, xs)
    for a, b in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def test_inside_shard_map() -> None:
    """Rows that vary over a mesh, and a matrix that does not."""
    weights = {"matrix": MATRIX, "table": jnp.ones((6, 256))}
    xs, depths = jax.random.normal(jax.random.key(2), (4, 256)), jnp.array([1, 2, 2, 0])
    run = jax.vmap(deep.with_options(max_calls=64), (None, 0, 0))
    spec = jax.sharding.PartitionSpec("rows")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("rows",))
    sharded = jax.shard_map(
        run, mesh=mesh, in_specs=(jax.sharding.PartitionSpec(), spec, spec), out_specs=spec
    )
    found = jax.jit(sharded)(weights, xs, depths)
    np.testing.assert_allclose(found, jax.jit(run)(weights, xs, depths), rtol=1e-5, atol=1e-5)


DRAWS: dict[str, Callable[[Any], Any]] = {
    "bits of 8": lambda key: jax.random.bits(key, (3, 2), "uint8"),
    "bits of 16": lambda key: jax.random.bits(key, (5,), "uint16"),
    "bits of 32": lambda key: jax.random.bits(key, (5, 0)),
    "a number": jax.random.uniform,
    "normal": lambda key: jax.random.normal(key, (300,)),
    "split": lambda key: jax.random.key_data(jax.random.split(key, (2, 3))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**32 - 1)),
    "of folded keys": lambda key: [
        jax.random.randint(k, (4,), 0, 1000) for k in jax.random.split(jax.random.fold_in(key, 7))
    ],
    "choice": lambda key: jax.random.choice(key, 10, (3,), replace=False),
}


@pytest.mark.parametrize("lanes", [(), (1,), (7,), (2, 3)])
@pytest.mark.parametrize("draw", DRAWS)
def test_random_words(draw: str, lanes: tuple[int, ...]) -> None:
    fun, keys = DRAWS[draw], jax.random.split(jax.random.key(5), lanes)
    for _ in lanes:
        fun = jax.vmap(fun)
    assert "ffi_call" in names(quick(fun), keys)
    found = jax.jit(quick(fun))(keys)
    jax.tree.map(np.testing.assert_array_equal, found, fun(keys))


def test_random_words_of_64_bits() -> None:
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(5), 3)
        fun = jax.vmap(lambda key: jax.random.bits(key, (4,), "uint64"))
        np.testing.assert_array_equal(jax.jit(quick(fun))(keys), fun(keys))


@pytest.mark.parametrize("flag", [True, False])
def test_random_words_as_set(flag: bool) -> None:
    with jax.threefry_partitionable(flag):
        key = jax.random.key(5)

        def fun(key: Any) -> Any:
            return jax.random.bits(key, (4,)), jax.random.key_data(jax.random.split(key, 3))

        assert ("ffi_call" in names(quick(fun), key)) == flag
        jax.tree.map(np.testing.assert_array_equal, jax.jit(quick(fun))(key), fun(key))


@pytest.mark.parametrize(
    ("key", "shape"), [(jax.random.key(0, impl="rbg"), 8), (jax.random.key(0), 1 << 17)]
)
def test_other_random_words_are_left_alone(key: jax.Array, shape: int) -> None:
    def fun(key: Any) -> Any:
        return jax.random.bits(key, (shape,))

    assert "ffi_call" not in names(quick(fun), key)
    np.testing.assert_array_equal(jax.jit(quick(fun))(key), fun(key))


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_draws_of_calls_are_those_of_jax(executor: str) -> None:
    @jr.rec_fn
    def drawn(x: Any, key: Any, n: Any) -> Any:
        def more() -> Any:
            left, right = jax.random.split(jax.random.fold_in(key, n))
            kept = jax.random.bernoulli(jr.call_key(key), 0.5, x.shape)
            y = jnp.where(kept, x, 0.5 * x) + 0.1 * jax.random.normal(right, x.shape)
            return jnp.tanh(drawn(y, left, n - 1)) + drawn(x, right, n - 2)

        return jr.cond(n <= 0, lambda: x, more)

    def loss(x: Any, key: Any) -> Any:
        return drawn(x, key, 5).sum()

    x, keys = jnp.ones(80), jax.random.split(jax.random.key(3), 3)
    run = jax.vmap(jax.value_and_grad(loss), (None, 0))
    with jr.executor("reference"):
        expected = [jax.value_and_grad(loss)(x, key) for key in keys]
    expected = jax.tree.map(lambda *rows: jnp.stack(rows), *expected)
    with jr.executor(executor):
        found = run(x, keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), found, expected)
