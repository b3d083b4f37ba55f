"""Lists of values with some of them replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def replaced(values: Sequence[Any], positions: Iterable[int], new: Iterable[Any]) -> list[Any]:
    """A copy of `values` with new ones at some positions."""
    full = list(values)
    for k, x in zip(positions, new, strict=True):
        full[k] = x
    return full
