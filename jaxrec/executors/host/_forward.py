"""The forward pass: the tasks of all waves, from the roots' arguments to the results."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec.executors.host._call import HostCall
from jaxrec.executors.host._kernels import ForwardKernels, counts, listed
from jaxrec.executors.host._plan import blank
from jaxrec.executors.host._runs import Launch, Run, add_run, runs
from jaxrec.executors.host._tasks import Label, token_of, words
from jaxrec.invocation._results import outcome
from jaxrec.lowering import _tapes
from jaxrec.lowering._forward import results, with_roots
from jaxrec.lowering._rows import gather_rows
from jaxrec.schedule._tables import BLOCKS, COUNT, FIRST
from jaxrec.split._program import CellSpec
from jaxrec.transpose._backward import settle_residuals
from jaxrec.transpose._cells import Backward, residual_tapes


@dataclasses.dataclass
class Tapes:
    """The slots of the tapes of one domain.

    Attributes:
        values: a slot for each tape class.
        residuals: for each cell, a slot for each residual.
    """

    values: list[int]
    residuals: list[list[int]]


class Forward:
    """Makes the tasks of a forward pass."""

    def __init__(self, call: HostCall, backward: Backward | None, wrt: Any = None) -> None:
        self.call, self._backward = call, backward
        self._key = (call.params.patterns, call.params.policy, wrt, backward is not None)
        self._kernels = ForwardKernels(call, backward)
        self.tapes = [self._begin(domain) for domain in range(call.plan.domains)]
        self._launches: dict[tuple[Any, ...], Launch] = {}

    def _begin(self, domain: int) -> Tapes:
        """Allocates the tapes of a domain; the first one gets the roots' arguments."""
        call, program = self.call, self.call.program
        home = domain == 0
        kept = self._residual_counts()
        roots = call.operands[call.params.first_data :] if home and program.data_rows else ()

        def begin(*roots: Any) -> list[Any]:
            tapes = _tapes.empty_tapes(call.layout.value_rows, program.classes)
            if roots:
                tapes = with_roots(call.with_tables(blank(), {}, roots), tapes)
            residuals = residual_tapes(self._backward) if self._backward is not None else []
            flat = [x for mine in residuals for x in mine]
            return [jnp.int32(0), *tapes, *flat]

        key = ("begin", bool(roots), self._key, call.layout)
        reads = [call.tasks.value(x) for x in roots]
        label = Label("tapes", domain)
        slots = iter(call.tasks.add(label, key, begin, None, reads, device=call.device(domain)))
        values = [next(slots) for _ in program.classes]
        return Tapes(values, [[next(slots) for _ in range(n)] for n in kept])

    def _residual_counts(self) -> list[int]:
        cells = self.call.program.cells
        if self._backward is None:
            return [0] * len(cells)
        return [len(self._backward.residual_types(spec)) for spec in cells]

    def add_waves(self) -> None:
        """Adds a task for each run of waves of the schedule, and two for each copy."""
        call, cells = self.call, len(self.call.program.cells)
        for run in runs(call):
            if run.cell < cells * call.plan.domains:
                self._run(run)
            else:
                self._copy(run)
            call.run_if_long()

    def _run(self, run: Run) -> None:
        call = self.call
        domain, index = divmod(run.cell, len(call.program.cells))
        spec, waves = call.program.cells[index], call.plan.waves[run.numbers]
        counts, starts = waves[:, COUNT], waves[:, FIRST]
        # Rows past the count repeat the first, so a cell that checks what it gets finds nothing
        # there that it would not find otherwise.
        column = np.arange(run.width)
        rows = starts[:, None] + np.where(column < counts[:, None], column, 0)
        parts = call.rows(spec).pack(call.plan.tables, run.cell, rows)
        constants = np.concatenate([waves[:, COUNT : BLOCKS + len(spec.outputs)], *parts], 1)
        name, first = spec.cell.name, run.numbers[0]
        label = Label(name, domain, first, int(counts.sum()), run.width)
        add_run(call, run, label, self.launch(spec, run.width, domain), constants)

    def launch(
        self, spec: CellSpec, width: int, domain: int, shown: tuple[int, ...] = ()
    ) -> Launch:
        """What waves of a cell at a width launch.

        Their constants are how many calls the wave runs, its first cell row, of each output its
        first row, and what it reads, as `Rows.pack` gives it.

        Args:
            spec: the cell.
            width: rows computed.
            domain: whose tapes it works on.
            shown: outputs that are returned besides being written.
        """
        key = (spec.cell.index, width, domain, shown)
        if key not in self._launches:
            self._launches[key] = self._launch(spec, width, domain, shown)
        return self._launches[key]

    def _launch(self, spec: CellSpec, width: int, domain: int, shown: tuple[int, ...]) -> Launch:
        call, tapes = self.call, self.tapes[domain]
        written = sorted(set(spec.outputs))
        read = sorted(set(spec.inputs) - set(written))
        return (
            ("wave", spec.cell.index, width, self._key, shown),
            self._kernels.wave(spec, width, read, written, shown),
            [*call.outers(spec, domain), *(tapes.values[c] for c in read)],
            [*(tapes.values[c] for c in written), *tapes.residuals[spec.cell.index]],
        )

    def _copy(self, run: Run) -> None:
        """Carries rows from one domain to another."""
        call, plan = self.call, self.call.plan
        copy = plan.copies[run.cell - len(call.program.cells) * plan.domains]
        count, first, target = plan.waves[run.numbers[0], COUNT : BLOCKS + 1].tolist()
        c, width = copy.tape_class, run.width
        rows = plan.tables.cells[run.cell].reads[0][first : first + width]
        name = f"copy {copy.source} -> {copy.target}"
        label = Label(name, copy.source, -1, count, width)
        (block,) = call.tasks.add(
            label, ("take", width), take_rows, words(rows), [self.tapes[copy.source].values[c]],
            device=call.device(copy.source),
        )  # fmt: skip
        label = dataclasses.replace(label, domain=copy.target)
        block = call.moved(label, block, copy.source, copy.target)
        call.tasks.add(
            label, ("put",), put_rows, words(target),
            [block], [self.tapes[copy.target].values[c]], device=call.device(copy.target),
            frees=[block],
        )  # fmt: skip

    def settle(self) -> None:
        """Ends the residual tapes, once all waves are there."""
        call = self.call
        for domain, tapes in enumerate(self.tapes):
            for spec in call.program.cells:
                kept = tapes.residuals[spec.cell.index]
                fired = call.plan.counts[domain * len(call.program.cells) + spec.cell.index]
                if kept and fired:
                    self._settle(domain, spec, kept, fired)

    def _settle(self, domain: int, spec: CellSpec, kept: list[int], fired: int) -> None:
        call, index = self.call, spec.cell.index

        def run(constant: Any, *tapes: Any) -> list[Any]:
            at = call.with_tables(counts(call, index, constant[0]), {})
            all_tapes = [tapes if k == index else () for k in range(len(call.program.cells))]
            return [token_of(constant), *settle_residuals(at, all_tapes)[index]]

        key = ("settle", index, call.layout.pad, call.layout.step_rows[index])
        label = Label(f"residuals of {spec.cell.name}", domain)
        call.tasks.add(label, key, run, words(fired), [], kept, device=call.device(domain))

    def outcome(self) -> list[int]:
        """Adds the task that reads the results; their slots."""
        call, tables = self.call, self.call.plan.tables
        known = {
            "info": tables.info,
            "result_reads": tables.result_reads,
            "collect_reads": tables.collect_reads,
            "calls_lane": tables.calls_lane,
            "calls_args": tables.calls_args,
        }
        leaves, tree = jax.tree.flatten(known)
        used = sorted(set(call.program.result_classes))

        def run(*slots: Any) -> list[Any]:
            tapes = dict(zip(used, slots[len(leaves) :], strict=True))
            at = call.with_tables(blank(**jax.tree.unflatten(tree, slots[: len(leaves)])), {})
            return [jnp.int32(0), *outcome(at, results(at, listed(tapes, call.program)))]

        reads = [*map(call.tasks.value, leaves), *(self.tapes[0].values[c] for c in used)]
        key = ("results", call.layout)
        return call.tasks.add(Label("results"), key, run, None, reads, device=call.device(0))


def take_rows(rows: Any, tape: Any) -> list[Any]:
    """A kernel: rows of a tape."""
    return [token_of(rows), gather_rows(tape, rows)]


def put_rows(start: Any, block: Any, tape: Any) -> list[Any]:
    """A kernel: overwrites rows of a tape."""
    return [token_of(start), _tapes.put(tape, block, start[0])]
