"""How many rows tapes have on executor "host".

Kernels are compiled for the sizes of the tapes that they read and write, and each invocation makes
another number of calls. So there are few sizes: all tapes of a program grow at the same number of
calls, and by much. On CPU room that is never written is neither time nor memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrec.schedule._layout import Layout, with_step_rows
from jaxrec.schedule._widths import power_of_two
from jaxrec.split._program import Program

FEWEST_ROWS = 64
"""What a tape has room for at least, however large its rows."""

_USUAL_ROWS, _USUAL_BYTES = 1 << 10, 1 << 18
"""What it has room for besides."""

_LARGE_BYTES = 1 << 24
"""Up to about how many bytes tapes have one size, and from how many on none is four times as large
as it has to be."""

_MOST_BYTES = 1 << 28
"""Up to how many bytes tapes of residuals have that size too, as far as is known beforehand."""

_STEPS = 16
"""Steps of the contraction of a cell whose calls fill their tapes; a quarter run at least."""


def host_layout(program: Program, sized: Layout, core: Any, domains: int = 1) -> Layout:
    """The sizes of every domain of a schedule, as few different ones as memory allows.

    Args:
        program: the program.
        sized: number of lanes, widths, and what is wanted.
        core: the schedule.
        domains: how many domains it has.
    """
    pad, readers = 2 * sized.pad, sized.readers
    used = _used(program, sized, core, domains)
    largest = max([*used.values, *(used.fired + used.read if readers else ())], default=0)
    least = min(largest, _LARGE_BYTES // max(program.call_bytes, 1))

    def room(counts: Sequence[int]) -> tuple[int, ...]:
        return tuple(roomy(max(n, least), program.call_bytes) + pad for n in counts)

    def room_for_residuals(n: int, rows: int, row_bytes: int) -> int:
        fits = not readers or rows * row_bytes <= _MOST_BYTES
        return rows if fits else max(FEWEST_ROWS, power_of_two(n)) + pad

    layout = dataclasses.replace(
        sized,
        max_calls=sized.max_calls if sized.collect else 1,  # of no kernel
        cell_rows=tuple(map(room_for_residuals, used.fired, room(used.fired), program.cell_bytes)),
        value_rows=room(used.values),
        read_rows=room(used.read),
        max_waves=1,
        costs=(),  # kernels depend neither on these nor on how many calls are ready
        ready=(),
    )
    if not readers:
        return layout
    steps = [max((rows - pad) // _STEPS, FEWEST_ROWS) for rows in layout.cell_rows]
    return with_step_rows(program, layout, steps)


def roomy(rows: int, row_bytes: int) -> int:
    """How many rows a tape has that needs some, from a series of few sizes."""
    size = max(FEWEST_ROWS, min(_USUAL_ROWS, _USUAL_BYTES // max(row_bytes, 1)))
    while size < rows:
        size *= 4 if size * row_bytes < _LARGE_BYTES else 2
    return size


class _Used(NamedTuple):
    """Rows that a domain uses at most: of each cell, and values and reads of each tape class."""

    fired: list[int]
    values: list[int]
    read: list[int]


def _used(program: Program, sized: Layout, core: Any, domains: int) -> _Used:
    classes, cells = len(program.classes), len(program.cells)

    def most(counts: Sequence[int], size: int, more: Sequence[int] | int = 0) -> list[int]:
        apart = np.asarray(counts[: domains * size], np.int64).reshape(domains, size) + more
        return apart.max(axis=0, initial=0).tolist()

    # The report of `collect` has more rows than there are calls, and so have its cotangents.
    blank = sized.max_calls - core.num_collected if sized.collect else 0
    unused = [blank * (c in program.result_classes) for c in range(classes)]
    return _Used(
        most(core.cell_rows, cells),
        most(core.value_rows, classes),
        most(core.read_rows, classes, unused),
    )
