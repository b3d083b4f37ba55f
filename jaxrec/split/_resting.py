"""Cells that derive for calls where nothing flows, and where zero times a value may be NaN."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from jaxrec._linear import IN_ALL
from jaxrec._types import has_derivative
from jaxrec.graph._ir import Atom, Const, Prim, free_atoms, within
from jaxrec.graph._moving import moving
from jaxrec.graph._resting import Asked, partly_derived, surely_moving
from jaxrec.split._program import CellSpec, Program

_LINEAR = IN_ALL | {"select_n", "gather", "dynamic_slice", "dynamic_update_slice", "stop_gradient"}
"""Operations that multiply tangents and cotangents by nothing."""


def derived_in_part(program: Program, asked: Asked) -> frozenset[int]:
    """The cells with an operation that some call leaves out of its derivative.

    Args:
        program: the program.
        asked: which of its results have a cotangent.
    """

    def find() -> frozenset[int]:
        some = partly_derived(program.graph, asked)
        return frozenset(
            spec.cell.index
            for spec in program.cells
            if any(not some.isdisjoint(op.outputs) for op in _multiplying(spec))
        )

    return program.cache.once(("derived in part", asked), find)


def moved_in_part(program: Program, by: tuple[int, ...]) -> frozenset[int]:
    """The cells with an operation that takes something which has no tangent in some calls.

    What a row holds has one of zero then.

    Args:
        program: the program.
        by: the operands that have tangents.
    """

    def find() -> frozenset[int]:
        given = [program.operands[k] for k in by]
        moved = moving(program.graph, given, program.taken)
        sure = surely_moving(program.graph, given, moved)
        return frozenset(s.cell.index for s in program.cells if _rests(s, sure, moved - sure))

    return program.cache.once(("moved in part", by), find)


def _rests(spec: CellSpec, sure: Container[Atom], partly: Iterable[Atom]) -> bool:
    """Whether an operation of a cell takes a value that rests in some calls."""
    rows = (atom for parts in spec.input_parts for atom in parts)
    resting = {*partly, *(atom for atom in rows if has_derivative(atom.aval) and atom not in sure)}
    for op in (op for outer in spec.cell.ops for op in within(outer)):
        if not resting.isdisjoint(free_atoms(op)):
            if isinstance(op, Prim) and _multiplies(op):
                return True
            resting.update(value for value in op.outputs if value not in sure)
    return False


def _multiplying(spec: CellSpec) -> Iterator[Prim]:
    """The operations of a cell whose derivative depends on values, which may be infinite."""
    found = (op for outer in spec.cell.ops for op in within(outer))
    return (op for op in found if isinstance(op, Prim) and _multiplies(op))


def _multiplies(op: Prim) -> bool:
    if op.name in ("mul", "div") and isinstance(op.inputs[1], Const):
        return False
    return op.name not in _LINEAR and any(has_derivative(value.aval) for value in op.outputs)
