"""The backward pass: the tasks of the waves in reverse, then the cotangents of outer values."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrec.executors.host._call import HostCall
from jaxrec.executors.host._forward import Tapes, put_rows
from jaxrec.executors.host._kernels import BackwardKernels, listed
from jaxrec.executors.host._plan import blank
from jaxrec.executors.host._runs import Launch, Run, add_run, runs
from jaxrec.executors.host._tasks import Label, token_of, words
from jaxrec.invocation._differentiated import Wrt
from jaxrec.lowering import _tapes
from jaxrec.lowering._rows import sum_over_readers
from jaxrec.schedule._tables import COUNT, FIRST
from jaxrec.split._program import CellSpec
from jaxrec.transpose._backward import Want, initial_cotangents, root_cotangents
from jaxrec.transpose._cells import Backward, tapes_by_cell
from jaxrec.transpose._outer import total_shape


@dataclasses.dataclass
class Cotangents:
    """The slots of what one domain accumulates in reverse.

    Attributes:
        tapes: for each tape class its cotangent tape; only classes that have cotangents.
        cuts: for each cell the tapes of its cut.
        totals: for each outer value its cotangent so far.
        reader_rows: for each tape class that has cotangents, who reads each value.
    """

    tapes: dict[int, int]
    cuts: list[list[int]]
    totals: dict[int, int]
    reader_rows: dict[int, int]


class BackwardRun:
    """Makes the tasks of a backward pass."""

    def __init__(
        self,
        call: HostCall,
        backward: Backward,
        wrt: Wrt,
        tapes: Sequence[Tapes],
        cotangents: Sequence[Any],
    ) -> None:
        self.call, self._backward, self._tapes = call, backward, tapes
        self._key = (call.params.patterns, call.params.policy, wrt)
        params = call.params
        pairs = wrt.pairs
        self._lanes = {k: p for k, p in pairs if k < params.num_outers}
        self._roots = [k - params.first_data for k, _ in pairs if k >= params.num_outers]
        self._kernels = BackwardKernels(call, backward, self._lanes)
        self._carrying = self._kernels.carrying
        self._given = list(map(call.options.at_home, cotangents))
        self._launches: dict[tuple[int, int, int], Launch] = {}
        self._state = [self._begin(domain) for domain in range(call.plan.domains)]

    def add_all(self) -> list[int]:
        """Adds all tasks: the slots of the cotangents of outer values, then of the roots'."""
        self._add_waves()
        for domain in range(self.call.plan.domains):
            for spec in self.call.program.cells:
                self._after(domain, spec)
        return [*self._totals(), *self._root_cotangents()]

    def _begin(self, domain: int) -> Cotangents:
        call, cuts = self.call, self._kernels.cuts
        given = self._given if domain == 0 else ()

        def begin(info: Any, *cts: Any) -> list[Any]:
            outers = dict(enumerate(call.operands[: call.params.num_outers]))
            at = call.with_tables(blank(info=info), outers)
            if domain == 0:
                tapes = [initial_cotangents(at, cts)[c] for c in self._carrying]
            else:
                rows = [call.layout.read_rows[c] for c in self._carrying]
                tapes = _tapes.empty_tapes(rows, [call.program.classes[c] for c in self._carrying])
            flat = [x for mine in tapes_by_cell(self._backward, cuts) for x in mine]
            totals = [
                jnp.zeros(total_shape(at, p, lanes), call.operands[p].dtype)
                for p, lanes in self._lanes.items()
            ]
            return [jnp.int32(0), *tapes, *flat, *totals]

        key = ("begin backward", domain == 0, self._key, call.layout)
        reads = [call.tasks.value(x) for x in given]
        slots = iter(
            call.tasks.add(
                Label("cotangent tapes", domain), key, begin, call.plan.tables.info, reads,
                device=call.device(domain),
            )
        )  # fmt: skip
        tapes = {c: next(slots) for c in self._carrying}
        rows = call.plan.tables.reader_rows
        first = domain * len(call.program.classes)
        return Cotangents(
            tapes,
            [[next(slots) for _ in mine] for mine in cuts],
            {p: next(slots) for p in self._lanes},
            {c: call.array(rows[first + c], domain) for c in self._carrying},
        )

    def _add_waves(self) -> None:
        call, cells = self.call, self.call.program.cells
        idle = [k for k, spec in enumerate(cells) if not self._backward.has_loop(spec)]
        for run in runs(call, backward=True, idle=idle):
            if run.cell < len(cells) * call.plan.domains:
                self._run(run)
            else:
                self._copy(run)
            call.run_if_long()

    def _run(self, run: Run) -> None:
        call, width = self.call, run.width
        domain, index = divmod(run.cell, len(call.program.cells))
        spec, waves = call.program.cells[index], call.plan.waves[run.numbers]
        counts = waves[:, COUNT]
        # A wave's calls are its last rows.
        shifted = waves[:, FIRST:] + (counts - width)[:, None]
        starts = shifted[:, :1]
        blocks = [call.plan.first_read - FIRST + k for k, _ in self._kernels.inputs(spec)]
        parts = call.rows(spec, readers=True).pack(
            call.plan.tables, run.cell, starts + np.arange(width), starts + np.arange(width + 1)
        )
        constants = np.concatenate([counts[:, None], starts, shifted[:, blocks], *parts], 1)
        name, blank_rows = f"{spec.cell.name} backward", width - int(counts[0])
        label = Label(name, domain, run.numbers[0], int(counts.sum()), width, blank_rows)
        add_run(call, run, label, self._launch(spec, width, domain), constants)

    def _launch(self, spec: CellSpec, width: int, domain: int) -> Launch:
        """What waves of a cell at a width launch in reverse."""
        key = (spec.cell.index, width, domain)
        if key not in self._launches:
            self._launches[key] = self._new_launch(spec, width, domain)
        return self._launches[key]

    def _new_launch(self, spec: CellSpec, width: int, domain: int) -> Launch:
        call, state, tapes = self.call, self._state[domain], self._tapes[domain]
        written = sorted({c for _, c in self._kernels.inputs(spec)})
        read = sorted(set(self._kernels.outputs(spec)) - set(written))
        return (
            ("backward", spec.cell.index, width, self._key, call.checks),
            self._kernels.wave(spec, width, read, written),
            [
                *call.outers(spec, domain),
                *(tapes.values[c] for c in sorted(set(spec.inputs))),
                *tapes.residuals[spec.cell.index],
                *(state.reader_rows[c] for c in self._kernels.outputs(spec)),
                *(state.tapes[c] for c in read),
            ],
            [*(state.tapes[c] for c in written), *state.cuts[spec.cell.index]],
        )

    def _copy(self, run: Run) -> None:
        """Carries cotangents back to where the values came from."""
        call, plan, width = self.call, self.call.plan, run.width
        copy = plan.copies[run.cell - len(call.program.cells) * plan.domains]
        c = copy.tape_class
        if c not in self._carrying:
            return
        wave = plan.waves[run.numbers[0]].tolist()
        shift = wave[COUNT] - width
        start, read_start = wave[FIRST] + shift, wave[plan.first_read] + shift
        source, target = self._state[copy.source], self._state[copy.target]
        pointers = plan.tables.cells[run.cell].readers[0][start : start + width + 1]
        label = Label(f"copy {copy.target} -> {copy.source}", copy.target, -1, wave[COUNT], width)
        (block,) = call.tasks.add(
            label, ("take cotangents", width), _take_cotangents, words(pointers),
            [target.tapes[c], target.reader_rows[c]], device=call.device(copy.target),
        )  # fmt: skip
        label = dataclasses.replace(label, domain=copy.source)
        block = call.moved(label, block, copy.target, copy.source)
        call.tasks.add(
            label, ("put",), put_rows, words(read_start),
            [block], [source.tapes[c]], device=call.device(copy.source), frees=[block],
        )  # fmt: skip

    def _after(self, domain: int, spec: CellSpec) -> None:
        """Adds what the firings of a cell contribute to the cotangents of outer values."""
        call, cells = self.call, len(self.call.program.cells)
        index = spec.cell.index
        fired = call.plan.counts[domain * cells + index]
        wanted = [p for p in self._lanes if p in spec.outers]
        if not wanted or not fired:
            return
        state, tapes = self._state[domain], self._tapes[domain]
        rows = call.rows(spec, readers=True, lanes=True)
        size = call.layout.cell_rows[index]
        at = np.arange(size + 1)[None]
        packed = rows.pack(call.plan.tables, domain * cells + index, at[:, :-1], at)
        constant = words(fired, *packed)
        call.tasks.add(
            Label(f"{spec.cell.name} contraction", domain, -1, fired, size),
            ("after", index, self._key, call.layout),
            self._kernels.after(spec, size, wanted),
            constant,
            [
                *call.outers(spec, domain),
                *(tapes.values[c] for c in sorted(set(spec.inputs))),
                *tapes.residuals[index],
                *(state.reader_rows[c] for c in self._kernels.outputs(spec)),
                *(state.tapes[c] for c in self._kernels.outputs(spec)),
                *state.cuts[index],
            ],
            [state.totals[p] for p in wanted],
            device=call.device(domain),
        )

    def _totals(self) -> list[int]:
        """The cotangents of outer values, summed over the domains."""
        call, home = self.call, self._state[0].totals
        for domain, state in enumerate(self._state[1:], 1):
            for p, slot in state.totals.items():
                label = Label("sum of domains")
                part = call.moved(label, slot, domain, 0)
                call.tasks.add(
                    label, ("add",), _add, None, [part], [home[p]], device=call.device(0)
                )
        return list(home.values())

    def _root_cotangents(self) -> list[int]:
        if not self._roots:
            return []
        call, state = self.call, self._state[0]
        readers = call.plan.tables.root_readers
        used = sorted(set(call.program.data_classes) & set(self._carrying))
        want = Want((), tuple(self._roots), ())

        def run(constant: Any, *given: Any) -> list[Any]:
            pointers = tuple(jnp.split(constant, len(readers)))
            cts = dict(zip(used, given[: len(used)], strict=True))
            rows = dict(zip(used, given[len(used) :], strict=True))
            found = listed(rows, call.program)
            at = call.with_tables(blank(root_readers=pointers, reader_rows=tuple(found)), {})
            return [jnp.int32(0), *root_cotangents(at, listed(cts, call.program), want)]

        reads = [*(state.tapes[c] for c in used), *(state.reader_rows[c] for c in used)]
        key = ("root cotangents", self._key, call.layout.lanes)
        constant = np.concatenate(readers)
        label = Label("cotangents of arguments")
        return call.tasks.add(label, key, run, constant, reads, device=call.device(0))


def _take_cotangents(pointers: Any, tape: Any, reader_rows: Any) -> list[Any]:
    return [token_of(pointers), sum_over_readers(tape, reader_rows, pointers)]


def _add(part: Any, total: Any) -> list[Any]:
    return [jnp.int32(0), total + part]
