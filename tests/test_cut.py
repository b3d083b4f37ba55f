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

from jaxrec.transpose._at_width import Doubled, UnlikeError, at_width
from jaxrec.transpose._cell_vjp import CellVjp
from jaxrec.transpose._traced_cell import Operands, TracedCell, trace_cell

ROWS, SIZE, OUT = 5, 8, 4


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


def cell_of_rows(cell: Any, width: int, *weights: Any) -> CellVjp:
    two, three = traced_at(cell, weights, 2), traced_at(cell, weights, 3)
    return CellVjp(at_width(two, three, width), three)


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


def shape_of(cell: Any) -> tuple[int, ...]:
    return (SIZE, SIZE, OUT) if cell is quadratic else (SIZE, OUT)


def check_first_rows(cell: Any, vjp: CellVjp, width: int) -> None:
    """What a cell gives for some rows is what it gives for the first of more."""
    tensor, bias, v = normal(1, *shape_of(cell)), normal(2, OUT), normal(3, ROWS, SIZE)
    ct, several = normal(4, ROWS, OUT), vjp_of(cell, tensor, bias)
    assert (vjp.saved, vjp.cuts) == (several.saved, several.cuts)
    assert vjp.cut_carries == several.cut_carries
    outs, saved = several.forward([tensor, bias, v])
    made = vjp.forward([tensor, bias, v[:width]])
    assert_close(made, jax.tree.map(lambda x: x[:width], (outs, saved)), 1e-5)
    expected = several.loop([tensor, bias, v], saved, [ct])
    found = vjp.loop([tensor, bias, v[:width]], made[1], [ct[:width]])
    assert_close(found, jax.tree.map(lambda x: x[:width], expected), 1e-5)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("cell", [quadratic, linear, looped])
def test_equations_for_other_numbers_of_rows(cell: Any, width: int) -> None:
    weights = normal(1, *shape_of(cell)), normal(2, OUT)
    vjp = cell_of_rows(cell, width, *weights)
    check_first_rows(cell, vjp, width)
    traced = jax.make_jaxpr(lambda *v: vjp.forward(v))(*weights, normal(3, width, SIZE))
    assert {v.aval.shape[0] for v in traced.jaxpr.outvars} == {width}


@pytest.mark.parametrize("cell", [called_back, numbered])
def test_equations_that_are_others_in_each_trace(cell: Any) -> None:
    weights = normal(1, SIZE, OUT), normal(2, OUT)
    two, three = traced_at(cell, weights, 2), traced_at(cell, weights, 3)
    with pytest.raises(UnlikeError):
        at_width(two, three, 1)
    check_first_rows(cell, Doubled(two, three), 1)
