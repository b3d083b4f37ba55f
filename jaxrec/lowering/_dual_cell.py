"""A cell that computes the tangent of every value beside it; see `jaxrec/split/_dual.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec._types import has_derivative
from jaxrec._values import replaced
from jaxrec._zeros import jvp_keeping_zeros
from jaxrec.split._axes import Tangents
from jaxrec.split._program import CellSpec, Program

PartsFunction = Callable[[Sequence[Any], Sequence[Any], Sequence[Any]], list[list[Any]]]
"""A cell for one call: `(outers, exports, parts of rows read) -> parts of rows written`."""


def dual_function(
    program: Program, spec: CellSpec, run: PartsFunction, axis: Tangents
) -> PartsFunction:
    """The cell with tangents, for one call.

    Args:
        program: the program.
        spec: its cell.
        run: the cell without tangents.
        axis: of the tangents.
    """
    count = len(spec.cell.outers)
    outers_moved = [k for k in range(count) if program.outers[spec.outers[k]] in axis.moving]
    moved = [
        (k, n)
        for k, parts in enumerate(spec.input_parts)
        for n, part in enumerate(parts)
        if part in axis.moving
    ]

    derive = _keeping_zeros if spec.cell.index in axis.in_part else jax.jvp

    def with_tangents(
        outers: Sequence[Any], exports: Sequence[Any], rows: Sequence[Any]
    ) -> list[list[Any]]:
        values = [
            [x[0] if has_derivative(atom.aval) else x for x, atom in zip(row, atoms, strict=True)]
            for row, atoms in zip(rows, spec.input_parts, strict=True)
        ]

        def of_moved(*changed: Any) -> list[list[Any]]:
            mine = list(map(list, values))
            for (k, n), x in zip(moved, changed[len(outers_moved) :], strict=True):
                mine[k][n] = x
            own = replaced(outers[:count], outers_moved, changed[: len(outers_moved)])
            return run(own, exports, mine)

        primals = [*(outers[k] for k in outers_moved), *(values[k][n] for k, n in moved)]
        tangents = [*outers[count:], *(rows[k][n][1] for k, n in moved)]
        made = zip(*derive(of_moved, primals, tangents), spec.output_parts, strict=True)
        return [
            [
                jnp.stack([x, dot]) if has_derivative(atom.aval) else x
                for x, dot, atom in zip(*row, strict=True)
            ]
            for row in made
        ]

    return with_tangents


def _keeping_zeros(
    fun: Callable[..., list[list[Any]]], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[list[Any]], list[list[Any]]]:
    """As `jax.jvp`, where some calls have tangents of zero since they have none."""
    lengths: list[int] = []

    def flat(*values: Any) -> list[Any]:
        rows = fun(*values)
        lengths[:] = map(len, rows)
        return [x for row in rows for x in row]

    made = jvp_keeping_zeros(flat, primals, tangents, again=True)
    outs, dots = ([list(itertools.islice(each, n)) for n in lengths] for each in map(iter, made))
    return outs, dots
