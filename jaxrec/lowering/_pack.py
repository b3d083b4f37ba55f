"""Values that share a row of a tape, one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp


def pack(parts: Sequence[Any], batch: int = 0) -> Any:
    """Puts values that share a tape row one after the other, behind `batch` leading axes."""
    if len(parts) == 1:
        return parts[0]
    # Not -1: there may be no rows.
    rows = [x.reshape(*x.shape[:batch], math.prod(x.shape[batch:])) for x in parts]
    return jnp.concatenate(rows, axis=batch)


def unpack(row: Any, avals: Sequence[Any], batch: int = 0) -> list[Any]:
    """The inverse of `pack`, for values of the given types."""
    if len(avals) == 1:
        return [row]
    ends = list(itertools.accumulate(aval.size for aval in avals))
    pieces = jnp.split(row, ends[:-1], axis=batch)
    return [x.reshape(*x.shape[:batch], *a.shape) for x, a in zip(pieces, avals, strict=True)]
