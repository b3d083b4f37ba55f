"""Reading rows of tapes: by the C++ handlers on CPU, by XLA's gather elsewhere.

XLA's CPU gather computes an address for every element; copying whole rows is several times faster,
and these reads are most of what a wave does besides arithmetic.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrec._types import has_derivative
from jaxrec.schedule._handlers import call_handler


def numbers(size: int) -> jax.Array:
    """The numbers of rows, of the type that tables have, whatever the types of JAX are."""
    return jnp.arange(size, dtype=jnp.int32)


def gather(tape: Any, rows: Any) -> Any:
    """The rows of a tape at row numbers that the scheduler has made, by XLA."""
    if tape.shape[0] == 0:  # an axis of no lanes, of which nothing will be read
        return lax.full((*rows.shape, *tape.shape[1:]), 0, tape.dtype)
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(rows.ndim, rows.ndim + tape.ndim - 1)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
    )
    row = (1, *tape.shape[1:])
    return lax.gather(tape, rows[..., None], dimensions, row, mode="promise_in_bounds")


def gather_rows(tape: Any, rows: Any) -> Any:
    """The same, by copying where that is possible. Has a forward derivative only."""
    if not has_bytes(tape):
        return gather(tape, rows)
    if has_derivative(tape):
        return _gather_inexact(tape, rows)
    return _gather_by_platform(tape, rows)


def has_bytes(rows: Any) -> bool:
    """Whether every element begins at a byte, and has a type that handlers know."""
    return isinstance(rows.dtype, np.dtype) and not _is_packed(rows.dtype)


def _is_packed(dtype: np.dtype) -> bool:
    """Whether several elements share a byte, so that a row need not begin at one."""
    if jnp.issubdtype(dtype, jnp.integer):
        return jnp.iinfo(dtype).bits < 8
    return jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 8


def _gather_by_platform(tape: Any, rows: Any) -> Any:
    def on_cpu(tape: Any, rows: Any) -> Any:
        out = jax.ShapeDtypeStruct((*rows.shape, *tape.shape[1:]), tape.dtype)
        return call_handler("jaxrec_gather_rows", out, tape, rows)

    return lax.platform_dependent(tape, rows, cpu=on_cpu, default=gather)


_gather_inexact = jax.custom_jvp(_gather_by_platform)


@_gather_inexact.defjvp
def _gather_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    (tape, rows), (tangent, _) = primals, tangents
    return _gather_inexact(tape, rows), _gather_inexact(tangent, rows)


def sum_over_readers(ct_tape: Any, reader_rows: Any, pointers: Any, most: int | None = None) -> Any:
    """For each value, the sum of the cotangents that its readers wrote.

    Args:
        ct_tape: cotangents by read row.
        reader_rows: read rows grouped by value.
        pointers: `[n + 1]`, where the readers of each of `n` values begin in `reader_rows`.
        most: the most readers of a value, if that is known.

    Returns:
        `[n, ...]`; zero for a value that nothing reads.
    """
    by_gather = functools.partial(sum_by_gather, most=most)
    if not is_summed(ct_tape):
        return by_gather(ct_tape, reader_rows, pointers)

    def on_cpu(*operands: Any) -> Any:
        shape = (pointers.shape[0] - 1, *ct_tape.shape[1:])
        out = jax.ShapeDtypeStruct(shape, ct_tape.dtype)
        return call_handler("jaxrec_sum_rows", out, *operands)

    operands = (ct_tape, reader_rows, pointers)
    return lax.platform_dependent(*operands, cpu=on_cpu, default=by_gather)


def is_summed(tape: Any) -> bool:
    """Whether the handlers add rows of its type."""
    return tape.dtype in (jnp.float32, jnp.float64)


def sum_by_gather(ct_tape: Any, reader_rows: Any, pointers: Any, most: int | None = None) -> Any:
    """One gather for the first readers, one for the second, and so on.

    In a loop, unless it is known how many there are: an accelerator's host waits for it at every
    turn of a loop whose end is computed.
    """
    starts, ends = pointers[:-1], pointers[1:]

    def term(k: Any) -> Any:
        places = jnp.minimum(starts + k, reader_rows.shape[0] - 1)
        rows = gather(ct_tape, gather(reader_rows, places))
        return select_rows(starts + k < ends, rows)

    if most is not None:
        return functools.reduce(lambda total, k: total + term(k), range(1, most), term(0))
    longest = jnp.max(ends - starts, initial=0)
    return lax.fori_loop(1, longest, lambda k, total: total + term(k), term(0))


def select_rows(valid: Any, rows: Any) -> Any:
    """Rows with zeros in the place of those that are not valid."""
    return jnp.where(row_mask(valid, rows), rows, jnp.zeros_like(rows))


def row_mask(valid: Any, rows: Any) -> Any:
    """A mask of rows that broadcasts to all elements of a row."""
    return valid.reshape(valid.shape + (1,) * (rows.ndim - valid.ndim))
