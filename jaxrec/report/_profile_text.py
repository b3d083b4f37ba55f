"""A profile as tables of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxrec.report._profile import CellTime, Profile


def format_profile(profile: Profile) -> str:
    """Writes a profile as tables."""
    return "\n".join(_lines(profile))


def _lines(profile: Profile) -> Iterator[str]:
    schedule = profile.schedule
    yield (
        f'{schedule.name} on executor "{profile.executor}": {schedule.num_calls} calls, '
        f"depth {schedule.depth}, {len(schedule.waves)} waves"
    )
    if profile.on_machine:
        yield "run by the machine for scalars; waves are those of a derivative or of collect"
    yield ""
    stages = [(label, _time(seconds)) for label, seconds in profile.stages.items()]
    yield from _table([("stage", "time"), *stages])
    yield ""
    measured = "cell, launched" if profile.launches else "cell, measured alone"
    yield from _cells(measured, profile.cells)
    if profile.backward:
        yield ""
        yield from _cells("backward, launched", profile.backward_cells)
    yield ""
    yield from _workers(profile)
    unused, rows = profile.unused_rows, profile.rows
    yield f"padding: {unused} of {rows} rows computed ({profile.padding:.0%})"
    yield f"programs compiled by this call: {profile.compilations}"
    yield (
        f"memory: {_size(profile.value_bytes)} of value tapes, and under a gradient "
        f"{_size(profile.residual_bytes)} of residuals"
    )


def _cells(measured: str, cells: Sequence[CellTime]) -> Iterator[str]:
    head = (measured, "width", "waves", "calls", "padding", "a wave", "all waves")
    rows = [
        (
            cell.cell,
            str(cell.width),
            str(cell.waves),
            str(cell.calls),
            str(cell.padding),
            _time(cell.seconds),
            _time(cell.total),
        )
        for cell in cells
    ]
    yield from _table([head, *rows])


def _workers(profile: Profile) -> Iterator[str]:
    """What each worker did; nothing for executors without."""
    if not profile.workers:
        return
    rows = [("worker", "launches", "stolen", "busy", "idle")]
    for number, worker in enumerate(profile.workers):
        counts = str(worker.launches), str(worker.steals)
        rows.append((str(number), *counts, _time(worker.busy), _time(worker.idle)))
    yield from _table(rows)
    yield ""


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Lines with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join([f"  {first.ljust(widths[0])}", *cells])


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.2f} {unit}"
    return f"{seconds / 1e-6:.1f} µs"


def _size(count: float) -> str:
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"
