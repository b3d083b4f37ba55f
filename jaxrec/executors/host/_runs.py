"""Waves that a domain runs one after the other, launched together.

A wave of a small cell takes less time than its launch, and XLA's threads lose time between the
launches of large ones. So waves of one kind that come one after the other in a domain are one task:
a loop over their constants, compiled once for the kind.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from jaxrec.executors.host._call import HostCall
from jaxrec.executors.host._tasks import KernelFunction, Label, token_of
from jaxrec.schedule._tables import KIND
from jaxrec.split._program import Program

_MOST_WAVES = 16
"""Waves of one launch, at most."""

_RUN_SECONDS = 0.1
"""The longest time for which what is launched can neither be stolen nor interrupted."""

Launch = tuple[Any, KernelFunction, list[int], list[int]]
"""The key, the function, the slots read and the slots updated of a task, for `TaskList.add`."""


def waves_together(program: Program, costs: Sequence[float]) -> tuple[int, ...]:
    """How many waves of each kind are launched together at most, from what one costs.

    Cells that call Python are launched one by one, so that what is raised there is known by its
    wave.
    """
    alone = program.calls_host
    widths = len(costs) // max(len(program.cells), 1)
    return tuple(1 if alone[kind // widths] else _fitting(cost) for kind, cost in enumerate(costs))


def _fitting(cost: float) -> int:
    """How many waves fit into a launch: a power of two, so that few kernels are compiled."""
    most = min(_RUN_SECONDS / max(cost, 1e-9), _MOST_WAVES)
    return 2 ** int(math.log2(max(most, 1)))


@dataclasses.dataclass(frozen=True)
class Run:
    """Waves of one kind that a domain runs one after the other.

    Attributes:
        numbers: of the waves in the schedule.
        cell: the number of their cell, or copy, over all domains.
        width: rows of each.
        most: of them that are launched together.
    """

    numbers: list[int]
    cell: int
    width: int
    most: int = 1

    def takes(self, cell: int, width: int) -> bool:
        """Whether one more wave fits."""
        return (self.cell, self.width) == (cell, width) and len(self.numbers) < self.most


def runs(call: HostCall, *, backward: bool = False, idle: Collection[int] = ()) -> Iterator[Run]:
    """The waves of a schedule, in an order in which they could run one after the other.

    Args:
        call: the invocation.
        backward: whether to start from the last wave.
        idle: the cells, less their domains, whose waves are left out.
    """
    plan, cells, widths = call.plan, len(call.program.cells), call.layout.widths
    # Who looks at single waves gets them one by one. A GPU waits for the host in every turn of a
    # loop.
    merges = call.options.on_cpu and call.trace is None and not any(call.checks)
    kinds = plan.waves[:, KIND].tolist()
    open_runs: dict[int, Run] = {}
    for number in reversed(range(len(kinds))) if backward else range(len(kinds)):
        cell, at = divmod(kinds[number], len(widths))
        domain, index = divmod(cell, cells)
        if domain >= plan.domains:
            copy = plan.copies[cell - cells * plan.domains]
            yield from (open_runs.pop(d) for d in (copy.source, copy.target) if d in open_runs)
            yield Run([number], cell, widths[at])
        elif index not in idle:
            run = open_runs.get(domain)
            if run is not None and run.takes(cell, widths[at]):
                run.numbers.append(number)
                continue
            if run is not None:
                yield run
            most = plan.together[index * len(widths) + at] if merges else 1
            open_runs[domain] = Run([number], cell, widths[at], most)
    yield from open_runs.values()


def add_run(call: HostCall, run: Run, label: Label, launch: Launch, constants: Any) -> None:
    """Adds the task of a run.

    Args:
        call: the invocation.
        run: the waves.
        label: what they are.
        launch: what each of them launches.
        constants: what each of them is launched on, one a row.
    """
    key, fun, reads, updates = launch
    constant = constants[0]
    if run.most > 1:
        key, fun = ("together", key), _repeated(fun, run.most, len(reads))
        constant = np.zeros(1 + run.most * constants.shape[1], np.int32)
        constant[0] = len(constants)
        constant[1 : 1 + constants.size] = constants.reshape(-1)
    device, cost = call.device(label.domain), float(len(run.numbers))
    call.tasks.add(label, key, fun, constant, reads, updates, device=device, cost=cost)


def _repeated(fun: KernelFunction, most: int, reads: int) -> KernelFunction:
    """A kernel for up to `most` constants one after the other; their number is in front."""

    def run(constants: Any, *slots: Any) -> list[Any]:
        rows = constants[1:].reshape(most, -1)

        def one(k: Any, updated: Sequence[Any]) -> Sequence[Any]:
            return fun(rows[k], *slots[:reads], *updated)[1:]

        updated = jax.lax.fori_loop(0, constants[0], one, list(slots[reads:]))
        return [token_of(constants), *updated]

    return run
