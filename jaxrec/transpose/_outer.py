"""The cotangents of outer values: contractions over all rows of a cell, after the waves in reverse.

What all calls read is not differentiated wave by wave, since each wave would add to whole weights:
rows of many waves go through one contraction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxrec._types import has_derivative
from jaxrec.lowering import _outers, _tapes
from jaxrec.lowering._forward import Scheduled, operands_at
from jaxrec.lowering._repeatable import is_repeatable
from jaxrec.lowering._rows import gather_rows, numbers, select_rows
from jaxrec.schedule._plan import LanePattern, element_of
from jaxrec.schedule._tables import Tables, cell_count
from jaxrec.split._program import CellSpec
from jaxrec.transpose._cells import Replay

_AFTER_BYTES = 1 << 28
"""Bound on the memory of cotangents that are kept apart by lane."""


def outer_cotangents(
    replay: Replay,
    ct_tapes: Sequence[Any],
    cut_tapes: Sequence[Sequence[Any]],
    lanes: dict[int, LanePattern | None],
) -> list[Any]:
    """The cotangents of some outer values.

    Args:
        replay: the invocation.
        ct_tapes: cotangents by read row.
        cut_tapes: of each cell, what its loop keeps for the contraction.
        lanes: of each value asked for, how lanes index its cotangent; None for a sum over lanes.
    """
    at = replay.at
    zeros = {
        p: jnp.broadcast_to(zero_of(at.tables, at.outers[p].dtype), total_shape(at, p, pattern))
        for p, pattern in lanes.items()
    }
    totals: dict[int, Any] = {}
    for spec in replay.at.program.cells:
        mine = [p for p in spec.outers if p in zeros]
        if mine:
            after = After(replay, spec, ct_tapes, cut_tapes[spec.cell.index], lanes)
            fresh = not totals.keys() & set(mine)
            totals |= after.run({p: totals.get(p, zeros[p]) for p in mine}, fresh)
    return [totals.get(p, zeros[p]) for p in lanes]


def zero_of(tables: Tables, dtype: Any) -> Any:
    """Zero, to which a schedule's cotangents are added; NaN where the residuals are blank."""
    return jnp.where(tables.num_waves < 0, jnp.nan, 0.0).astype(dtype)


def total_shape(at: Scheduled, position: int, lanes: LanePattern | None) -> tuple[int, ...]:
    """The shape of the cotangent of an outer value."""
    shape = at.outers[position].shape
    if lanes is None or at.patterns[position] is not None:
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
        patterns = replay.at.patterns
        self.lanes = {p: patterns[p] or lanes[p] for p in spec.outers if p in lanes}
        self.own_rows = not is_repeatable(replay.at.program, spec) or any(
            lane is not None and patterns[p] is None for p, lane in self.lanes.items()
        )
        self.width = min(replay.at.layout.step_rows[spec.cell.index], self._affordable())
        self.vjp = replay.backward.at(spec, self.width, self.own_rows)

    def _affordable(self) -> int:
        """Rows for which outer values with a row axis fit in memory."""
        by_row = self.replay.backward.by_row(self.spec, self.own_rows)
        size = sum(
            self.replay.at.outers[p].nbytes
            for p, own in zip(self.spec.outers, by_row, strict=True)
            if own
        )
        return max(2, _AFTER_BYTES // max(size, 1))

    def run(self, totals: dict[int, Any], fresh: bool) -> dict[int, Any]:
        """Adds the contributions of all rows to `totals`, which are zeros if they are `fresh`."""
        at = self.replay.at
        count = cell_count(at.program, at.tables, self.spec.cell.index)
        # A loop by the width would be run a wrong number of times by XLA where the count is a
        # constant below it.
        steps = (count + self.width - 1) // self.width
        first = jnp.zeros_like(count)

        def step(carry: Any) -> Any:
            number, current = carry
            done = number * self.width
            if not self.vjp.waits:
                return number + 1, self._step(done, count, current)
            return number + 1, self._step_if_any(done, count, current)

        if fresh:
            # One step is the rule: outside a loop XLA adds its contribution to no zeros.
            totals = self._step_if_any(first, count, totals)
            first = first + 1
        return lax.while_loop(lambda c: c[0] < steps, step, (first, totals))[1]

    def _step_if_any(self, done: Any, count: Any, totals: dict[int, Any]) -> dict[int, Any]:
        return lax.cond(done < count, lambda: self._step(done, count, totals), lambda: totals)

    def _step(self, done: Any, count: Any, totals: dict[int, Any]) -> dict[int, Any]:
        """Adds the contribution of the rows from `done`; rows past the last add zeros."""
        start = self.replay.at.layout.pad + done
        values = self._values(start, count)
        saved = self._saved(start, values)
        cts = self._cotangents(start, count - done)
        cuts = self._cuts(values, saved, cts, start)
        return self._add(values, saved, cts, cuts, totals, start, count)

    def _values(self, start: Any, count: Any) -> list[Any]:
        at = self.replay.at
        last = at.layout.pad + count - 1
        rows = jnp.minimum(start + numbers(self.width), last)
        outers, exports, inputs = operands_at(at, self.spec, self.replay.tapes, rows, gather_rows)
        if self.own_rows:
            outers = _outers.outers_with_rows(self.spec, at.patterns, outers, self.width)
        return [*outers, *exports, *inputs]

    def _saved(self, start: Any, values: list[Any]) -> list[Any]:
        if self.own_rows:
            return self.vjp.forward(values)[1]
        return self.replay.saved(self.spec, start, self.width)

    def _cotangents(self, start: Any, left: Any) -> list[Any]:
        """Those of the rows from `start`; past the last of the `left` zeros, if that is linear."""
        if self.own_rows or not self.vjp.has_loop or self.vjp.after_reads_cotangents:
            cts = self.replay.cotangents(self.spec, self.ct_tapes, start, self.width, start + left)
            rows = jnp.minimum(numbers(self.width), left - 1)
            return [ct[rows] for ct in cts] if self.own_rows else cts
        classes = self.replay.at.program.classes
        carrying = [classes[c] for c in self.spec.outputs if has_derivative(classes[c])]
        return [jnp.zeros((self.width, *a.shape), a.dtype) for a in carrying]

    def _cuts(self, values: Any, saved: Any, cts: Any, start: Any) -> list[Any]:
        if not self.vjp.has_loop:
            return []
        if self.own_rows:
            return self.vjp.loop(values, saved, cts)[1]
        return [_tapes.block(tape, start, self.width) for tape in self.cut_tapes]

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
        valid = start + numbers(width) < self.replay.at.layout.pad + count
        lanes = _tapes.block(self.replay.at.tables.cells[spec.cell.index].lane, start, width)
        return {
            p: self._sum(totals[p], x, valid, lanes, self.lanes[p]) if p in rows else x
            for p, x in zip(positions, summed, strict=True)
        }

    @staticmethod
    def _sum(total: Any, rows: Any, valid: Any, lanes: Any, pattern: LanePattern | None) -> Any:
        """Adds the rows that are valid. The others are zero times a derivative: perhaps NaN."""
        if pattern is None:
            return total + select_rows(valid, rows).sum(0)
        element = jnp.where(valid, element_of(lanes, pattern), len(total))
        return total.at[element].add(rows, mode="drop")
