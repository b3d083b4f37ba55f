"""What a wave reads of outer values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxrec.lowering._rows import gather
from jaxrec.schedule._plan import LanePattern, element_of
from jaxrec.split._program import CellSpec


def cell_outers(
    spec: CellSpec, outers: Sequence[Any], patterns: Sequence[LanePattern | None], lanes: Any
) -> list[Any]:
    """The outer values of a cell; those that differ by lane get a row axis."""
    found = []
    for position in spec.outers:
        value, pattern = outers[position], patterns[position]
        if pattern is not None:
            value = gather(value, element_of(lanes, pattern))
        found.append(value)
    return found


def outer_by_row(spec: CellSpec, patterns: Sequence[LanePattern | None]) -> list[bool]:
    """For each outer value of a cell, whether a wave needs it with a row axis."""
    return [patterns[position] is not None for position in spec.outers]


def outers_with_rows(
    spec: CellSpec, patterns: Sequence[LanePattern | None], outers: Sequence[Any], width: int
) -> list[Any]:
    """The outer values of a cell, all with a row axis."""
    by_row = outer_by_row(spec, patterns)
    return [
        x if own else jnp.broadcast_to(x, (width, *x.shape))
        for x, own in zip(outers, by_row, strict=True)
    ]
