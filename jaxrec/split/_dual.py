"""The program that computes a tangent beside every value.

A part of a row has one more axis in front, of its value and its tangent; what a cell reads of the
tangents of outer values are outer values more.
"""

from __future__ import annotations

import dataclasses

from jax.core import ShapedArray

from jaxrec._types import has_derivative
from jaxrec.graph._moving import moving
from jaxrec.split._axes import Tangents
from jaxrec.split._cache import Cache
from jaxrec.split._program import CellSpec, Program
from jaxrec.split._resting import moved_in_part


def with_tangents(program: Program, by: tuple[int, ...]) -> Program:
    """The program with tangents.

    Args:
        program: without; none of its operations has a derivative rule of the user's.
        by: the operands that the tangents are taken by. Those of outer values are outer values of
            the result, behind the others and in this order.
    """
    return program.cache.once(("with tangents", by), lambda: _make(program, by))


def dual_type(aval: ShapedArray) -> ShapedArray:
    """The type of a value and its tangent."""
    if not has_derivative(aval):
        return aval
    return ShapedArray((2, *aval.shape), aval.dtype)


def _make(program: Program, by: tuple[int, ...]) -> Program:
    first = len(program.outers)
    moved = [k for k in by if k < first]
    moved_values = frozenset(moving(program.graph, [program.operands[k] for k in by]))
    tangents = {k: first + n for n, k in enumerate(moved)}
    members = tuple(tuple(map(dual_type, mine)) for mine in program.members)
    return dataclasses.replace(
        program,
        outers=(*program.outers, *(dataclasses.replace(program.outers[k]) for k in moved)),
        cells=tuple(_with_tangents(spec, tangents) for spec in program.cells),
        members=members,
        single=None,
        axes=(*program.axes, Tangents(moved_values, moved_in_part(program, by))),
        cache=Cache(),
    )


def _with_tangents(spec: CellSpec, tangents: dict[int, int]) -> CellSpec:
    more = (tangents[k] for k in spec.outers if k in tangents)
    return dataclasses.replace(spec, outers=(*spec.outers, *more))
