"""A cell that computes the tangent of every value beside it; see `jaxrec/split/_dual.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec._values import replaced
from jaxrec.graph._ir import Atom, has_derivative
from jaxrec.lowering._pack import pack, unpack
from jaxrec.split._dual import dual_type
from jaxrec.split._program import CellSpec, Program

RowFunction = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[Any]]
"""A cell for one call: `(outers, exports, inputs) -> outputs`."""


def dual_row_function(program: Program, spec: CellSpec, run: RowFunction) -> RowFunction:
    """The cell of a program with tangents, for one call.

    Args:
        program: with tangents.
        spec: its cell.
        run: the cell without tangents.
    """
    assert program.moving is not None
    count = len(spec.cell.outers)
    outers_moved = [k for k in range(count) if program.outers[spec.outers[k]] in program.moving]
    moved = [
        (k, n)
        for k, parts in enumerate(spec.input_parts)
        for n, part in enumerate(parts)
        if part in program.moving
    ]

    def with_tangents(
        outers: Sequence[Any], exports: Sequence[Any], inputs: Sequence[Any]
    ) -> list[Any]:
        parts = [
            unpack(row, list(map(_dual, atoms)))
            for row, atoms in zip(inputs, spec.input_parts, strict=True)
        ]
        values = [
            [x[0] if has_derivative(atom) else x for x, atom in zip(mine, atoms, strict=True)]
            for mine, atoms in zip(parts, spec.input_parts, strict=True)
        ]

        def of_moved(*changed: Any) -> list[Any]:
            mine = [list(row) for row in values]
            for (k, n), x in zip(moved, changed[len(outers_moved) :], strict=True):
                mine[k][n] = x
            own = replaced(outers[:count], outers_moved, changed[: len(outers_moved)])
            return run(own, exports, list(map(pack, mine)))

        primals = [*(outers[k] for k in outers_moved), *(values[k][n] for k, n in moved)]
        tangents = [*outers[count:], *(parts[k][n][1] for k, n in moved)]
        outs, dots = jax.jvp(of_moved, primals, tangents)
        rows = zip(outs, dots, spec.output_parts, strict=True)
        return [_beside(out, dot, atoms) for out, dot, atoms in rows]

    return with_tangents


def _beside(row: Any, tangent: Any, atoms: Sequence[Atom]) -> Any:
    """A row of values and tangents, of a row of each."""
    if not has_derivative(atoms[0]):
        return row
    avals = [atom.aval for atom in atoms]
    pairs = zip(unpack(row, avals), unpack(tangent, avals), strict=True)
    return pack([jnp.stack(pair) for pair in pairs])


def _dual(atom: Atom) -> Any:
    return dual_type(atom.aval)
