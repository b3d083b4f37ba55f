"""Operations that have to wait for their wave, and for the rows that are calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrec.lowering._rows import numbers


def in_its_wave(waits: bool, fires: Any, fun: Callable[..., Any], *operands: Any) -> Any:
    """`fun(*operands)`, a cell, in the loop over the waves.

    XLA runs what only outer values go into before the loop, even if no wave of the cell comes. So
    an operation that has to wait stands in a branch.

    Args:
        waits: whether there is such an operation.
        fires: true, which XLA does not know before the wave.
        fun: the cell on a wave.
        operands: its own.
    """
    if not waits:
        return fun(*operands)

    def nothing() -> Any:
        types = jax.eval_shape(fun, *operands)
        return jax.tree.map(lambda t: lax.full(t.shape, 0, t.dtype), types)

    return lax.cond(fires, lambda: fun(*operands), nothing)


Rows = Callable[[Any], Any]
"""Of what a wave reads, an array with an axis of rows, the rows that it computes on."""


def all_rows(array: Any) -> Any:
    """Those that are read: what a wave computes on rows that are no call is never read."""
    return array


def calls_alone(waits: bool, is_call: Any) -> Rows:
    """Those that are a call; the first one's in the place of the others.

    For a cell with an operation that has to wait: a loop over all rows may not end for what stands
    in rows that are no call, and Python would see it.

    Args:
        waits: whether there is such an operation; if not, `all_rows`.
        is_call: `[width]`, which rows of the wave are a call.
    """
    if not waits:
        return all_rows
    rows = jnp.where(is_call, numbers(is_call.size), lax.argmax(is_call, 0, jnp.int32))
    return lambda array: array[rows]
