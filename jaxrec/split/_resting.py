"""Cells that derive for calls where nothing flows, and where zero times that may be NaN."""

from __future__ import annotations

from collections.abc import Iterator

from jaxrec.graph._ir import Prim, within
from jaxrec.graph._moving import moving
from jaxrec.graph._resting import surely_derived, surely_moving
from jaxrec.graph._steep import is_steep
from jaxrec.split._program import CellSpec, Program


def derived_in_part(program: Program) -> frozenset[int]:
    """The cells with an operation, perhaps of infinite derivative, that some call leaves out."""

    def find() -> frozenset[int]:
        sure = surely_derived(program.graph)
        return frozenset(
            spec.cell.index
            for spec in program.cells
            if any(sure.isdisjoint(op.outputs) for op in _steep(spec))
        )

    return program.cache.once("derived in part", find)


def moved_in_part(program: Program, by: tuple[int, ...]) -> frozenset[int]:
    """The cells with such an operation where a tangent that it takes may be none in some calls.

    Args:
        program: the program.
        by: the operands that have tangents.
    """

    def find() -> frozenset[int]:
        given = [program.operands[k] for k in by]
        moved = moving(program.graph, given, program.taken)
        some = moved - surely_moving(program.graph, moved, given)
        return frozenset(
            spec.cell.index
            for spec in program.cells
            if any(not some.isdisjoint(op.inputs) for op in _steep(spec))
        )

    return program.cache.once(("moved in part", by), find)


def _steep(spec: CellSpec) -> Iterator[Prim]:
    found = (op for outer in spec.cell.ops for op in within(outer))
    return (op for op in found if isinstance(op, Prim) and is_steep(op))
