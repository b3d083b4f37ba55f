"""Equations in which tangents and cotangents of zero stay zero."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrec._zeros import keeping_zeros


@st.composite
def products(draw: st.DrawFn) -> tuple[Any, Any, Any, int]:
    """Operands of a `dot_general` with up to two axes of each kind, and the axis of rows."""
    sizes = st.lists(st.integers(1, 3), max_size=2)
    batch, summed, left, right = (draw(sizes) for _ in range(4))
    orders, operands = [], []
    for free in (left, right):
        order = draw(st.permutations(range(len(batch) + len(summed) + len(free))))
        shape = np.array([*batch, *summed, *free], int)[list(order)]
        place = [order.index(k) for k in range(len(order))]
        orders.append((place[: len(batch)], place[len(batch) : len(batch) + len(summed)]))
        operands.append(np.array(draw(st.lists(st.integers(-2, 2), min_size=1))))
        operands[-1] = np.resize(operands[-1], shape).astype(np.float32)
    numbers = ((orders[0][1], orders[1][1]), (orders[0][0], orders[1][0]))
    return (*operands, numbers, draw(st.integers(-1, operands[0].ndim - 1)))


@settings(max_examples=60, deadline=None)
@given(products(), st.booleans())
def test_products_with_zeros(product: Any, swapped: bool) -> None:
    """As where the infinite elements that meet zeros are zeros."""
    carried, other, (summed, batch), rows = product
    if swapped:
        summed, batch = summed[::-1], batch[::-1]

    def multiply(carried: Any, other: Any) -> Any:
        pair = (other, carried) if swapped else (carried, other)
        return jax.lax.dot_general(*pair, (summed, batch))

    closed = jax.make_jaxpr(multiply)(carried, other)
    axis = {closed.jaxpr.invars[0]: rows} if rows >= 0 else None
    (got,) = keeping_zeros(closed, [carried, other], [True, False], axis)
    np.testing.assert_array_equal(got, multiply(carried, other))
    (got,) = keeping_zeros(closed, [0 * carried, np.full_like(other, np.inf)], [True, False], axis)
    np.testing.assert_array_equal(got, 0 * multiply(carried, np.ones_like(other)))


def test_rows_of_zeros_add_nothing_to_sums() -> None:
    rows, other = np.eye(3, dtype=np.float32), np.full((3, 2), 7, np.float32)
    rows[1], other[1] = 0, np.inf

    def summed(rows: Any, other: Any) -> Any:
        return jax.lax.dot_general(rows, other, (((0,), (0,)), ((), ())))

    closed = jax.make_jaxpr(summed)(rows, other)
    (got,) = keeping_zeros(closed, [rows, other], [True, False], {closed.jaxpr.invars[0]: 0})
    np.testing.assert_array_equal(got, [[7, 7], [0, 0], [7, 7]])


def test_loops_carry_zeros_and_values() -> None:
    def turned(x: Any) -> Any:
        state = (0, x, jnp.ones_like(x))
        return jax.lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] ** 0.5, s[1]), state
        )

    def moved(x: Any, dot: Any) -> Any:
        outs, dots = jax.jvp(turned, (x,), (dot,))
        return *outs, *dots[1:]

    for x, dot in ((0.0, 0.0), (16.0, 1.0)):
        closed = jax.make_jaxpr(moved)(x, dot)
        got = keeping_zeros(closed, [x, dot], [False, True])
        expected = moved(x, dot) if dot else (3, x, x, 0.0, 0.0)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
