"""What a wave computes, in the form that XLA's compiler for CPU makes the fastest code of.

Four operations take longer there than they have to, which shows in narrow waves above all:

* *A product of few rows and a large matrix* goes to YNNPACK, which arranges the matrix anew every
  time. Given the rows as columns XLA uses its own code: `[8, 300] @ [300, 600]` takes 29 us instead
  of 52 (two cores with AVX-512). For more rows, or a matrix that stays in the first cache, YNNPACK
  is as fast.
* *A product with a large matrix transposed*, which cotangents of rows are. The product the other
  way round has the matrix as it lies in memory: 8 rows times the transpose of `[600, 2400]` take
  240 us instead of 410, 64 rows 970 instead of 1060.
* *A look-up of whole rows in a table* computes an address for every element. Copying 8 rows of 150
  takes 2 us instead of 24.
* *Random words* take long to compile: `jaxrec/lowering/_random.py`.

They are replaced in the equations of a wave, after the last derivative: what stands for a look-up
has a forward derivative only. Where `vmap` stacks cotangents, it maps what suits one of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import JaxprEqn

from jaxrec._equation import run_inlined, varying_together
from jaxrec.lowering._random import is_random, random_words
from jaxrec.lowering._rows import gather_rows

_ROWS_BY_MATRIX = (((1,), (0,)), ((), ()))
_ROWS_BY_TRANSPOSE = (((1,), (1,)), ((), ()))
_COLUMNS_BY_MATRIX = (((0,), (0,)), ((), ()))

_NARROW = {_ROWS_BY_MATRIX: (16, 1 << 16), _ROWS_BY_TRANSPOSE: (64, 1 << 15)}
"""Of each product the most rows and the least elements of the matrix for which that holds."""

_LONG_ROW = 16
"""The least elements of a row that is copied: reading shorter ones XLA fuses with what follows."""


def quick(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of arrays, for a program in which nothing differentiates it."""

    def run(*operands: Any) -> Any:
        leaves, tree = jax.tree.flatten(operands)
        closed, types = jax.make_jaxpr(
            lambda *flat: fun(*jax.tree.unflatten(tree, flat)), return_shape=True
        )(*leaves)
        outs = run_inlined(closed, leaves, _replaced)
        return jax.tree.unflatten(jax.tree.structure(types), outs)

    return run


def _replaced(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any] | None:
    if _is_narrow_product(eqn):
        return [_narrow_product(eqn, *varying_together(values))]
    if _is_look_up(eqn):
        return [_look_up(eqn, *varying_together(values))]
    if is_random(eqn):
        return [random_words(eqn, *varying_together(values))]
    return None


def _is_narrow_product(eqn: JaxprEqn) -> bool:
    """Whether an equation multiplies few rows, more than one, and a large matrix."""
    if eqn.primitive.name != "dot_general" or eqn.params["dimension_numbers"] not in _NARROW:
        return False
    rows, matrix = _types(eqn)
    most, least = _NARROW[eqn.params["dimension_numbers"]]
    return (
        rows.ndim == matrix.ndim == 2
        and rows.dtype == matrix.dtype == jnp.float32
        and eqn.params.get("out_sharding") is None
        and 1 < rows.shape[0] <= most
        and matrix.size >= least
    )


def _narrow_product(eqn: JaxprEqn, rows: Any, matrix: Any) -> Any:
    multiply = functools.partial(eqn.primitive.bind, **eqn.params)

    # Without the barriers XLA would undo both.
    def rows_as_columns(rows: Any, matrix: Any) -> Any:
        columns = lax.optimization_barrier(rows.T)
        return multiply(columns, matrix, dimension_numbers=_COLUMNS_BY_MATRIX)

    def other_way_round(rows: Any, matrix: Any) -> Any:
        return lax.optimization_barrier(multiply(matrix, rows)).T

    turned = eqn.params["dimension_numbers"] == _ROWS_BY_TRANSPOSE
    on_cpu = other_way_round if turned else rows_as_columns
    return lax.platform_dependent(rows, matrix, cpu=on_cpu, default=multiply)


def _is_look_up(eqn: JaxprEqn) -> bool:
    """Whether an equation gathers whole rows of a table, one for each row of its indices."""
    if eqn.primitive.name != "gather":
        return False
    table, indices = _types(eqn)
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    return (
        eqn.params["mode"] in (lax.GatherScatterMode.CLIP, lax.GatherScatterMode.PROMISE_IN_BOUNDS)
        and math.prod(table.shape[1:]) >= _LONG_ROW
        and indices.ndim == 2
        and 0 in numbers.start_index_map
        and not numbers.operand_batching_dims
        and numbers.offset_dims == tuple(range(1, _made(eqn).ndim))
        and sizes[0] == 1
        and tuple(sizes[1:]) == table.shape[1:]
    )


def _look_up(eqn: JaxprEqn, table: Any, indices: Any) -> Any:
    """The rows. Of the other axes, which are taken whole, an index can only be 0."""
    column = eqn.params["dimension_numbers"].start_index_map.index(0)
    last = min(table.shape[0] - 1, jnp.iinfo(indices.dtype).max)
    rows = jnp.clip(indices[:, column], 0, last)
    return gather_rows(table, rows.astype(jnp.int32)).reshape(_made(eqn).shape)


def _types(eqn: JaxprEqn) -> list[Any]:
    return [atom.aval for atom in eqn.invars]


def _made(eqn: JaxprEqn) -> Any:
    return eqn.outvars[0].aval
