"""The backward pass of a cell in which cotangents of zero stay; see `jaxrec/_zeros.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jax.extend.core import jaxprs_in_params

from jaxrec._zeros import keeping_zeros
from jaxrec.transpose._equations import row_axes, row_axis
from jaxrec.transpose._traced_cell import TracedCell


def with_zero_rows(traced: TracedCell, other: TracedCell) -> TracedCell:
    """The same cell.

    Args:
        traced: the cell at one width.
        other: the same at another width: axes that differ are those of rows.
    """
    closed, rows = traced.backward, _rows(traced.backward.jaxpr, other.backward.jaxpr)
    leaves = len(traced.forward.jaxpr.outvars) - traced.outputs
    carries = [k >= leaves for k in range(len(closed.jaxpr.invars))]

    def run(*args: Any) -> list[Any]:
        return keeping_zeros(closed, args, carries, rows)

    return dataclasses.replace(traced, backward=jax.make_jaxpr(run)(*closed.in_avals))


def _rows(narrow: Any, wide: Any) -> dict[Any, int | None]:
    """The axis of rows of the values of a jaxpr, and of those inside it."""
    pairs = zip(narrow.invars, wide.invars, strict=True)
    rows = {v: row_axis(v.aval, w.aval) for v, w in pairs}
    rows |= row_axes(narrow.eqns, wide.eqns)
    for a, b in zip(narrow.eqns, wide.eqns, strict=True):
        pairs = zip(jaxprs_in_params(a.params), jaxprs_in_params(b.params), strict=True)
        for x, y in pairs:
            if len(x.eqns) == len(y.eqns):  # or JAX has other equations for other sizes
                rows |= _rows(x, y)
    return rows
