"""Where the backward pass of a cell is cut in two: what is kept, handed on, and run again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Var

from jaxrec.transpose._equations import (
    enlarging,
    needed,
    reachable,
    repeatable,
    row_axes,
    row_axis,
)
from jaxrec.transpose._traced_cell import TracedCell

Source = tuple[str, int]
"""Where a leaf of the vjp comes from: ("operand", k), ("saved", k) or ("fixed", k)."""


class FoldedRowsError(Exception):
    """What a cell keeps has no axis of rows: JAX has made one axis of rows and something else.

    Its rules for `vmap` of convolutions and of triangular solutions do, by sizes.
    """


class Cut:
    """The backward equations of a cell, divided between `loop` and `after`.

    Attributes:
        sources: where each leaf of the vjp comes from.
        saved: the leaves that the forward pass keeps, and `saved_axes` their axes of rows.
        vars: what `loop` hands to `after`, and `axes` their axes of rows.
        carrying: what is linear in the cotangents.
        loop: the equations that run wave by wave.
        after: those that run over the whole tape.
    """

    def __init__(self, traced: TracedCell, other: TracedCell) -> None:
        """Cuts a cell.

        Args:
            traced: the cell at one width.
            other: the same at another width: axes that differ are those of rows.

        Raises:
            FoldedRowsError: it cannot be cut so.
        """
        if not are_alike(traced, other):
            raise FoldedRowsError
        self.sources, self.saved_axes = _leaf_sources(traced, other)
        pairs = zip(_leaf_vars(traced), self.sources, strict=True)
        self.saved = [v for v, (kind, _) in pairs if kind == "saved"]
        self._divide(traced, other)
        _check_rows(traced, other, [*_leaf_vars(traced), *self.vars])

    def _divide(self, traced: TracedCell, other: TracedCell) -> None:
        jaxpr = traced.backward.jaxpr
        split, leaves = len(traced.operands.wrt_outers), jaxpr.invars[: len(self.sources)]
        outer_outs, input_outs = jaxpr.outvars[:split], jaxpr.outvars[split:]
        cotangents = set(jaxpr.invars[len(leaves) :])
        self.carrying = reachable(jaxpr.eqns, cotangents)
        self.loop = needed(jaxpr.eqns, input_outs)
        in_loop = set(map(id, self.loop))
        axes = row_axes(jaxpr.eqns, other.backward.jaxpr.eqns)
        pairs = zip(leaves, self.sources, strict=True)
        fixed = {v for v, source in pairs if _is_fixed(source, traced, other)}
        fixed.update(jaxpr.constvars)
        repeated = repeatable(jaxpr.eqns, fixed, {*jaxpr.constvars, *leaves})
        while True:
            behind = needed(jaxpr.eqns, outer_outs, stop=in_loop - repeated)
            self.after = [e for e in behind if id(e) not in in_loop or id(e) in repeated]
            from_loop = {v: e for e in self.loop if id(e) not in repeated for v in e.outvars}
            wanted = [a for e in self.after for a in e.invars] + list(outer_outs)
            wanted = [v for v in wanted if isinstance(v, Var) and v in from_loop]
            self.vars = list(dict.fromkeys(wanted))
            # What sums over rows inside the loop (a scan whose weights are outer values) has no
            # row to be stored in: it is computed again, over the whole tape.
            rowless = {id(from_loop[v]) for v in self.vars if axes[v] is None}
            again = rowless or enlarging(self.vars, from_loop, axes, cotangents)
            if not again:
                break
            repeated |= again
        self.axes = [axis for v in self.vars if (axis := axes[v]) is not None]


def row_aval(var: Any, axis: int) -> ShapedArray:
    """The type of one row of a value."""
    shape = [n for k, n in enumerate(var.aval.shape) if k != axis]
    return ShapedArray(tuple(shape), var.aval.dtype)


def are_alike(traced: TracedCell, other: TracedCell) -> bool:
    """Whether two traces are the same operations, on arrays of as many axes."""
    pairs = ((traced.forward, other.forward), (traced.backward, other.backward))
    return all(_operations(a) == _operations(b) for a, b in pairs)


def _operations(closed: ClosedJaxpr) -> list[Any]:
    made = [(eqn.primitive, [v.aval.ndim for v in eqn.outvars]) for eqn in closed.eqns]
    return [*made, [v.aval.ndim for v in closed.jaxpr.outvars]]


def _check_rows(traced: TracedCell, other: TracedCell, kept: Sequence[Any]) -> None:
    """Checks that in what is kept an axis that grows with the number of rows is that of rows."""
    wanted = {v for v in kept if isinstance(v, Var)}
    widths = traced.operands.width, other.operands.width
    for a, b in ((traced.forward, other.forward), (traced.backward, other.backward)):
        for v, w in zip(_made(a), _made(b), strict=True):
            if v not in wanted or v.aval.shape == w.aval.shape:
                continue
            sizes = zip(v.aval.shape, w.aval.shape, strict=True)
            if [pair for pair in sizes if pair[0] != pair[1]] != [widths]:
                raise FoldedRowsError


def _made(closed: ClosedJaxpr) -> list[Any]:
    return [v for eqn in closed.eqns for v in eqn.outvars]


def _leaf_vars(traced: TracedCell) -> list[Any]:
    return list(traced.forward.jaxpr.outvars[traced.outputs :])


def _leaf_sources(traced: TracedCell, other: TracedCell) -> tuple[list[Source], list[int]]:
    operands = {v: k for k, v in enumerate(traced.forward.jaxpr.invars)}
    constant = _constant(traced.forward)
    sources: list[Source] = []
    axes: list[int] = []
    pairs = zip(_leaf_vars(traced), _leaf_vars(other), strict=True)
    for k, (var, wide) in enumerate(pairs):
        axis = row_axis(var.aval, wide.aval)
        if isinstance(var, Var) and var in operands:
            sources.append(("operand", operands[var]))
        elif axis is None or var in constant:
            sources.append(("fixed", k))
        else:
            sources.append(("saved", len(axes)))
            axes.append(axis)
    return sources, axes


def _constant(closed: ClosedJaxpr) -> set[Any]:
    """What follows from no operand; of a row each cell may have its own, such as a basis."""
    found = set(closed.jaxpr.constvars)
    for eqn in closed.jaxpr.eqns:
        if all(a in found for a in eqn.invars if isinstance(a, Var)):
            found.update(eqn.outvars)
    return found


def _is_fixed(source: Source, traced: TracedCell, other: TracedCell) -> bool:
    """Whether a leaf is the same for all rows."""
    kind, k = source
    if kind != "operand":
        return kind == "fixed"
    a, b = traced.forward.jaxpr.invars[k], other.forward.jaxpr.invars[k]
    return k < traced.operands.outers and row_axis(a.aval, b.aval) is None
