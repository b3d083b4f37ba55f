"""Axes that the values of a program have in front, where it computes several of each at a time.

Calls, firings and rows are those of the program that has none, so any schedule of one is one of the
other. What control reads has no axis.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jax.core import ShapedArray

from jaxrec.graph._ir import Atom


@dataclasses.dataclass(frozen=True)
class Tangents:
    """An axis of a value and its tangent, see `jaxrec/split/_dual.py`.

    Attributes:
        moving: the values that have a tangent, see `jaxrec/graph/_moving.py`.
        in_part: the cells of which some calls have none, see `jaxrec/split/_resting.py`.
    """

    moving: frozenset[Atom]
    in_part: frozenset[int]


@dataclasses.dataclass(frozen=True)
class Examples:
    """An axis of examples that make the same calls, see `jaxrec/split/_examples.py`.

    Attributes:
        size: how many examples there are.
        mapped: the positions of the outer values that have the axis.
    """

    size: int
    mapped: frozenset[int]


Axis = Tangents | Examples


def outer_type(aval: ShapedArray, position: int, axes: Sequence[Axis]) -> ShapedArray:
    """The type of an outer value with the axes that it has."""
    sizes = [a.size for a in axes if isinstance(a, Examples) and position in a.mapped]
    return ShapedArray((*reversed(sizes), *aval.shape), aval.dtype)
