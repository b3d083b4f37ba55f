"""Tapes: rows of values of one type, read and written in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrec._checks import checks
from jaxrec.schedule._handlers import call_handler


def blank_tapes(rows: Sequence[int], avals: Sequence[Any]) -> list[Any]:
    """Tapes of zeros: for each, one row of type `aval` for each row number."""
    return [_blank(n, aval) for n, aval in zip(rows, avals, strict=True)]


def empty_tapes(rows: Sequence[int], avals: Sequence[Any]) -> list[Any]:
    """Tapes whose rows may hold anything until they are written.

    Filling tapes with zeros takes as long as a tenth of a training step. On CPU they are left as
    they are allocated. Under `jax_debug_nans` they are zeros, since rows that are never read must
    not look like a NaN that the user made.
    """
    if any(checks()):
        return blank_tapes(rows, avals)

    def on_cpu() -> list[Any]:
        plain = [k for k, aval in enumerate(avals) if _is_plain(aval)]
        types = [jax.ShapeDtypeStruct((rows[k], *avals[k].shape), avals[k].dtype) for k in plain]
        made = call_handler("jaxrec_allocate", types) if plain else []
        made = dict(zip(plain, made, strict=True))
        return [made[k] if k in made else _blank(rows[k], a) for k, a in enumerate(avals)]

    return jax.lax.platform_dependent(cpu=on_cpu, default=lambda: blank_tapes(rows, avals))


def _is_plain(aval: Any) -> bool:
    return not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _blank(rows: int, aval: Any) -> Any:
    return lax.full((rows, *aval.shape), 0, aval.dtype)


def block(tape: Any, start: Any, width: int) -> Any:
    """`width` rows from `start`, which is not negative."""
    return lax.dynamic_slice_in_dim(tape, start, width, allow_negative_indices=False)


def row(table: Any, number: Any) -> Any:
    """One row; the nearest one if there is none of this number."""
    return block(table, number, 1)[0]


def put(tape: Any, rows: Any, start: Any) -> Any:
    """Overwrites rows from `start`, which is not negative."""
    return lax.dynamic_update_slice_in_dim(tape, rows, start, 0, allow_negative_indices=False)
