"""How large the tables and tapes of an invocation are: everything that `jit` must know beforehand.

Every row space has `pad` free rows before its first row and after its last: a wave is computed at
a fixed width, and rows past its count land there (forward behind, backward in front).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from jaxrec._errors import CapacityError
from jaxrec.schedule._platform import CPU, Platform
from jaxrec.schedule._widths import costs_up_to, that_fit, wave_costs, widths_of
from jaxrec.split._program import Program

_FEWEST_STEP_ROWS = 8
"""What the rows of a step are a multiple of, unless a cell is fired less often."""

_BUCKET_RATIO = 1.25

_MOST_ROWS = (1 << 31) - (1 << 20)
"""The most rows of an array of an invocation: they are numbered by 32-bit integers."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Static sizes of one invocation.

    Attributes:
        lanes: number of roots.
        max_calls: the largest number of calls that fits.
        widths: widths of waves, ascending.
        costs: relative cost of a wave of each width, of all cells alike or of cell after cell;
            infinite: it has none of that width.
        sweeps: whether waves come in sweeps, one of each cell in order, some of them empty.
        collect: whether every call is reported.
        readers: whether the tables that the backward pass reads are made.
        ready: how many calls may be ready for each cell at once.
        cell_rows: rows of each cell, padding included.
        step_rows: of each cell, rows of a step of the contraction that makes the cotangents of
            outer values; 0 without `readers`.
        value_rows: value rows of each tape class, padding included.
        read_rows: read rows of each tape class, padding included.
        max_waves: the largest number of waves.
        platform: what they are sizes for.
    """

    lanes: int
    max_calls: int
    widths: tuple[int, ...]
    costs: tuple[float, ...]
    sweeps: bool
    collect: bool
    readers: bool
    ready: tuple[int, ...]
    cell_rows: tuple[int, ...]
    step_rows: tuple[int, ...]
    value_rows: tuple[int, ...]
    read_rows: tuple[int, ...]
    max_waves: int
    platform: Platform = CPU

    @property
    def pad(self) -> int:
        """Free rows on either side of a row space."""
        return self.widths[-1]

    def widths_of(self, cell: int) -> tuple[int, ...]:
        """Those of the waves of a cell: none is wider than the first that all ready calls fit."""
        return that_fit(self.ready[cell], self.widths)


def make_layout(
    program: Program,
    lanes: int,
    max_calls: int,
    *,
    widths: tuple[int, ...] | None = None,
    sweeps: bool = False,
    collect: bool = False,
    readers: bool = False,
    platform: Platform = CPU,
) -> Layout:
    """Sizes the tables of an invocation of at most `max_calls` calls."""
    widths = widths or widths_of(program, lanes, max_calls, platform=platform)
    pad = 2 * widths[-1]
    fires = [max_calls // max(spec.calls, 1) for spec in program.cells]
    # A cell of a recursion with a base case and one recursive branch fires for about half the
    # calls.
    expected = [min(n, max_calls // 2) for n in fires]
    for k, most in enumerate(program.most_fired):
        if most is not None:
            fires[k] = expected[k] = min(fires[k], lanes * most)
    pairs = zip(fires, program.most_ready, strict=True)
    ready = [n if most is None else min(n, lanes * most) for n, most in pairs]
    costs = wave_costs(program, widths, platform)
    if ready != fires:
        costs = tuple(x for n in ready for x in costs_up_to(n, widths, costs))
    values = [lanes * program.data_classes.count(c) for c in range(len(program.classes))]
    reads = [
        (lanes + (max_calls if collect else 0)) * program.result_classes.count(c)
        for c in range(len(program.classes))
    ]
    for c in range(len(program.classes)):
        made = sum(n * spec.outputs.count(c) for n, spec in zip(fires, program.cells, strict=True))
        taken = sum(n * spec.inputs.count(c) for n, spec in zip(fires, program.cells, strict=True))
        values[c] += min(made, max_calls * program.writes[c]) + pad
        reads[c] += min(taken, max_calls * program.reads[c]) + pad
    layout = Layout(
        lanes=lanes,
        max_calls=max_calls,
        widths=widths,
        costs=costs,
        sweeps=sweeps,
        collect=collect,
        readers=readers,
        ready=tuple(ready),
        cell_rows=tuple(n + pad for n in fires),
        step_rows=(0,) * len(fires),
        value_rows=tuple(values),
        read_rows=tuple(reads),
        max_waves=(min(sum(fires), max_calls * program.fires) + 1) * (len(fires) if sweeps else 1),
        platform=platform,
    )
    rows = max((*layout.cell_rows, *layout.value_rows, *layout.read_rows, max_calls))
    if rows > _MOST_ROWS:
        raise CapacityError(
            f"room for {max_calls} calls of {program.name} takes arrays of {rows} rows, more than "
            f"{_MOST_ROWS}. Bound the calls of one invocation by fewer: rec_fn(max_calls=...)."
        )
    return with_step_rows(program, layout, expected) if readers else layout


def with_step_rows(program: Program, layout: Layout, expected: Sequence[int]) -> Layout:
    """The same sizes with room for a whole step behind the last row of a cell.

    Args:
        program: whose calls they are.
        layout: the sizes without.
        expected: how often each cell is fired, about.
    """
    most = max(layout.platform.step_rows // program.examples, _FEWEST_STEP_ROWS)
    steps = tuple(_step_rows(n, most) for n in expected)
    rows = zip(layout.cell_rows, steps, strict=True)
    cell_rows = tuple(n + max(step - layout.pad, 0) for n, step in rows)
    return dataclasses.replace(layout, step_rows=steps, cell_rows=cell_rows)


def _step_rows(expected: int, most: int) -> int:
    """Rows of a step: few steps, since each adds to whole weights; little padding in the last."""
    if expected < _FEWEST_STEP_ROWS:
        return max(expected, 2)
    steps = math.ceil(expected / most)
    return _FEWEST_STEP_ROWS * math.ceil(expected / steps / _FEWEST_STEP_ROWS)


def bucket(count: int) -> int:
    """Rounds a number of calls up to a geometric series, so that few sizes are compiled."""
    size = 16
    while size < count:
        size = int(np.ceil(size * _BUCKET_RATIO / 16)) * 16
    return size
