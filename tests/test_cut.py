"""The cut between the backward pass of the waves and what runs once over the whole tape."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from zoo import assert_close, normal

from jaxrec.transpose._cell_vjp import CellVjp
from jaxrec.transpose._traced_cell import Operands, TracedCell, trace_cell

ROWS, SIZE, OUT = 3, 8, 4


def quadratic(tensor: Any, bias: Any, v: Any) -> list[Any]:
    """The cell of an RNTN."""
    inner = (v @ tensor.reshape(SIZE, -1)).reshape(-1, SIZE, OUT)
    return [jnp.tanh(jnp.einsum("ri,rik->rk", v, inner) + bias)]


def linear(kernel: Any, bias: Any, v: Any) -> list[Any]:
    return [jnp.tanh(v @ kernel + bias)]


def vjp_of(cell: Any, *weights: Any) -> CellVjp:
    outer = [ShapedArray(w.shape, w.dtype) for w in weights]

    def traced(width: int) -> TracedCell:
        rows = ShapedArray((width, SIZE), np.dtype(np.float32))
        return trace_cell(cell, Operands(width, (*outer, rows), len(outer), (0, 1), (2,), (True,)))

    return CellVjp(traced(ROWS), traced(2))


def gradients(cell: Any, tensor: Any, bias: Any, v: Any, ct: Any) -> tuple[list[Any], Any]:
    """Of the weights and of the rows, by way of the cut."""
    vjp = vjp_of(cell, tensor, bias)
    _, saved = vjp.forward([tensor, bias, v])
    ((dv,), cuts) = vjp.loop([tensor, bias, v], saved, [ct])
    zeros = [jnp.zeros_like(tensor), jnp.zeros_like(bias)]
    return vjp.after([tensor, bias, v], saved, [ct], cuts, zeros), dv


def test_outer_products_are_made_again() -> None:
    vjp = vjp_of(quadratic, normal(1, SIZE, SIZE, OUT), normal(2, OUT))
    assert [cut.shape for cut in vjp.cuts] == [(OUT,)]


def test_cotangents_of_a_matrix_product_are_stored() -> None:
    vjp = vjp_of(linear, normal(1, SIZE, OUT), normal(2, OUT))
    assert [cut.shape for cut in vjp.cuts] == [(OUT,)]


def test_gradients_by_way_of_the_cut() -> None:
    args = normal(1, SIZE, SIZE, OUT), normal(2, OUT), normal(3, ROWS, SIZE)
    ct = normal(4, ROWS, OUT)
    (tensor, bias), v = gradients(quadratic, *args, ct)
    _, pull = jax.vjp(lambda *x: quadratic(*x)[0], *args)
    assert_close((tensor, bias, v), pull(ct), 1e-5)
