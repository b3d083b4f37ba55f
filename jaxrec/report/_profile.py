"""What a call costs, for people: cells, launches and workers, as tables and as a trace."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from jaxrec.report._profile_text import format_profile
from jaxrec.report._schedule import Schedule
from jaxrec.report._trace import estimated_events, launched_events


@dataclasses.dataclass(frozen=True)
class CellTime:
    """A cell at one width.

    Attributes:
        cell: its name.
        width: rows computed in a wave.
        waves: how many waves run it at this width.
        calls: how many calls are in them.
        seconds: the time of one wave, measured alone.
    """

    cell: str
    width: int
    waves: int
    calls: int
    seconds: float

    @property
    def padding(self) -> int:
        """Rows computed for nothing."""
        return self.waves * self.width - self.calls

    @property
    def total(self) -> float:
        """Seconds of all its waves, if each takes as long as the one measured."""
        return self.waves * self.seconds


class Launch(NamedTuple):
    """A launch of executor "host", measured.

    Attributes:
        name: of the cell, or what else it did.
        worker: who launched it.
        domain: whose tapes it worked on.
        device: where.
        calls: how many calls it ran.
        width: rows computed.
        start: seconds from the beginning of the run.
        seconds: how long it took.
    """

    name: str
    worker: int
    domain: int
    device: str
    calls: int
    width: int
    start: float
    seconds: float


class WorkerTime(NamedTuple):
    """What a worker of executor "host" did.

    Attributes:
        launches: how many.
        steals: how many of them it took from another worker.
        busy: seconds of its launches.
        idle: seconds that it looked for work or slept.
    """

    launches: int
    steals: int
    busy: float
    idle: float


@dataclasses.dataclass(frozen=True)
class Profile:
    """What a call costs; `str()` prints it as tables.

    Attributes:
        executor: who ran the call.
        schedule: its schedule.
        stages: seconds of each stage, by a label that says how it was measured.
        cells: the cells at the widths that occur.
        compilations: XLA programs that the call compiled; 0 if it had been made before.
        value_bytes: memory of the value tapes; 0 for the reference executor, which has no tapes.
        residual_bytes: memory that the forward pass of a gradient keeps besides them; likewise.
        launches: of executor "host", in the order of the schedule; else none.
        backward: likewise, of the backward pass of everything that is differentiable.
        workers: of executor "host"; else none.
        on_machine: whether the call runs on the machine for scalars, without waves. Those that are
            measured are what its derivative runs, or `collect`.
    """

    executor: str
    schedule: Schedule
    stages: dict[str, float]
    cells: tuple[CellTime, ...]
    compilations: int
    value_bytes: int
    residual_bytes: int
    launches: tuple[Launch, ...] = ()
    backward: tuple[Launch, ...] = ()
    workers: tuple[WorkerTime, ...] = ()
    on_machine: bool = False

    @property
    def backward_cells(self) -> tuple[CellTime, ...]:
        """As `cells`, of the launches of the backward pass."""
        return tuple(launched_cells(self.backward))

    @property
    def rows(self) -> int:
        """Rows computed by the waves."""
        return sum(cell.waves * cell.width for cell in self.cells)

    @property
    def unused_rows(self) -> int:
        """Rows computed that nothing uses."""
        return sum(cell.padding for cell in self.cells)

    @property
    def padding(self) -> float:
        """The share of the rows computed that nothing uses."""
        return self.unused_rows / max(self.rows, 1)

    def __str__(self) -> str:
        return format_profile(self)

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the waves as a Chrome trace, which Perfetto (ui.perfetto.dev) shows.

        On executor "host" every worker has a lane and every device has one, with what was measured.
        Else one lane has the waves in the order in which they run, and durations are estimates: the
        time of the wave's cell at its width, measured alone.

        Args:
            path: the file to write, JSON.
        """
        found = launched_events(self) if self.launches else estimated_events(self)
        trace = {"traceEvents": list(found), "displayTimeUnit": "ms"}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(trace, file)


def launched_cells(launches: Sequence[Launch]) -> Iterator[CellTime]:
    """The cells at each width, with the mean time of their waves."""
    waves: dict[tuple[str, int], list[Launch]] = {}
    for launch in launches:
        if launch.width and not launch.name.startswith("copy "):
            waves.setdefault((launch.name, launch.width), []).append(launch)
    for (name, width), mine in sorted(waves.items()):
        seconds = statistics.fmean(x.seconds for x in mine)
        yield CellTime(name, width, len(mine), sum(x.calls for x in mine), seconds)
