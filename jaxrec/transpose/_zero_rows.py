"""The backward pass of a cell in which cotangents of zero stay; see `jaxrec/_zeros.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from jaxrec._zeros import keeping_zeros
from jaxrec.transpose._equations import row_axes, row_axis
from jaxrec.transpose._traced_cell import TracedCell


def with_zero_rows(traced: TracedCell, other: TracedCell) -> TracedCell:
    """The same cell.

    Args:
        traced: the cell at one width.
        other: the same at another width: axes that differ are those of rows.
    """
    closed, jaxpr, wide = traced.backward, traced.backward.jaxpr, other.backward.jaxpr
    rows = row_axes(jaxpr.eqns, wide.eqns)
    pairs = zip(jaxpr.invars, wide.invars, strict=True)
    rows.update((v, row_axis(v.aval, w.aval)) for v, w in pairs)
    leaves = len(traced.forward.jaxpr.outvars) - traced.outputs
    carries = [k >= leaves for k in range(len(jaxpr.invars))]

    def run(*args: Any) -> list[Any]:
        return keeping_zeros(closed, args, carries, rows)

    return dataclasses.replace(traced, backward=jax.make_jaxpr(run)(*closed.in_avals))
