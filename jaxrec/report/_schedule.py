"""The schedule of a call, for people."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from jaxrec.schedule._layout import Layout
from jaxrec.schedule._tables import COUNT, FIRST, KIND
from jaxrec.split._program import Program

_PRINTED = 40


class Wave(NamedTuple):
    """Calls that run one cell as one batch.

    Attributes:
        cell: the name of the cell.
        start: the row of the first of them among the rows of the cell.
        count: how many.
        width: the batch size at which they are computed.
    """

    cell: str
    start: int
    count: int  # pyright: ignore[reportIncompatibleMethodOverride] - hides `tuple.count`
    width: int


class Schedule:
    """Which calls an invocation makes, and in which waves their cells run.

    Attributes:
        name: the user's name for the function.
        num_calls: calls made.
        depth: the longest chain of nested calls; the root alone is 1.
    """

    def __init__(self, program: Program, layout: Layout, core: Any) -> None:
        self._core = core
        self.name: str = program.name
        self.num_calls: int = core.num_calls
        self.depth: int = core.depth
        self._cells = [spec.cell.name for spec in program.cells]
        self._widths, self._pad = layout.widths, layout.pad
        table = np.asarray(core.waves)[:, [KIND, COUNT, FIRST]]
        widths = np.asarray(layout.widths, np.int64)
        self._computed = int(widths[table[:, 0] % len(widths)].sum())
        self._table = table[table[:, 1] > 0]  # those of a sweep may be empty

    @functools.cached_property
    def waves(self) -> tuple[Wave, ...]:
        """The waves, in order."""
        return tuple(self._first_waves(len(self._table)))

    def _first_waves(self, count: int) -> Iterator[Wave]:
        for kind, size, row in self._table[:count].tolist():
            cell, width = divmod(kind, len(self._widths))
            yield Wave(self._cells[cell], row - self._pad, size, self._widths[width])

    def call_path(self, row: int) -> str:
        """The call path of a call: `f -> f[1] -> g[0]`, with the label of each call site.

        Args:
            row: the number of the call, in depth-first order from the root, which is 0.

        Raises:
            IndexError: there is no such call.
            TypeError: the number is none.
        """
        row = operator.index(row)
        if not 0 <= row < self.num_calls:
            raise IndexError(f"call {row} of a schedule of {self.num_calls} calls")
        return self._core.call_path(row)

    @property
    def rows(self) -> int:
        """Firings of cells: the rows that waves compute and that something uses."""
        return int(self._table[:, 1].sum(dtype=np.int64))

    @property
    def padded_rows(self) -> int:
        """Rows computed, those past the count of a wave included."""
        return self._computed

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.num_calls} calls, depth {self.depth}, "
            f"{len(self._table)} waves, {self.rows} rows ({self.padded_rows} computed)"
        )
        lines = [
            f"  {k:4d}  {w.cell:24s} rows {w.start}..{w.start + w.count - 1} of width {w.width}"
            for k, w in enumerate(self._first_waves(_PRINTED))
        ]
        left_out = len(self._table) - _PRINTED
        tail = [f"  ... {left_out} more waves"] if left_out > 0 else []
        return "\n".join([head, *lines, *tail])

    __repr__ = __str__

    def _repr_svg_(self) -> str:
        from jaxrec.report._draw import schedule_svg

        return schedule_svg(self)
