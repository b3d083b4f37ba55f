"""The forward pass of a stepped program: each wave is launched when the scheduler has chosen it.

The scheduler goes on without waiting while what it needs is known. Where a frame waits for a value
that a wave makes, the launches under way are waited for, and the values that control may read,
which a wave's kernel returns beside its tapes, are handed over. Tapes grow as calls are made; where
nothing is differentiated, rows that nothing can read any more are written again before they do.
What is left at the end is a plan like any other.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from jaxrec._errors import ErrorsOfTheCore, UnsupportedError
from jaxrec.executors.host._call import HostCall
from jaxrec.executors.host._costs import guessed_costs
from jaxrec.executors.host._forward import Forward
from jaxrec.executors.host._plan import HostPlan, blank, host_plan
from jaxrec.executors.host._runs import waves_together
from jaxrec.executors.host._sizes import FEWEST_ROWS, host_layout, roomy
from jaxrec.executors.host._tasks import AHEAD, Label, TaskList, token_of, words
from jaxrec.invocation._bounds import limits_of
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params, plan_inputs
from jaxrec.lowering import _tapes
from jaxrec.lowering._pack import pack
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._step import start_stepper
from jaxrec.schedule._tables import BLOCKS, COUNT, FIRST, KIND
from jaxrec.transpose._cells import Backward

if TYPE_CHECKING:
    from jaxrec.executors.host._call import Trace

_EXPECTED_CALLS = 1 << 12
"""How many calls the widths of waves are chosen for, since it is not known how many there are."""

_FIRST_ROWS, _FIRST_BYTES = 1 << 12, 1 << 22
"""What a tape has room for at first."""

_GROWTH = 4
"""By how much the room of a tape grows: kernels are compiled for each size."""


def step_forward(
    params: Params,
    operands: Sequence[Any],
    *,
    reuse: bool = False,
    widths: tuple[int, ...] | None = None,
    wrt: Wrt | None = None,
    trace: Trace | None = None,
) -> tuple[Forward, Any]:
    """Runs all waves of a stepped invocation.

    Args:
        params: of the invocation.
        operands: known values.
        reuse: whether rows of tapes are written again once nothing can read them any more.
        widths: of waves; None: those that suit the executor's policy.
        wrt: which operands are differentiated; None: none, and no residuals are kept.
        trace: what records the launches.

    Returns:
        The forward pass, of which the plan is now known, and the core's schedule.

    Raises:
        JaxRecError: as the scheduler reports it, in its own class, or a cell failed.
    """
    _check_placement(params)
    layout = _first_layout(params, widths or params.widths(_EXPECTED_CALLS), wrt is not None)
    plan = HostPlan(layout, 1, 1, (), (), np.zeros((0, 3), np.int32), blank(), 0, ())
    call = HostCall(params, operands, plan, TaskList(params.program.cache), trace=trace)
    forward = Forward(call, None if wrt is None else _with_residuals(call, wrt), wrt)
    call.run()
    return forward, _Run(forward).run(reuse)


def _check_placement(params: Params) -> None:
    options = params.host
    assert options is not None
    for spec in params.program.cells:
        if options.device_of(spec.cell.name):
            raise UnsupportedError(
                f"{params.program.name} cannot be placed on several devices, since its control "
                f"depends on computed values, and place= puts cell {spec.cell.name!r} on "
                f"{options.devices[options.device_of(spec.cell.name)]}. Put all of its cells on "
                f"{options.devices[0]}."
            )


def _first_layout(params: Params, widths: tuple[int, ...], readers: bool) -> Layout:
    program = params.program
    sized = params.unbounded_layout(1, widths, readers=readers)
    roots = [params.lanes * program.data_classes.count(c) for c in range(len(program.classes))]
    rows = [
        max(_first_rows([aval]), roomy(n, _row_bytes([aval]))) + 2 * sized.pad
        for aval, n in zip(program.classes, roots, strict=True)
    ]
    return dataclasses.replace(sized, value_rows=tuple(rows), cell_rows=(0,) * len(program.cells))


def _with_residuals(call: HostCall, wrt: Wrt) -> Backward:
    """The differentiated cells; makes room for their residuals and the last step behind them."""
    from jaxrec.executors.host._run import differentiated

    cells = call.program.cells
    types = [differentiated(call, wrt).residual_types(spec) for spec in cells]
    pad = 2 * call.layout.pad
    rows = tuple(
        _first_rows(mine) + pad + _step_rows(call.layout, mine) if mine else 0 for mine in types
    )
    layout = dataclasses.replace(call.layout, cell_rows=rows)
    call.plan = dataclasses.replace(call.plan, layout=layout)
    return differentiated(call, wrt)


def _step_rows(layout: Layout, types: Sequence[Any]) -> int:
    """Room for the last step behind the rows of a tape, unless it would be most of it."""
    return min(layout.platform.step_rows, _first_rows(types))


def _first_rows(types: Sequence[Any]) -> int:
    return max(FEWEST_ROWS, min(_FIRST_ROWS, _FIRST_BYTES // max(_row_bytes(types), 1)))


def _row_bytes(types: Sequence[Any]) -> int:
    return max(int(np.prod(t.shape, dtype=np.int64)) * t.dtype.itemsize for t in types)


class _Kind:
    """What the waves of a cell at a width have in common.

    Attributes:
        spec: the cell.
        width: rows computed.
        shown: the outputs that control may read.
        classes: the tape classes of those.
        launch: what they launch.
        rows: how what they read is packed.
        reads: where the scheduler writes what they read, for as long as it takes to pack it.
        exports: likewise, their control scalars.
        lanes: likewise, the lane of each row.
        step_rows: rows that residual tapes have room for behind the last one of a wave.
    """

    def __init__(self, forward: Forward, number: int, imports: Collection[int]) -> None:
        call = forward.call
        cell, at = divmod(number, len(call.layout.widths))
        self.spec, self.width = call.program.cells[cell], call.layout.widths[at]
        outputs = self.spec.outputs
        self.shown = tuple(k for k, c in enumerate(outputs) if c in imports)
        self.classes = tuple(outputs[k] for k in self.shown)
        self.launch = forward.launch(self.spec, self.width, 0, self.shown)
        self.rows = call.rows(self.spec)
        self.reads = [np.zeros(self.width, np.int32) for _ in self.spec.inputs]
        self.exports = [np.zeros(self.width, v.aval.dtype) for v in self.spec.cell.exports]
        self.lanes = np.zeros(self.width, np.int32)
        kept = [call.tasks.values[slot] for slot in forward.tapes[0].residuals[cell]]
        types = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in kept]
        self.step_rows = _step_rows(call.layout, types) if types else 0

    def constant(self, stepper: Any, wave: Sequence[int]) -> Any:
        """What the wave that was chosen last is launched on."""
        stepper.operands([*self.reads, *self.exports, self.lanes])
        starts = wave[BLOCKS : BLOCKS + len(self.spec.outputs)]
        parts = self.rows.words(self.lanes, self.reads, self.exports)
        return words([*wave[COUNT:BLOCKS], *starts], *parts)


class _Launched(NamedTuple):
    """A wave under way: what it is, its token, and the values that control may read."""

    label: Label
    token: Any
    starts: list[int]
    classes: tuple[int, ...]
    values: list[Any]


class _Run:
    """The waves of a stepped invocation, one after the other."""

    def __init__(self, forward: Forward) -> None:
        self._forward, self._call = forward, forward.call
        call = self._call
        self._device, self._far = call.device(0), not call.options.on_cpu
        # As many rows as a tape has, so that every row that the scheduler knows is there.
        self._imports = {
            c: np.zeros(call.layout.value_rows[c], call.program.classes[c].dtype)
            for c in call.program.imports
        }
        self._under_way: list[_Launched] = []
        self._kinds: dict[int, _Kind] = {}
        self._waves = 0
        self._last = time.perf_counter_ns()  # when a launch ended that is recorded
        self._put_roots()

    def _put_roots(self) -> None:
        call, at = self._call, dict.fromkeys(self._imports, self._call.layout.pad)
        roots = call.operands[call.params.first_data :]
        for c, parts in call.program.data_rows:
            if c in at:
                rows = np.asarray(pack([roots[k] for k in parts], batch=1))
                self._imports[c][at[c] : at[c] + len(rows)] = rows
                at[c] += len(rows)

    def run(self, reuse: bool) -> Any:
        """Runs all waves; the core's schedule, whose plan the call has now."""
        try:
            with ErrorsOfTheCore():
                core = self._stepped(reuse)
        finally:
            self._call.stepper = None
        self._settle_plan(core)
        return core

    def _stepped(self, reuse: bool) -> Any:
        call = self._call
        call.stepper = stepper = _begin(call, reuse)
        while True:
            wave = stepper.step([self._imports[c] for c in call.program.imports]).tolist()
            if wave[KIND] < 0:
                break
            self._launch(wave)
            if stepper.reads_next or call.trace is not None:
                self._wait_for(0)
            else:
                self._wait_for(AHEAD)
        self._wait_for(0)
        return stepper.finish()

    def _launch(self, wave: list[int]) -> None:
        call, kind = self._call, self._kind(wave[KIND])
        spec, starts = kind.spec, wave[BLOCKS : BLOCKS + len(kind.spec.outputs)]
        label = Label(spec.cell.name, 0, self._waves, wave[COUNT], kind.width)
        constant = kind.constant(call.stepper, wave)
        key, fun, reads, updates = kind.launch
        begun = time.perf_counter_ns()
        try:
            self._make_room(kind, wave[FIRST] + kind.width, starts)
            token, *values = call.tasks.launch(
                key, fun, constant, reads, updates, device=self._device
            )
        except Exception as error:
            raise call.failures([label]).described(error, 0) from None
        if self._far:
            for value in values:
                value.copy_to_host_async()
        shown = [starts[k] for k in kind.shown]
        self._under_way.append(_Launched(label, token, shown, kind.classes, values))
        self._waves += 1
        if call.trace is not None:
            self._wait_for(0)
            now = time.perf_counter_ns()
            idle = begun - self._last
            call.trace.add([label], [(0, idle, now - self._last)], [(1, 0, idle)])
            self._last = now

    def _kind(self, number: int) -> _Kind:
        if number not in self._kinds:
            self._kinds[number] = _Kind(self._forward, number, self._imports)
        return self._kinds[number]

    def _wait_for(self, most: int) -> None:
        """Waits until no more than `most` waves are under way; takes the values they made."""
        while len(self._under_way) > most:
            done = self._under_way.pop(0)
            failures = self._call.failures([done.label])
            try:
                failures.check(0, done.token)
                made = [np.asarray(value) for value in done.values]
            except Exception as error:
                raise failures.described(error, 0) from None
            for c, start, values in zip(done.classes, done.starts, made, strict=True):
                self._imports[c][start : start + len(values)] = values

    def _make_room(self, kind: _Kind, cell_end: int, starts: Sequence[int]) -> None:
        """Lets the tapes grow that a wave would go past the end of."""
        tapes = self._forward.tapes[0]
        for c, start in zip(kind.spec.outputs, starts, strict=True):
            self._grow([tapes.values[c]], start + kind.width)
            if c in self._imports:
                rows = len(self._call.tasks.values[tapes.values[c]])
                self._imports[c].resize(rows, refcheck=False)
        self._grow(tapes.residuals[kind.spec.cell.index], cell_end + kind.step_rows)

    def _grow(self, slots: Sequence[int], end: int) -> None:
        call = self._call
        for slot in slots:
            old = call.tasks.values[slot]
            rows = len(old)
            while rows < end:
                rows *= _GROWTH
            if rows > len(old):
                key = ("grow", len(old), rows)
                _, new = call.tasks.launch(
                    key, _grown(rows), np.zeros(1, np.int32), [slot], [], self._device
                )
                call.tasks.replace(slot, new)

    def _settle_plan(self, core: Any) -> None:
        """Gives the call the plan of what ran, with tapes of the sizes that they have."""
        call = self._call
        tapes, values = self._forward.tapes[0], call.tasks.values
        layout = host_layout(call.program, call.layout, core)
        try:
            kept = zip(tapes.residuals, core.cell_rows, layout.step_rows, strict=True)
            for mine, fired, step in kept:
                self._grow(mine, layout.pad + fired + step)
        except Exception as error:
            raise call.failures([Label("residuals")]).described(error, 0) from None
        kept = zip(tapes.residuals, layout.cell_rows, strict=True)
        layout = dataclasses.replace(
            layout,
            value_rows=tuple(len(values[slot]) for slot in tapes.values),
            cell_rows=tuple(len(values[mine[0]]) if mine else rows for mine, rows in kept),
        )
        costs = guessed_costs(call.program, layout.widths, call.options.workers)
        together = waves_together(call.program, costs.alone)
        call.plan = host_plan(call.program, core, layout, together)


def _begin(call: HostCall, reuse: bool) -> Any:
    params = call.params
    with jax.ensure_compile_time_eval():
        inputs = plan_inputs(params, call.operands)
    limits = limits_of(params)
    return start_stepper(params.program, call.layout, inputs, limits, params.bound, reuse)


def _grown(rows: int) -> Any:
    def run(constant: Any, tape: Any) -> list[Any]:
        aval = jax.ShapeDtypeStruct(tape.shape[1:], tape.dtype)
        (new,) = _tapes.empty_tapes([rows], [aval])
        return [token_of(constant), _tapes.put(new, tape, 0)]

    return run
