"""The cut between the backward pass of the waves and what runs once over the whole tape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.core import ShapedArray
from zoo import assert_close, normal

from jaxrec.transpose._cell_vjp import CellVjp
from jaxrec.transpose._one_row import cell_of_one_row
from jaxrec.transpose._traced_cell import Operands, TracedCell, trace_cell

ROWS, SIZE, OUT = 3, 8, 4


def quadratic(tensor: Any, bias: Any, v: Any) -> list[Any]:
    """The cell of an RNTN."""
    inner = (v @ tensor.reshape(SIZE, -1)).reshape(-1, SIZE, OUT)
    return [jnp.tanh(jnp.einsum("ri,rik->rk", v, inner) + bias)]


def linear(kernel: Any, bias: Any, v: Any) -> list[Any]:
    return [jnp.tanh(v @ kernel + bias)]


def traced_at(cell: Any, weights: Sequence[Any], width: int) -> TracedCell:
    outer = [ShapedArray(w.shape, w.dtype) for w in weights]
    rows = ShapedArray((width, SIZE), np.dtype(np.float32))
    return trace_cell(cell, Operands(width, (*outer, rows), len(outer), (0, 1), (2,), (True,)))


def vjp_of(cell: Any, *weights: Any) -> CellVjp:
    return CellVjp(traced_at(cell, weights, ROWS), traced_at(cell, weights, 2))


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


def cell_of_one(cell: Any, *weights: Any) -> CellVjp:
    two, other = traced_at(cell, weights, 2), traced_at(cell, weights, ROWS)
    return cell_of_one_row(two, other)


def looped(kernel: Any, bias: Any, v: Any) -> list[Any]:
    """A product inside of a loop, whose body has rows."""
    turned = jax.lax.scan(lambda h, _: (jnp.tanh(h + h.sum(-1, keepdims=True)), None), v, length=2)
    return [jnp.tanh(turned[0] @ kernel + bias)]


def called_back(kernel: Any, bias: Any, v: Any) -> list[Any]:
    """An operation that is another one in each trace."""
    made = jax.pure_callback(lambda x: np.sin(x), v, jax.lax.stop_gradient(v))
    return [jnp.tanh((v * made) @ kernel + bias)]


def numbered(kernel: Any, bias: Any, v: Any) -> list[Any]:
    """An array that has a row for each call beforehand."""
    return [jnp.tanh(v @ kernel + bias) * np.arange(1.0, len(v) + 1, dtype=np.float32)[:, None]]


@pytest.mark.parametrize("cell", [quadratic, linear, looped, called_back, numbered])
def test_one_row_is_the_first_of_several(cell: Any) -> None:
    shape = (SIZE, SIZE, OUT) if cell is quadratic else (SIZE, OUT)
    tensor, bias, v = normal(1, *shape), normal(2, OUT), normal(3, ROWS, SIZE)
    ct = normal(4, ROWS, OUT)
    several, one = vjp_of(cell, tensor, bias), cell_of_one(cell, tensor, bias)
    assert (one.saved, one.cuts) == (several.saved, several.cuts)
    assert one.cut_carries == several.cut_carries
    outs, saved = several.forward([tensor, bias, v])
    made = one.forward([tensor, bias, v[:1]])
    assert_close(made, jax.tree.map(lambda x: x[:1], (outs, saved)), 1e-5)
    expected = jax.tree.map(lambda x: x[:1], several.loop([tensor, bias, v], saved, [ct]))
    found = one.loop([tensor, bias, v[:1]], made[1], [ct[:1]])
    assert_close(found, expected, 1e-5)


@pytest.mark.parametrize("cell", [quadratic, linear, looped])
def test_usual_cells_run_one_row_as_one(cell: Any) -> None:
    shape = (SIZE, SIZE, OUT) if cell is quadratic else (SIZE, OUT)
    weights = normal(1, *shape), normal(2, OUT)
    one = cell_of_one(cell, *weights)
    traced = jax.make_jaxpr(lambda *v: one.forward(v))(*weights, normal(3, 1, SIZE))
    shapes = {tuple(v.aval.shape) for eqn in traced.eqns for v in eqn.outvars}
    assert (1, OUT) in shapes
    assert not any(shape[:1] == (2,) for shape in shapes)
