"""The backward pass of a cell in which cotangents of zero stay; see `jaxrec/_zeros.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params

from jaxrec._zeros import keeping_zeros
from jaxrec.transpose._equations import row_axis
from jaxrec.transpose._traced_cell import TracedCell


def with_zero_rows(traced: TracedCell, other: TracedCell) -> TracedCell:
    """The same cell.

    Args:
        traced: the cell at one width.
        other: the same at another width: axes that differ are those of rows.
    """
    closed, widths = traced.backward, (traced.operands.width, other.operands.width)
    rows = _rows(closed.jaxpr, other.backward.jaxpr, widths)
    leaves = len(traced.forward.jaxpr.outvars) - traced.outputs
    carries = [k >= leaves for k in range(len(closed.jaxpr.invars))]

    def run(*args: Any) -> list[Any]:
        return keeping_zeros(closed, args, carries, rows)

    return dataclasses.replace(traced, backward=jax.make_jaxpr(run)(*closed.in_avals))


def _rows(narrow: Any, wide: Any, widths: tuple[int, int]) -> dict[Any, int | None]:
    """The axis of rows of the values of a jaxpr, and of those inside it, where it is of rows alone.

    JAX may make one axis of rows and something else, as of the features of a convolution.
    """
    rows: dict[Any, int | None] = {}
    made = (v for eqn in narrow.eqns for v in eqn.outvars)
    same = (v for eqn in wide.eqns for v in eqn.outvars)
    for v, w in zip((*narrow.invars, *made), (*wide.invars, *same), strict=True):
        axis = row_axis(v.aval, w.aval)
        is_row = axis is not None and (v.aval.shape[axis], w.aval.shape[axis]) == widths
        rows[v] = axis if is_row else None
    for a, b in zip(narrow.eqns, wide.eqns, strict=True):
        pairs = zip(jaxprs_in_params(a.params), jaxprs_in_params(b.params), strict=True)
        for x, y in pairs:
            if len(x.eqns) == len(y.eqns):  # or JAX has other equations for other sizes
                inner = _rows(x, y, widths).items()
                # Of a jaxpr that two equations share only what holds in both.
                rows.update((v, axis if rows.get(v, axis) == axis else None) for v, axis in inner)
    return rows
