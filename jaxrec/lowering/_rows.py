"""Reading rows of tapes: by the C++ handlers on CPU, by XLA's gather elsewhere.

XLA's CPU gather computes an address for every element; copying whole rows is several times faster,
and these reads are most of what a wave does besides arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrec.schedule._handlers import call_handler


def numbers(size: int) -> jax.Array:
    """The numbers of rows, of the type that tables have, whatever the types of JAX are."""
    return jnp.arange(size, dtype=jnp.int32)


def gather(tape: Any, rows: Any) -> Any:
    """The rows of a tape at row numbers that the scheduler has made, by XLA."""
    if tape.shape[0] == 0:  # an axis of no lanes, of which nothing will be read
        return lax.full((*rows.shape, *tape.shape[1:]), 0, tape.dtype)
    return tape.at[rows].get(mode="promise_in_bounds")


def gather_rows(tape: Any, rows: Any) -> Any:
    """The same, by copying where that is possible. Has a forward derivative only."""
    if not _has_bytes(tape):
        return gather(tape, rows)
    if jnp.issubdtype(tape.dtype, jnp.inexact):
        return _gather_inexact(tape, rows)
    return _gather_by_platform(tape, rows)


def after(numbers: Any, reads: Sequence[Any], writes: int) -> Any:
    """The numbers of rows that a wave writes, known only once it has read what it reads.

    XLA knows an order by the data alone, and copies a whole tape of which the data do not say that
    it is read before it is overwritten, as by a wave that overwrites two tapes by what it reads
    from the other each.

    Args:
        numbers: the row numbers, among others.
        reads: rows read from tapes.
        writes: how many blocks are written; one alone is made of all that is read.
    """
    if writes < 2:
        return numbers
    return _after(numbers, tuple(filter(_has_bytes, reads)))


@jax.custom_jvp
def _after(numbers: Any, reads: tuple[Any, ...]) -> Any:
    def on_cpu(numbers: Any, *reads: Any) -> Any:
        like = jax.ShapeDtypeStruct(numbers.shape, numbers.dtype)
        return call_handler("jaxrec_after", like, numbers, *reads)

    def elsewhere(*operands: Any) -> Any:
        return lax.optimization_barrier(operands)[0]

    # On CPU the XLA of JAX 0.10 removes the barrier before it decides about copies.
    return lax.platform_dependent(numbers, *reads, cpu=on_cpu, default=elsewhere)


@_after.defjvp
def _after_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    """What is read of tangents is read before they are written too."""
    (numbers, reads), (none, moved) = primals, tangents
    dots = (x for x in moved if x.dtype != jax.dtypes.float0)
    return _after(numbers, (*reads, *filter(_has_bytes, dots))), none


def _has_bytes(rows: Any) -> bool:
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


def sum_over_readers(ct_tape: Any, reader_rows: Any, pointers: Any) -> Any:
    """For each value, the sum of the cotangents that its readers wrote.

    Args:
        ct_tape: cotangents by read row.
        reader_rows: read rows grouped by value.
        pointers: `[n + 1]`, where the readers of each of `n` values begin in `reader_rows`.

    Returns:
        `[n, ...]`; zero for a value that nothing reads.
    """
    if ct_tape.dtype not in (jnp.float32, jnp.float64):
        return _sum_by_gather(ct_tape, reader_rows, pointers)

    def on_cpu(*operands: Any) -> Any:
        shape = (pointers.shape[0] - 1, *ct_tape.shape[1:])
        out = jax.ShapeDtypeStruct(shape, ct_tape.dtype)
        return call_handler("jaxrec_sum_rows", out, *operands)

    operands = (ct_tape, reader_rows, pointers)
    return lax.platform_dependent(*operands, cpu=on_cpu, default=_sum_by_gather)


def _sum_by_gather(ct_tape: Any, reader_rows: Any, pointers: Any) -> Any:
    """One gather for the first readers, one for the second, and so on."""
    starts, ends = pointers[:-1], pointers[1:]

    def term(k: Any) -> Any:
        places = jnp.minimum(starts + k, reader_rows.shape[0] - 1)
        rows = gather(ct_tape, gather(reader_rows, places))
        return select_rows(starts + k < ends, rows)

    most = jnp.max(ends - starts, initial=0)
    return lax.fori_loop(1, most, lambda k, total: total + term(k), term(0))


def select_rows(valid: Any, rows: Any) -> Any:
    """Rows with zeros in the place of those that are not valid."""
    return jnp.where(row_mask(valid, rows), rows, jnp.zeros_like(rows))


def row_mask(valid: Any, rows: Any) -> Any:
    """A mask of rows that broadcasts to all elements of a row."""
    return valid.reshape(valid.shape + (1,) * (rows.ndim - valid.ndim))
