"""Residuals of one type of element side by side in one tape row: one write a wave."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from jax.core import ShapedArray

from jaxrec.lowering._pack import pack, unpack
from jaxrec.split._bundles import row_type


@dataclasses.dataclass(frozen=True)
class Packing:
    """How values with a leading row axis share tape rows.

    Attributes:
        avals: the types of one row of each value.
    """

    avals: tuple[ShapedArray, ...]

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """For each shared row the positions of its values."""
        by_dtype: dict[Any, list[int]] = {}
        for k, aval in enumerate(self.avals):
            by_dtype.setdefault(aval.dtype, []).append(k)
        return tuple(map(tuple, by_dtype.values()))

    @property
    def types(self) -> tuple[ShapedArray, ...]:
        """The types of the shared rows."""
        return tuple(row_type([self.avals[k] for k in group]) for group in self.groups)

    def pack(self, values: Sequence[Any]) -> list[Any]:
        """The shared rows of some values."""
        return [pack([values[k] for k in group], batch=1) for group in self.groups]

    def unpack(self, rows: Sequence[Any]) -> list[Any]:
        """The inverse of `pack`."""
        found: dict[int, Any] = {}
        for group, row in zip(self.groups, rows, strict=True):
            parts = unpack(row, [self.avals[k] for k in group], batch=1)
            found.update(zip(group, parts, strict=True))
        return [found[k] for k in range(len(found))]
