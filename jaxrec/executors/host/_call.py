"""One invocation on executor "host": its schedule, and where its values are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax

from jaxrec._host_options import HostOptions
from jaxrec.executors.host._failure import Failures
from jaxrec.executors.host._plan import HostPlan, Rows
from jaxrec.executors.host._tasks import AHEAD, Label, TaskList
from jaxrec.invocation._params import Params
from jaxrec.lowering._forward import Scheduled
from jaxrec.lowering._outers import outer_by_row
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._tables import Tables
from jaxrec.split._program import CellSpec, Program


@dataclasses.dataclass
class HostCall:
    """An invocation that is being launched.

    Attributes:
        params: of the invocation.
        operands: outer values, then arguments of the roots.
        plan: its schedule.
        tasks: the launches that are to be made.
        stepper: the scheduler that is finding out the plan, while it is not known.
        trace: what is recorded of every launch; then each is waited for.
        looks: whether each wave is searched for what `jax_debug_nans` looks for.
    """

    params: Params
    operands: Sequence[Any]
    plan: HostPlan
    tasks: TaskList
    stepper: Any = None
    trace: Trace | None = None
    looks: bool = True

    def __post_init__(self) -> None:
        self.operands = list(map(self.options.at_home, self.operands))
        # Kernels for the first device of all are those that nothing says a device of.
        self._at_home = (
            self.options.is_default and self.options.devices[0] == jax.local_devices()[0]
        )
        self._outers: dict[tuple[int, int], int] = {}
        self._rows: dict[tuple[int, bool, bool], Rows] = {}

    @property
    def program(self) -> Program:
        """What is invoked."""
        return self.params.program

    @property
    def layout(self) -> Layout:
        """The sizes of each domain."""
        return self.plan.layout

    @property
    def checks(self) -> tuple[bool, bool]:
        """Whether waves are searched for NaN, and for infinity."""
        return self.tasks.checks if self.looks else (False, False)

    @property
    def options(self) -> HostOptions:
        """The options of the executor."""
        assert self.params.host is not None
        return self.params.host

    def device(self, domain: int) -> Any:
        """Where a domain is; None if it is where JAX puts everything."""
        return None if self._at_home else self.options.devices[domain // self.plan.shards]

    def outers(self, spec: CellSpec, domain: int) -> list[int]:
        """The slots of the outer values of a cell, on the device of a domain."""
        return [self._outer(position, domain) for position in spec.outers]

    def _outer(self, position: int, domain: int) -> int:
        device = self.device(domain)
        key = (position, 0 if device is None else self.options.devices.index(device))
        if key not in self._outers:
            value = self.operands[position]
            placed = value if device is None else jax.device_put(value, device)
            self._outers[key] = self.tasks.value(placed)
        return self._outers[key]

    def array(self, value: Any, domain: int) -> int:
        """The slot of an array of the host, on the device of a domain."""
        return self.tasks.value(jax.device_put(value, self.device(domain)))

    def moved(self, label: Label, slot: int, source: int, target: int) -> int:
        """The slot of a value of one domain on the device of another."""
        here, there = self.device(source), self.device(target)
        return slot if here is there else self.tasks.move(label, slot, there)

    def with_tables(
        self, tables: Tables, outers: dict[int, Any], roots: Sequence[Any] = ()
    ) -> Scheduled:
        """What the lowering's functions work on, of which a kernel has only a part; traced."""
        count = self.params.num_outers
        known = tuple(outers.get(k) for k in range(count))
        return Scheduled(
            self.program, self.layout, self.params.patterns, tables, known, tuple(roots)
        )

    def rows(self, spec: CellSpec, readers: bool = False, lanes: bool = False) -> Rows:
        """How the rows of a cell are packed; `lanes`: even if no outer value is indexed by lane."""
        key = (spec.cell.index, readers, lanes)
        if key not in self._rows:
            by_lane = lanes or any(outer_by_row(spec, self.params.patterns))
            self._rows[key] = Rows(spec, by_lane, readers)
        return self._rows[key]

    def run_if_long(self) -> None:
        """Runs the tasks so far, as `run` does, if their list has become long."""
        if self.tasks.is_long:
            self.run()

    def run(self) -> None:
        """Runs the tasks so far.

        Raises:
            JaxRecError: a cell failed.
            FloatingPointError: one made what `jax_debug_nans` or `jax_debug_infs` looks for.
        """
        labels = self.tasks.labels
        failures = self.failures(labels)
        # More workers than chains of waves would have nothing to do.
        workers = min(self.options.workers, self.plan.domains)
        ahead = AHEAD if self.trace is None else 0
        report = self.tasks.run(workers, ahead, failures.check)
        error = report.take_error()
        if error is not None:
            raise failures.described(error, report.failed)
        if self.trace is not None:
            self.trace.add(labels, report.times, report.workers)

    def failures(self, labels: Sequence[Label]) -> Failures:
        """Finds and describes the failures of launches."""
        return Failures(self.program.name, labels, self._call_path, any(self.checks))

    def _call_path(self, wave: int, row: int) -> str:
        """The call path of a row of a wave; schedules again, since paths are not kept."""
        if self.stepper is not None:
            return self.stepper.call_path(wave, row)
        from jaxrec.executors.host._schedule import schedule_core

        core = schedule_core(self.params, self.operands, self.layout)
        return core.call_path(core.wave_frame(wave, row))


class Trace:
    """Records launches.

    Attributes:
        launches: of each its label, who made it, and when it began and ended, in nanoseconds.
        workers: of each worker its launches, how many of them it stole, and nanoseconds without
            work.
    """

    def __init__(self) -> None:
        self.launches: list[tuple[Label, int, int, int]] = []
        self.workers: list[tuple[int, int, int]] = []
        self._now = 0

    def add(
        self,
        labels: Sequence[Label],
        times: Sequence[tuple[int, int, int]],
        workers: Sequence[tuple[int, int, int]],
    ) -> None:
        """Adds a run that began when the last one ended."""
        pairs = zip(labels, times, strict=True)
        self.launches += [(x, w, self._now + a, self._now + b) for x, (w, a, b) in pairs]
        self._now = max([self._now, *(self._now + end for *_, end in times)])
        before = [*self.workers, *[(0, 0, 0)] * (len(workers) - len(self.workers))]
        more = [*workers, *[(0, 0, 0)] * (len(before) - len(workers))]
        self.workers = [
            (a + x, b + y, c + z) for (a, b, c), (x, y, z) in zip(before, more, strict=True)
        ]
