"""What no cotangent reaches, since nobody has asked for that of a result.

JAX tells results without a cotangent from results whose cotangent is zero, and derives nothing for
them: 0 times an infinite derivative would be NaN, and a rule may make something of nothing. Rows of
tapes hold numbers. So the parts of rows that can have no cotangent are found beforehand, and cells
are differentiated as if these were constants. Of what only some calls leave out cotangents of zero
stay zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrec._types import has_derivative
from jaxrec.graph._resting import Asked
from jaxrec.split import _parts
from jaxrec.split._axes import Tangents
from jaxrec.split._parts import Part
from jaxrec.split._program import Program
from jaxrec.split._resting import derived_in_part
from jaxrec.transpose._cells import Backward


def without_unread(
    backward: Backward, without: Sequence[int], residuals: list[list[Any]]
) -> tuple[Backward, list[list[Any]]]:
    """The differentiated cells and their residuals, less what no cotangent reaches.

    Residuals are of cells that are differentiated as a whole. Others compute them again.

    Args:
        backward: the cells.
        without: which results have no cotangent: numbers among those that may have one.
        residuals: of each cell.
    """
    program = backward.program
    asked = _asked(program, backward.layout.collect, without)
    unread = _unread(program, asked) if without else frozenset[Part]()
    moved = (axis.in_part for axis in program.axes if isinstance(axis, Tangents))
    narrowed = backward.narrowed(unread, derived_in_part(program, asked).union(*moved))
    return narrowed, [[] for _ in residuals] if unread else residuals


def _asked(program: Program, collect: bool, without: Sequence[int]) -> Asked:
    """The results that have a cotangent."""
    carrying = [k for k, aval in enumerate(program.result_avals) if has_derivative(aval)]
    results = carrying * (2 if collect else 1)
    asked = [(n, k) for n, k in enumerate(results) if n not in without]
    first = len(carrying)
    return Asked(
        frozenset(k for n, k in asked if n < first), frozenset(k for n, k in asked if n >= first)
    )


def _unread(program: Program, asked: Asked) -> frozenset[Part]:
    """The parts of rows that cells write, and that have no cotangent."""

    def find() -> frozenset[Part]:
        either = asked.of_roots | asked.of_calls
        return _parts.unread_parts(program.cells, program.result_rows, either)

    return program.cache.once(("unread", asked), find)
