"""What no cotangent reaches, since nobody has asked for that of a result.

JAX tells results without a cotangent from results whose cotangent is zero, and derives nothing for
them: 0 times an infinite derivative would be NaN, and a rule may make something of nothing. Rows of
tapes hold numbers. So the parts of rows that can have no cotangent are found beforehand, and cells
are differentiated as if these were constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxrec._types import has_derivative
from jaxrec.split import _parts
from jaxrec.split._parts import Part
from jaxrec.split._program import Program
from jaxrec.transpose._cells import Backward


def parts_without_cotangent(
    program: Program, collect: bool, without: Sequence[int]
) -> frozenset[Part]:
    """The parts of rows that cells write, and that have no cotangent.

    Args:
        program: the program.
        collect: whether the results of all calls are results too.
        without: which results have no cotangent: numbers among those that may have one.
    """
    if not without:
        return frozenset()
    key = ("unread", collect, tuple(without))
    return program.cache.once(key, lambda: _find(program, collect, frozenset(without)))


def without_unread(
    backward: Backward, without: Sequence[int], residuals: list[list[Any]]
) -> tuple[Backward, list[list[Any]]]:
    """The differentiated cells and their residuals, less what no cotangent reaches.

    Residuals are of cells that are differentiated as a whole. Others compute them again.
    """
    unread = parts_without_cotangent(backward.program, backward.layout.collect, without)
    if not unread:
        return backward, residuals
    return backward.without(unread), [[] for _ in residuals]


def _find(program: Program, collect: bool, without: frozenset[int]) -> frozenset[Part]:
    carrying = [k for k, aval in enumerate(program.result_avals) if has_derivative(aval)]
    results = carrying * (2 if collect else 1)
    asked = {k for n, k in enumerate(results) if n not in without}
    return _parts.unread_parts(program.cells, program.result_rows, asked)
