"""How many calls a wave holds: the batch sizes that the cells of a program are compiled at."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

from jaxrec.schedule._platform import CPU, Platform
from jaxrec.split._program import Program

_FEWEST = 4
"""The least calls that are worth a batch size between one call and the widest."""

_CALLS_PER_ROW = 64
"""How much wider than the number of roots waves become in a recursion of many calls."""

_NARROWER = 16
"""How many times narrower the narrow waves of an accelerator are."""

_FEW_CELLS = 8
"""Up to how many cells are compiled at three batch sizes; more at two."""

_ONE_SIZE = 8
"""Up to how wide waves of many cells need no narrower ones, if they compute little."""

_MANY_CELLS_WIDE = 32
"""How wide waves of many cells become in a recursion of many calls, whatever the roots."""

_CALLS_PER_SWEPT_ROW = 16
"""How many calls there are in a recursion for each row of a wave of a sweep, at least."""

_FEWEST_SWEPT_ROWS = 32
"""The least width of a wave of a sweep: narrower ones take as long."""

_MOST_SWEPT = 1 << 16
"""The most calls of an invocation whose waves come in sweeps: tables have room for empty waves."""

_ROW_FLOPS = 50.0
"""Arithmetic that takes as long as gathering what a row reads."""

_ENOUGH_WAVES = 64
"""How many times that a wave computes at most, so that its launch does not count."""

_READ_FLOPS = 50.0
"""Arithmetic that takes as long as reading an element of a matrix from memory."""

_CACHED_ELEMENTS = 1 << 19
"""Elements of a matrix that stay in a cache from wave to wave."""


def widths_of(
    program: Program,
    lanes: int,
    max_calls: int,
    *,
    platform: Platform = CPU,
) -> tuple[int, ...]:
    """The batch sizes for an invocation of a program: one call, the widest, and one between.

    Few sizes, since each is compiled. On CPU a wave of one call multiplies a matrix and a vector,
    which takes half as long as two rows do; on an accelerator it takes as long as some hundred. Of
    many cells few calls of each are ready, and compiling takes as long as there are cells times
    sizes, so there is none between, and only one where a wave of a few calls takes hardly longer
    than one call does; nor is there one between that computes little less than the widest. A
    recursion in a cell is compiled at its own sizes for each of these: there are two, one of them a
    quarter as wide as otherwise, since that recursion takes time for all the calls of each row.
    None is wider than the calls that are ready at once.

    Args:
        program: whose calls are batched.
        lanes: number of roots.
        max_calls: the largest number of calls.
        platform: where they run.
    """
    widest = _widest(program, lanes, max_calls, platform)
    if program.nests:
        widest = max(widest // 4, 2)
    ready = [lanes * most for most in program.most_ready if most is not None]
    if ready and len(ready) == len(program.most_ready):
        widest = min(widest, power_of_two(max(ready)))
    calls_host = any(program.calls_host)  # a call of Python a row
    has_narrow = platform.has_narrow or calls_host
    few = _has_few_cells(program)
    costly = calls_host or program.nests or program.has_rules  # as far as is known

    def saves(narrower: int) -> bool:
        return (widest - narrower) * (program.row_flops + _ROW_FLOPS) > platform.little_flops

    sizes = {widest}
    if has_narrow and (few or costly or widest > _ONE_SIZE or saves(1)):
        sizes.add(1)
    between = _between(lanes, widest) if has_narrow else max(widest // _NARROWER, 1)
    if few and not program.nests and saves(between):
        sizes.add(between)
    return tuple(sorted(sizes))


def sweep_width(
    program: Program, lanes: int, max_calls: int, *, platform: Platform = CPU
) -> int | None:
    """The batch size of an invocation whose waves come in sweeps; None if they should not.

    An accelerator's host waits for it to see which wave comes next, a look for each cell. To
    compute a wave of every cell instead takes one look, and less time if they compute little. Not
    if few looks are needed: where one cell alone waits for others like it, as in a fold of a tree,
    its waves follow each other. A stepped program looks after each wave, whatever its kind.

    Args:
        program: whose calls are batched.
        lanes: number of roots.
        max_calls: the largest number of calls.
        platform: where they run.
    """
    if not platform.sweep_flops or max_calls > _MOST_SWEPT:
        return None
    if not program.cells or not _has_few_cells(program) or any(program.waits):
        return None
    if not program.is_stepped and program.num_recurrent < 2:
        return None
    wanted = power_of_two(
        max(lanes, math.ceil(max_calls / _CALLS_PER_SWEPT_ROW), _FEWEST_SWEPT_ROWS)
    )
    wanted = min(wanted, platform.widest, power_of_two(max(max_calls, 2)))
    rows = platform.sweep_flops / (len(program.cells) * (program.row_flops + _ROW_FLOPS))
    rows = min(rows, platform.wave_bytes / max(program.call_bytes, 1))
    return min(wanted, 2 ** int(math.log2(rows))) if rows >= max(wanted / 4, 1) else None


def _widest(program: Program, lanes: int, max_calls: int, platform: Platform) -> int:
    """The largest batch size: four times about the number of roots, if that pays.

    In a batch of trees about as many calls as there are roots are ready once the leaves are done,
    and the waves narrow towards the end. A wave that computes for long enough is no faster a row
    if it is wider, and takes more memory; and none holds more than all calls.
    """
    few = _has_few_cells(program)
    wide = min(max_calls / _CALLS_PER_ROW, platform.widest if few else _MANY_CELLS_WIDE)
    ready = max(2 ** round(math.log2(max(lanes, wide, 1))), _FEWEST) * (4 if few else 1)
    enough = min(
        _ENOUGH_WAVES * _wave_flops(program, platform) / (program.row_flops + 1.0),
        platform.wave_bytes / max(program.call_bytes, 1),
    )
    enough = 2 ** round(math.log2(min(max(enough, _FEWEST), platform.widest)))
    return min(ready, enough, power_of_two(max(max_calls, 2)))


def _between(lanes: int, widest: int) -> int:
    """A quarter of the widest; or the number of roots, which nest in step, if that is less."""
    quarter = max(widest // 4, 2)
    return quarter if lanes == 1 else min(quarter, max(power_of_two(lanes), _FEWEST))


def power_of_two(size: int) -> int:
    """The least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()


def _has_few_cells(program: Program) -> bool:
    return len(program.cells) <= _FEW_CELLS


def that_fit(calls: int, widths: tuple[int, ...]) -> tuple[int, ...]:
    """The widths up to the first that so many calls fit."""
    return widths[: bisect.bisect_left(widths, calls) + 1]


def wave_costs(program: Program, widths: Sequence[int], platform: Platform) -> tuple[float, ...]:
    """The relative cost of a wave of each width."""
    wave = _wave_flops(program, platform)
    # A row costs something even of a cell of scalars: of two widths that fit, the narrow one.
    return tuple(wave + width * (program.row_flops + 1.0) for width in widths)


def costs_up_to(calls: int, widths: tuple[int, ...], costs: Sequence[float]) -> list[float]:
    """The costs of the widths that so many calls need; infinite for wider ones."""
    count = len(that_fit(calls, widths))
    return [*costs[:count], *[math.inf] * (len(widths) - count)]


def _wave_flops(program: Program, platform: Platform) -> float:
    """Arithmetic that takes as long as what a wave does once, however wide it is."""
    return platform.wave_flops + _READ_FLOPS * max(program.shared_elements - _CACHED_ELEMENTS, 0)
