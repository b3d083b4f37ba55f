"""What an invocation is differentiated by, and its differentiated cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from jaxrec.invocation._params import Params
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._plan import LanePattern
from jaxrec.transpose._cells import Backward


@dataclasses.dataclass(frozen=True)
class Wrt:
    """Which operands are differentiated.

    Attributes:
        positions: of the operands.
        lanes: for each, how lanes index its cotangent apart; None for the operand's own layout.
        stack: leading axes of every tangent or cotangent, for several on one schedule.
        by: of a second derivative, the operands that it is given tangents of.
        without: of a backward pass, the numbers of its cotangents that stand for none.
    """

    positions: tuple[int, ...]
    lanes: tuple[LanePattern | None, ...]
    stack: int = 0
    by: tuple[int, ...] = ()
    without: tuple[int, ...] = ()

    @staticmethod
    def of(positions: tuple[int, ...]) -> Wrt:
        """Some operands, each in its own layout."""
        return Wrt(positions, (None,) * len(positions))

    @property
    def pairs(self) -> list[tuple[int, LanePattern | None]]:
        """Positions and lanes."""
        return list(zip(self.positions, self.lanes, strict=True))


def backward_of(params: Params, wrt: Wrt, avals: Sequence[Any]) -> Backward:
    """The differentiated cells of an invocation whose capacity is decided."""
    return backward_cells(params, params.layout(readers=True), wrt, avals)


def backward_cells(params: Params, layout: Layout, wrt: Wrt, avals: Sequence[Any]) -> Backward:
    """The differentiated cells, made once for their types and sizes."""
    types = tuple((a.shape, a.dtype) for a in avals[: params.num_outers])
    shared = (params.patterns, params.policy, layout)

    def make() -> Backward:
        outers = [k for k in wrt.positions if k < params.num_outers]
        shapes = [jax.ShapeDtypeStruct(*t) for t in types]
        program = params.program.asked_by(wrt.positions)
        return Backward(program, layout, params.patterns, shapes, outers, params.policy)

    return params.program.cache.once(("cells", *shared, wrt.positions, types), make)
