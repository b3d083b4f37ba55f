"""The backward replay: the waves of the schedule in reverse.

A call's results are read at known places. Each reader writes the cotangent of what it read into a
block of the *cotangent tape*, so the cotangent of a value is a gather from there and a sum over
its readers: no scatter, no scheduling, no predicate a second time. Rows are right-aligned: what a
wave computes in front of its first row falls on rows that an earlier wave, which runs later here,
overwrites.

Source: Jeong et al. (EuroSys 2018), section 4.2, for a backward graph that finds forward values by
call path; Appel's "tape" order is the schedule itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrec.lowering import _wave
from jaxrec.lowering._cell import pack, unpack, wave_function
from jaxrec.lowering._forward import Bound, operands, operands_at, plain_cell, select_rows
from jaxrec.lowering._rows import gather_rows, sum_over_readers
from jaxrec.lowering._zero import keeps_zero
from jaxrec.schedule._layout import Layout, Tables, cell_count, collect_start, result_start
from jaxrec.schedule._plan import LanePattern
from jaxrec.split._patience import has_to_wait
from jaxrec.split._program import CellSpec, Program
from jaxrec.transpose._cell_vjp import CellVjp, Operands, Policy, cell_vjp

_AFTER_BYTES = 1 << 28
"""Bound on the memory of cotangents that are kept apart by lane."""


@dataclasses.dataclass(frozen=True)
class Want:
    """Which cotangents are asked for.

    Attributes:
        outers: positions of outer values.
        roots: positions of data arguments of the root.
        lanes: for each of `outers`, how lanes index its cotangent; None for one sum over lanes.
    """

    outers: tuple[int, ...]
    roots: tuple[int, ...]
    lanes: tuple[LanePattern | None, ...]


def has_cotangent(aval: Any) -> bool:
    """Whether values of a type are differentiable."""
    return jnp.issubdtype(aval.dtype, jnp.inexact)


class Backward:
    """The differentiated cells of a program, by width: what forward and backward replay share."""

    def __init__(
        self,
        program: Program,
        layout: Layout,
        patterns: Sequence[LanePattern | None],
        outer_avals: Sequence[Any],
        outers: Sequence[int],
        policy: Policy,
    ) -> None:
        self.program, self.layout, self.patterns = program, layout, tuple(patterns)
        self._avals, self._wrt, self._policy = tuple(outer_avals), tuple(outers), policy
        self._cells: dict[Any, CellVjp] = {}

    def at(self, spec: CellSpec, width: int, own_rows: bool = False) -> CellVjp:
        """A cell at a width; `own_rows` gives every outer value a row axis."""
        key = (spec.cell.index, width, own_rows)
        if key not in self._cells:
            self._cells[key] = cell_vjp(
                lambda n: self._flat_function(spec, n, own_rows),
                lambda n: self._operands(spec, n, own_rows),
                width,
                self._policy,
            )
        return self._cells[key]

    def by_row(self, spec: CellSpec, own_rows: bool) -> list[bool]:
        """For each outer value of a cell, whether it has a row axis."""
        return [own or own_rows for own in _wave.outer_by_row(spec, self.patterns)]

    def is_differentiated(self, spec: CellSpec) -> bool:
        """Whether a cell has an operand whose cotangent is asked for."""
        return bool(self._operands(spec, 1, False).wrt)

    def has_loop(self, spec: CellSpec) -> bool:
        """Whether a cell has a tape input with a cotangent."""
        return bool(self._operands(spec, 1, False).wrt_inputs)

    def residual_types(self, spec: CellSpec) -> tuple[Any, ...]:
        """Types of one row of the residuals that the forward pass keeps for a cell."""
        return self.at(spec, self.layout.widths[0]).saved if self.is_differentiated(spec) else ()

    def _flat_function(self, spec: CellSpec, width: int, own_rows: bool) -> Any:
        fun = wave_function(self.program, spec, self.by_row(spec, own_rows), width)
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
            avals=tuple(avals),
            outers=len(spec.outers),
            wrt_outers=tuple(k for k, p in enumerate(spec.outers) if p in self._wrt),
            wrt_inputs=tuple(
                first + k
                for k, c in enumerate(spec.inputs)
                if has_cotangent(self.program.classes[c])
            ),
            carries=tuple(has_cotangent(self.program.classes[c]) for c in spec.outputs),
        )


def _shape(shape: Sequence[int], dtype: Any) -> Any:
    return jax.ShapeDtypeStruct(tuple(shape), dtype)


def residual_cell(backward: Backward) -> Any:
    """The cells of a forward pass that keeps residuals, for `run_forward`."""

    def cell_at(bound: Bound, spec: CellSpec, width: int) -> Any:
        if not backward.is_differentiated(spec):
            return plain_cell(bound, spec, width)
        vjp = backward.at(spec, width)
        return lambda outers, exports, inputs: vjp.forward([*outers, *exports, *inputs])

    return cell_at


def residual_tapes(backward: Backward) -> list[list[Any]]:
    """Empty residual tapes, for each cell one a residual."""
    return tapes_by_cell(backward, [backward.residual_types(s) for s in backward.program.cells])


def tapes_by_cell(backward: Backward, types: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Empty tapes, for each cell one a type."""
    rows = [n for n, mine in zip(backward.layout.cell_rows, types, strict=True) for _ in mine]
    flat = iter(_wave.empty_tapes(rows, [aval for mine in types for aval in mine]))
    return [[next(flat) for _ in mine] for mine in types]


@dataclasses.dataclass(frozen=True)
class Replay:
    """The state that stays the same while the waves run in reverse."""

    bound: Bound
    backward: Backward
    tapes: Sequence[Any]
    residuals: Sequence[Sequence[Any]]

    def values(self, spec: CellSpec, start: Any, width: int) -> list[Any]:
        """The operands of a cell, flat."""
        outers, exports, inputs = operands(self.bound, spec, self.tapes, start, width)
        return [*outers, *exports, *inputs]

    def with_rows(self, spec: CellSpec, outers: Sequence[Any], width: int) -> list[Any]:
        """The outer values of a cell, all with a row axis."""
        by_row = _wave.outer_by_row(spec, self.bound.patterns)
        return [
            x if own else jnp.broadcast_to(x, (width, *x.shape))
            for x, own in zip(outers, by_row, strict=True)
        ]

    def saved(self, spec: CellSpec, start: Any, width: int) -> list[Any]:
        """The residuals of a cell."""
        return [_wave.block(t, start, width) for t in self.residuals[spec.cell.index]]

    def cotangents(self, spec: CellSpec, ct_tapes: Any, start: Any, width: int) -> list[Any]:
        """The cotangents of a cell's outputs: for each row the sum over its readers."""
        readers = self.bound.tables.readers[spec.cell.index]
        return [
            sum_over_readers(
                ct_tapes[c], self.bound.tables.reader_rows[c], _wave.block(ptr, start, width + 1)
            )
            for c, ptr in zip(spec.outputs, readers, strict=True)
            if ct_tapes[c] is not None
        ]


def run_backward(
    bound: Bound,
    backward: Backward,
    tapes: Sequence[Any],
    residuals: Sequence[Sequence[Any]],
    cotangents: Sequence[Any],
    want: Want,
) -> tuple[list[Any], list[Any]]:
    """Runs the waves in reverse.

    Args:
        bound: the invocation, with the tables of its schedule.
        backward: its differentiated cells.
        tapes: value tapes of the forward pass.
        residuals: residual tapes of the forward pass.
        cotangents: of the differentiable results, `[lanes, ...]`, then of the collected ones.
        want: what to return.

    Returns:
        Cotangents of outer values and of data arguments of the roots.
    """
    replay = Replay(bound, backward, tapes, residuals)
    ct_tapes = initial_cotangents(bound, cotangents)
    cut_tapes = tapes_by_cell(backward, [cut_types(backward, s) for s in bound.program.cells])
    bodies = {
        kind: _body(replay, spec, width)
        for kind, spec, width in bound.waves_of
        if backward.has_loop(spec)
    }
    ct_tapes, cut_tapes = _wave.run_waves(
        bound.program, bound.layout, bound.tables, bodies, (ct_tapes, cut_tapes), backward=True
    )
    cut_tapes = [
        settle_cuts(bound, backward, spec, tapes)
        for spec, tapes in zip(bound.program.cells, cut_tapes, strict=True)
    ]
    outer_cts = _outer_cotangents(replay, ct_tapes, cut_tapes, want)
    root_cts = root_cotangents(bound, ct_tapes, want)
    return outer_cts, [x + zero_of(bound.tables, x.dtype) for x in root_cts]


def cut_types(backward: Backward, spec: CellSpec) -> tuple[Any, ...]:
    """Types of one row of the cut of a cell."""
    return backward.at(spec, backward.layout.widths[0]).cuts if backward.has_loop(spec) else ()


def settle_residuals(bound: Bound, residuals: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Repeats the last row of each residual tape, so that a step past it finds valid rows."""

    def settled(spec: CellSpec, tape: Any) -> Any:
        end = _end(bound, spec)
        last = lax.dynamic_index_in_dim(tape, end - 1, keepdims=True)
        rows = jnp.broadcast_to(last, (bound.layout.step_rows, *tape.shape[1:]))
        return _wave.put(tape, rows, end)

    pairs = zip(bound.program.cells, residuals, strict=True)
    return [[settled(spec, tape) for tape in tapes] for spec, tapes in pairs]


def settle_cuts(
    bound: Bound, backward: Backward, spec: CellSpec, tapes: Sequence[Any]
) -> list[Any]:
    """Ends each cut tape: with zeros if it holds cotangents, else with its last row repeated."""
    if not tapes:
        return []
    end, found = _end(bound, spec), []
    for tape, carries in zip(
        tapes, backward.at(spec, bound.layout.widths[0]).cut_carries, strict=True
    ):
        last = lax.dynamic_index_in_dim(tape, end - 1, keepdims=True)
        row = jnp.zeros_like(last) if carries else last
        rows = jnp.broadcast_to(row, (bound.layout.step_rows, *tape.shape[1:]))
        found.append(_wave.put(tape, rows, end))
    return found


def _end(bound: Bound, spec: CellSpec) -> Any:
    """The first row of a cell that no wave has written."""
    return bound.layout.pad + cell_count(bound.program, bound.tables, spec.cell.index)


def initial_cotangents(bound: Bound, cotangents: Sequence[Any]) -> list[Any]:
    """Cotangent tapes with the cotangents of the results; None for classes without."""
    program, layout, tables = bound.program, bound.layout, bound.tables
    carrying = [c for c, aval in enumerate(program.classes) if has_cotangent(aval)]
    made = _wave.empty_tapes(
        [layout.read_rows[c] for c in carrying], [program.classes[c] for c in carrying]
    )
    tapes: list[Any] = [None] * len(program.classes)
    for c, tape in zip(carrying, made, strict=True):
        tapes[c] = tape
    starts = [result_start(tables, k) for k in range(len(program.result_classes))]
    if layout.collect:
        starts += [collect_start(program, tables, k) for k in range(len(program.result_classes))]
    classes = program.result_classes * (2 if layout.collect else 1)
    for c, rows, start in zip(classes, _packed(bound, cotangents), starts, strict=True):
        if tapes[c] is not None:
            tapes[c] = _wave.put(tapes[c], rows, start)
    return tapes


def _packed(bound: Bound, cotangents: Sequence[Any]) -> list[Any]:
    """Cotangents of results by tape row; None for rows without."""
    program = bound.program
    given = iter(cotangents)
    found = []
    for _ in range(2 if bound.layout.collect else 1):
        by_result = [next(given) if has_cotangent(a) else None for a in program.result_avals]
        for c, parts in program.result_rows:
            carries = has_cotangent(program.classes[c])
            found.append(pack([by_result[k] for k in parts], batch=1) if carries else None)
    return found


def _body(replay: Replay, spec: CellSpec, width: int) -> Any:
    vjp = replay.backward.at(spec, width)
    first_read = 3 + replay.bound.program.max_outputs
    classes = replay.bound.program.classes
    slots = [(k, c) for k, c in enumerate(spec.inputs) if has_cotangent(classes[c])]

    def run(wave: Any, state: Any) -> Any:
        ct_tapes, cut_tapes = list(state[0]), list(state[1])
        shift = wave[1] - width
        start = wave[2] + shift
        read = (
            replay.values(spec, start, width),
            replay.saved(spec, start, width),
            replay.cotangents(spec, ct_tapes, start, width),
        )
        d_inputs, cuts = _wave.in_its_wave(spec, wave[1] > 0, vjp.loop, *read)
        # The last block first: what falls in front of a block is overwritten by the one before it.
        for (k, c), rows in reversed(list(zip(slots, d_inputs, strict=True))):
            ct_tapes[c] = _wave.put(ct_tapes[c], rows, wave[first_read + k] + shift)
        index = spec.cell.index
        cut_tapes[index] = [
            _wave.put(tape, rows, start) for tape, rows in zip(cut_tapes[index], cuts, strict=True)
        ]
        return ct_tapes, cut_tapes

    return run


def root_cotangents(bound: Bound, ct_tapes: Sequence[Any], want: Want) -> list[Any]:
    """The cotangents of the roots' data arguments that are asked for."""
    program, tables = bound.program, bound.tables
    found: dict[int, Any] = {}
    for (c, parts), pointers in zip(program.data_rows, tables.root_readers, strict=True):
        if set(parts).intersection(want.roots):
            rows = sum_over_readers(ct_tapes[c], tables.reader_rows[c], pointers)
            found.update(zip(parts, unpack(rows, program.members[c], batch=1), strict=True))
    return [found[position] for position in want.roots]


def zero_of(tables: Tables, dtype: Any) -> Any:
    """Zero, to which a schedule's cotangents are added; NaN where the residuals are blank."""
    return jnp.where(tables.num_waves < 0, jnp.nan, 0.0).astype(dtype)


def _outer_cotangents(
    replay: Replay, ct_tapes: Sequence[Any], cut_tapes: Sequence[Sequence[Any]], want: Want
) -> list[Any]:
    lanes = dict(zip(want.outers, want.lanes, strict=True))
    bound = replay.bound
    zeros = {
        p: jnp.broadcast_to(
            zero_of(bound.tables, bound.outers[p].dtype), total_shape(bound, p, pattern)
        )
        for p, pattern in lanes.items()
    }
    totals: dict[int, Any] = {}
    for spec in replay.bound.program.cells:
        mine = [p for p in spec.outers if p in zeros]
        if mine:
            after = After(replay, spec, ct_tapes, cut_tapes[spec.cell.index], lanes)
            fresh = not totals.keys() & set(mine)
            totals |= after.run({p: totals.get(p, zeros[p]) for p in mine}, fresh)
    return [totals.get(p, zeros[p]) for p in want.outers]


def total_shape(bound: Bound, position: int, lanes: LanePattern | None) -> tuple[int, ...]:
    """The shape of the cotangent of an outer value."""
    shape = bound.outers[position].shape
    if lanes is None or bound.patterns[position] is not None:
        return shape
    return (lanes[1], *shape)


class After:
    """The contraction over all rows of a cell, in steps, after the loop."""

    def __init__(
        self,
        replay: Replay,
        spec: CellSpec,
        ct_tapes: Sequence[Any],
        cut_tapes: Sequence[Any],
        lanes: dict[int, LanePattern | None],
    ) -> None:
        self.replay, self.spec, self.ct_tapes, self.cut_tapes = replay, spec, ct_tapes, cut_tapes
        patterns = replay.bound.patterns
        self._keeps_zero = keeps_zero(replay.bound.program, spec)
        self.lanes = {p: patterns[p] or lanes[p] for p in spec.outers if p in lanes}
        self.own_rows = not self._keeps_zero or any(
            lane is not None and patterns[p] is None for p, lane in self.lanes.items()
        )
        self.width = min(replay.bound.layout.step_rows, self._affordable())
        self.vjp = replay.backward.at(spec, self.width, self.own_rows)

    def _affordable(self) -> int:
        """Rows for which outer values with a row axis fit in memory."""
        by_row = self.replay.backward.by_row(self.spec, self.own_rows)
        size = sum(
            self.replay.bound.outers[p].nbytes
            for p, own in zip(self.spec.outers, by_row, strict=True)
            if own
        )
        return max(2, _AFTER_BYTES // max(size, 1))

    def run(self, totals: dict[int, Any], fresh: bool) -> dict[int, Any]:
        """Adds the contributions of all rows to `totals`, which are zeros if they are `fresh`."""
        bound = self.replay.bound
        count = cell_count(bound.program, bound.tables, self.spec.cell.index)
        first = jnp.zeros_like(count)

        def step(carry: Any) -> Any:
            done, current = carry
            if not has_to_wait(self.spec.cell.ops):
                return done + self.width, self._step(done, count, current)
            return done + self.width, self._step_if_any(done, count, current)

        if fresh:
            # One step is the rule: outside a loop XLA adds its contribution to no zeros.
            totals = self._step_if_any(first, count, totals)
            first = first + self.width
        return lax.while_loop(lambda c: c[0] < count, step, (first, totals))[1]

    def _step_if_any(self, done: Any, count: Any, totals: dict[int, Any]) -> dict[int, Any]:
        return lax.cond(done < count, lambda: self._step(done, count, totals), lambda: totals)

    def _step(self, done: Any, count: Any, totals: dict[int, Any]) -> dict[int, Any]:
        """Adds the contribution of the rows from `done`; rows past the last add zeros."""
        start = self.replay.bound.layout.pad + done
        values = self._values(start, count)
        saved = self._saved(start, values)
        cts = self._cotangents(start)
        cuts = self._cuts(values, saved, cts, start)
        return self._add(values, saved, cts, cuts, totals, start, count)

    def _values(self, start: Any, count: Any) -> list[Any]:
        bound = self.replay.bound
        last = bound.layout.pad + count - 1
        rows = jnp.minimum(start + jnp.arange(self.width), last)
        outers, exports, inputs = operands_at(
            bound, self.spec, self.replay.tapes, rows, gather_rows
        )
        if self.own_rows:
            outers = self.replay.with_rows(self.spec, outers, self.width)
        return [*outers, *exports, *inputs]

    def _saved(self, start: Any, values: list[Any]) -> list[Any]:
        if self.own_rows:
            return self.vjp.forward(values)[1]
        return self.replay.saved(self.spec, start, self.width)

    def _cotangents(self, start: Any) -> list[Any]:
        if self.own_rows or not self.vjp.has_loop or self.vjp.after_reads_cotangents:
            return self.replay.cotangents(self.spec, self.ct_tapes, start, self.width)
        classes = self.replay.bound.program.classes
        carrying = [classes[c] for c in self.spec.outputs if has_cotangent(classes[c])]
        return [jnp.zeros((self.width, *a.shape), a.dtype) for a in carrying]

    def _cuts(self, values: Any, saved: Any, cts: Any, start: Any) -> list[Any]:
        if not self.vjp.has_loop:
            return []
        if self.own_rows:
            return self.vjp.loop(values, saved, cts)[1]
        return [_wave.block(tape, start, self.width) for tape in self.cut_tapes]

    def _add(
        self, values: Any, saved: Any, cts: Any, cuts: Any, totals: Any, start: Any, count: Any
    ) -> dict[int, Any]:
        spec, width = self.spec, self.width
        by_row = self.replay.backward.by_row(spec, self.own_rows)
        positions = [spec.outers[k] for k in self.vjp.operands.wrt_outers]
        rows = {p for p, own in zip(spec.outers, by_row, strict=True) if own}
        shapes = {p: totals[p].shape[1:] if self.lanes[p] else totals[p].shape for p in positions}
        given = [
            jnp.zeros((width, *shapes[p]), totals[p].dtype) if p in rows else totals[p]
            for p in positions
        ]
        summed = self.vjp.after(values, saved, cts, cuts, given)
        if not self._keeps_zero:
            valid = start + jnp.arange(width) < self.replay.bound.layout.pad + count
            summed = [select_rows(valid, x) for x in summed]
        lanes = _wave.cell_lanes(spec, self.replay.bound.tables, start, width)
        return {
            p: self._by_lane(totals[p], x, lanes, self.lanes[p]) if p in rows else x
            for p, x in zip(positions, summed, strict=True)
        }

    @staticmethod
    def _by_lane(total: Any, rows: Any, lanes: Any, pattern: LanePattern | None) -> Any:
        if pattern is None:
            return total + rows.sum(0)
        stride, size = pattern
        return total.at[(lanes // stride) % size].add(rows)
