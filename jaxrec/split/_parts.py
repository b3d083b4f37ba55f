"""Which parts of the rows of tapes the derivatives of results flow to."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from jaxrec._transitive import transitive
from jaxrec._types import has_derivative
from jaxrec.graph._ir import Value, free_atoms, is_constant

if TYPE_CHECKING:
    from jaxrec.split._program import CellSpec

Part = tuple[int, int]
"""A part of the rows of a tape class: the class, and the number of the part."""


def unread_parts(
    cells: Sequence[CellSpec],
    result_rows: Iterable[tuple[int, tuple[int, ...]]],
    asked: Container[int],
) -> frozenset[Part]:
    """The parts that cells write and that some results do not follow from, if they are inexact.

    Args:
        cells: the cells of a program.
        result_rows: for each row of results its class and the positions of its parts in them.
        asked: positions of the results that are meant.
    """
    read = {(c, i) for c, parts in result_rows for i, k in enumerate(parts) if k in asked}
    follows: dict[Part, set[Part]] = {}
    for spec in cells:
        for part, sources in _sources(spec):
            follows.setdefault(part, set()).update(sources)
    return frozenset(follows) - transitive(read, lambda part: follows.get(part, ()))


def _sources(spec: CellSpec) -> list[tuple[Part, frozenset[Part]]]:
    """The parts that a cell writes, and those that the derivative of each flows to."""
    known: dict[Any, frozenset[Part]] = {}
    for c, parts in zip(spec.inputs, spec.input_parts, strict=True):
        known.update((value, frozenset({(c, i)})) for i, value in enumerate(parts))

    def of(atoms: Any) -> frozenset[Part]:
        return frozenset().union(*(known.get(a, ()) for a in atoms if isinstance(a, Value)))

    for op in spec.cell.ops:
        found = frozenset() if is_constant(op) else of(free_atoms(op))
        known.update((value, found) for value in op.outputs if has_derivative(value.aval))
    return [
        ((c, i), of([atom]))
        for c, parts in zip(spec.outputs, spec.output_parts, strict=True)
        for i, atom in enumerate(parts)
        if has_derivative(atom.aval)
    ]
