"""The differentiated cells of a program: what forward and backward replay share."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec._types import has_derivative
from jaxrec.graph._patience import starts_recursion
from jaxrec.lowering import _outers, _tapes, _waiting
from jaxrec.lowering._cell import row_by_row_function, wave_function
from jaxrec.lowering._forward import Scheduled, WaveCell, inputs_of, operands, quick_cell
from jaxrec.lowering._quick import quick
from jaxrec.lowering._read import Sum, Sums
from jaxrec.lowering._rows import gather, numbers, sum_over_readers
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._plan import LanePattern
from jaxrec.split._program import CellSpec, Program
from jaxrec.transpose._at_width import Doubled, UnlikeError, at_width
from jaxrec.transpose._cell_vjp import CellVjp
from jaxrec.transpose._cut import FoldedRowsError, are_alike
from jaxrec.transpose._traced_cell import Operands, Policy, TracedCell, trace_cell
from jaxrec.transpose._zero_rows import with_zero_rows


class Backward:
    """The differentiated cells of a program, by width."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        patterns: Sequence[LanePattern | None],
        outer_avals: Sequence[Any],
        outers: Sequence[int],
        policy: Policy,
        unread: frozenset[tuple[int, int]] = frozenset(),
        partial: frozenset[int] = frozenset(),
    ) -> None:
        """Differentiates nothing yet.

        Args:
            program: the program.
            layout: the sizes of its tapes.
            patterns: how lanes index outer values.
            outer_avals: the types of outer values.
            outers: those that are differentiated.
            policy: which intermediate results to keep.
            unread: parts of rows that have no cotangent, by tape class and number.
            partial: cells that some calls leave out of their derivative.
        """
        self.program, self.layout, self.patterns = program, layout, tuple(patterns)
        self._avals, self._wrt, self._policy = tuple(outer_avals), tuple(outers), policy
        self._cells: dict[Any, CellVjp] = {}
        self._traced: dict[Any, TracedCell] = {}
        self._pairs: dict[Any, tuple[TracedCell, TracedCell]] = {}
        self._row_by_row: dict[int, bool] = {}
        self._forward_only: dict[int, bool] = {}
        self._unread, self._partial = unread, partial
        self._narrowed: dict[Any, Backward] = {}

    def narrowed(self, unread: frozenset[tuple[int, int]], partial: frozenset[int]) -> Backward:
        """The same where some parts of rows have no cotangent, and calls leave some cells out.

        If there are such parts nothing is kept for it.
        """
        if not unread and not partial:
            return self
        key = (unread, partial)
        if key not in self._narrowed:
            policy = jax.checkpoint_policies.nothing_saveable if unread else self._policy
            types = (self._avals, self._wrt, policy, unread, partial)
            made = Backward(self.program, self.layout, self.patterns, *types)
            if not unread:  # the residuals are the same, and so is how cells are cut
                made._traced, made._row_by_row = self._traced, self._row_by_row
            self._narrowed[key] = made
        return self._narrowed[key]

    def at(self, spec: CellSpec, width: int, own_rows: bool = False) -> CellVjp:
        """A cell at a width; `own_rows` gives every outer value a row axis."""
        key = (spec.cell.index, width, own_rows)
        if key not in self._cells:
            self._cells |= self._cuts(spec, width, own_rows)
        return self._cells[key]

    def _cuts(self, spec: CellSpec, width: int, own_rows: bool) -> dict[Any, CellVjp]:
        """A cell at a width, and at those that it shares tapes with; row by row if need be."""
        index = spec.cell.index
        shared = {*self.layout.widths, self.layout.step_rows[index]}
        widths = {width} if own_rows or index in self._row_by_row else {width, *shared}
        known = None if own_rows else self._row_by_row.get(index)
        for row_by_row in (False, True) if known is None else (known,):
            with contextlib.suppress(FoldedRowsError):
                made = {
                    (index, n, own_rows): self._cut(spec, n, own_rows, row_by_row) for n in widths
                }
                if not own_rows:
                    self._row_by_row[index] = row_by_row
                return made
        raise AssertionError(f"{spec.cell.name} cannot be cut at width {width}")

    def _cut(self, spec: CellSpec, width: int, own_rows: bool, row_by_row: bool) -> CellVjp:
        two, three = self._pair(spec, 2, 3, own_rows, row_by_row)
        with contextlib.suppress(UnlikeError):
            return CellVjp(at_width(two, three, width), three)
        if width == 1:
            return Doubled(two, three)
        other = 2 if width > 2 else 3
        return CellVjp(*self._pair(spec, width, other, own_rows, row_by_row))

    def _pair(
        self, spec: CellSpec, width: int, other: int, own_rows: bool, row_by_row: bool
    ) -> tuple[TracedCell, TracedCell]:
        """A cell at two widths, in which zeros stay if some calls leave it out."""
        key = (spec.cell.index, width, other, own_rows, row_by_row)
        if key not in self._pairs:
            one, two = (self._trace(spec, n, own_rows, row_by_row) for n in (width, other))
            if spec.cell.index in self._partial:
                if not are_alike(one, two):
                    raise FoldedRowsError
                one, two = with_zero_rows(one, two), with_zero_rows(two, one)
            self._pairs[key] = one, two
        return self._pairs[key]

    def _trace(self, spec: CellSpec, width: int, own_rows: bool, row_by_row: bool) -> TracedCell:
        key = (spec.cell.index, width, own_rows, row_by_row)
        if key not in self._traced:
            fun = self._flat_function(spec, width, own_rows, row_by_row)
            operands = self._operands(spec, width, own_rows)
            try:
                self._traced[key] = trace_cell(fun, operands, self._kept(spec))
            except Exception as error:
                name = self.program.name
                error.add_note(f"This is from the derivative of the body of {name}.")
                raise
        return self._traced[key]

    def _kept(self, spec: CellSpec) -> Policy:
        """Which intermediate results of a cell to keep: of a recursion in it none has a row."""
        has_recursion = starts_recursion(spec.cell.ops)
        return jax.checkpoint_policies.nothing_saveable if has_recursion else self._policy

    def by_row(self, spec: CellSpec, own_rows: bool) -> list[bool]:
        """For each outer value of a cell, whether it has a row axis."""
        return [own or own_rows for own in _outers.outer_by_row(spec, self.patterns)]

    def is_differentiated(self, spec: CellSpec) -> bool:
        """Whether a cell has an operand whose cotangent is asked for."""
        return bool(self._operands(spec, 1, False).wrt)

    def keeps_residuals(self, spec: CellSpec) -> bool:
        """Whether a cell is differentiated, and can be in reverse.

        What JAX differentiates forward only, as `lax.while_loop`, keeps nothing for a backward
        pass; that raises JAX's error when there is one.
        """
        if not self.is_differentiated(spec):
            return False
        index = spec.cell.index
        if index not in self._forward_only:
            try:
                self.at(spec, self.layout.widths[0])
                self._forward_only[index] = False
            except (ValueError, NotImplementedError):
                self._forward_only[index] = True
        return not self._forward_only[index]

    def has_loop(self, spec: CellSpec) -> bool:
        """Whether a cell has a tape input with a cotangent."""
        return bool(self._operands(spec, 1, False).wrt_inputs)

    def residual_types(self, spec: CellSpec) -> tuple[Any, ...]:
        """Types of one row of the residuals that the forward pass keeps for a cell."""
        return self.at(spec, self.layout.widths[0]).saved if self.keeps_residuals(spec) else ()

    def _flat_function(
        self, spec: CellSpec, width: int, own_rows: bool, row_by_row: bool
    ) -> Callable[..., list[Any]]:
        make = row_by_row_function if row_by_row else wave_function
        fun = make(self.program, spec, self.by_row(spec, own_rows), width, self._unread)
        first_export = len(spec.outers)
        first_input = first_export + len(spec.cell.exports)

        def run(*values: Any) -> list[Any]:
            exports = values[first_export:first_input]
            return fun(values[:first_export], exports, values[first_input:])

        return run

    def _operands(self, spec: CellSpec, width: int, own_rows: bool) -> Operands:
        avals: list[Any] = []
        for position, own in zip(spec.outers, self.by_row(spec, own_rows), strict=True):
            aval = self._avals[position]
            shape = aval.shape[1:] if self.patterns[position] is not None else aval.shape
            avals.append(_shape((width, *shape) if own else shape, aval.dtype))
        rows = [v.aval for v in spec.cell.exports]
        rows += [self.program.classes[c] for c in spec.inputs]
        avals += [_shape((width, *a.shape), a.dtype) for a in rows]
        first = len(spec.outers) + len(spec.cell.exports)
        return Operands(
            width=width,
            avals=tuple(avals),
            outers=len(spec.outers),
            wrt_outers=tuple(k for k, p in enumerate(spec.outers) if p in self._wrt),
            wrt_inputs=tuple(
                first + k
                for k, c in enumerate(spec.inputs)
                if has_derivative(self.program.classes[c])
            ),
            carries=tuple(has_derivative(self.program.classes[c]) for c in spec.outputs),
        )


def _shape(shape: Sequence[int], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def residual_cell(backward: Backward) -> Any:
    """The cells of a forward pass that keeps residuals, for `run_forward`."""

    def cell_at(at: Scheduled, spec: CellSpec, width: int) -> Any:
        if not backward.keeps_residuals(spec):
            return quick_cell(at, spec, width)
        vjp = backward.at(spec, width)
        run = quick(lambda *read: vjp.forward([x for part in read for x in part]))
        return WaveCell(run, vjp.waits)

    return cell_at


def residual_tapes(backward: Backward) -> list[list[Any]]:
    """Empty residual tapes, for each cell one a residual."""
    return tapes_by_cell(backward, [backward.residual_types(s) for s in backward.program.cells])


def tapes_by_cell(backward: Backward, types: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Empty tapes, for each cell one a type."""
    rows = [n for n, mine in zip(backward.layout.cell_rows, types, strict=True) for _ in mine]
    flat = iter(_tapes.empty_tapes(rows, [aval for mine in types for aval in mine]))
    return [[next(flat) for _ in mine] for mine in types]


def most_readers(at: Scheduled) -> list[list[int | None]]:
    """How many read a value of an invocation at most: see `Program.most_readers`."""
    return at.program.most_readers(at.layout.collect)


@dataclasses.dataclass(frozen=True)
class Replay:
    """The state that stays the same while the waves run in reverse."""

    at: Scheduled
    backward: Backward
    tapes: Sequence[Any]
    residuals: Sequence[Sequence[Any]]

    def values(self, spec: CellSpec, start: Any, width: int, rows: _waiting.Rows) -> list[Any]:
        """The operands of a cell, flat."""
        inputs = inputs_of(self.at, spec, self.tapes, start, width, rows)
        outers, exports, inputs = operands(self.at, spec, inputs, start, width, rows)
        return [*outers, *exports, *inputs]

    def saved(self, spec: CellSpec, start: Any, width: int) -> list[Any]:
        """The residuals of a cell."""
        return [_tapes.block(t, start, width) for t in self.residuals[spec.cell.index]]

    def sums(self, spec: CellSpec, ct_tapes: Any) -> Sums:
        """What the cotangents of a cell's outputs are made of: for each row a sum over readers."""
        at, index = self.at, spec.cell.index
        readers, most = at.tables.cells[index].readers, most_readers(at)[index]
        return [
            Sum(ct_tapes[c], at.tables.reader_rows[c], pointers, n)
            for c, pointers, n in zip(spec.outputs, readers, most, strict=True)
            if ct_tapes[c] is not None
        ]

    def cotangents(
        self, spec: CellSpec, ct_tapes: Any, start: Any, width: int, end: Any
    ) -> list[Any]:
        """The cotangents of a cell's outputs.

        Args:
            spec: the cell.
            ct_tapes: cotangents by read row.
            start: the first row.
            width: how many rows.
            end: the row from which on they are zeros.
        """
        rows = jnp.minimum(start + numbers(width + 1), end)
        return [
            sum_over_readers(x.tape, x.reader_rows, gather(x.pointers, rows), x.most)
            for x in self.sums(spec, ct_tapes)
        ]
