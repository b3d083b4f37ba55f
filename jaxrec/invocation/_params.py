"""The parameters of an invocation, and what follows from them and its operands."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxrec import _compat
from jaxrec._errors import CapacityError
from jaxrec._host_options import HostOptions
from jaxrec._types import has_derivative
from jaxrec.graph._ir import Value
from jaxrec.invocation._derived_arrays import derived_arrays, outers_behind, pattern_of
from jaxrec.lowering._forward import CellAt, Scheduled, quick_cell
from jaxrec.lowering._run import run
from jaxrec.schedule._layout import Layout, make_layout
from jaxrec.schedule._plan import LanePattern, PlanInputs
from jaxrec.schedule._platform import CPU, Platform
from jaxrec.schedule._tables import Tables, table_types
from jaxrec.schedule._widths import sweep_width, widths_of
from jaxrec.split._binding import counting
from jaxrec.split._program import Program


@dataclasses.dataclass(frozen=True)
class Params:
    """The static parameters of an invocation, compared by value.

    Attributes:
        program: what is invoked.
        lanes: number of roots; the roots' arguments and results have a leading axis of this size.
        patterns: for each outer value, how lanes index its leading axis; None if it has none.
        declared: the user's bound on calls, all lanes together.
        max_calls: the largest number of calls; None if it has not been decided.
        collect: whether every call is reported.
        executor: who runs it.
        policy: which residuals to keep.
        host: the options of executor "host"; None for the others.
        workers: threads of the native machine; 0: as it chooses.
        copies: how many lanes have the same roots and read the same arrays of indices: those of
            examples that differ in other arguments, such as weights. They visit the same nodes.
        rows: how many invocations that make the same calls it stands for: `declared` is so many
            times what the user has declared.
        platform: where it runs unless JAX is told otherwise; it decides about sizes alone.
    """

    program: Program
    lanes: int
    patterns: tuple[LanePattern | None, ...]
    declared: int | None
    max_calls: int | None
    collect: bool
    executor: str
    policy: Callable[..., bool] | None
    host: HostOptions | None = None
    workers: int = 0
    copies: int = 1
    rows: int = 1
    platform: Platform = CPU

    @property
    def bound(self) -> int | None:
        """The most calls, where that is known: as decided, or as declared."""
        return self.declared if self.max_calls is None else self.max_calls

    @property
    def num_outers(self) -> int:
        """How many operands are outer values; they come first."""
        return len(self.program.outers)

    @property
    def num_operands(self) -> int:
        """Outer values, then control and data arguments of the roots."""
        return len(self.program.operands)

    @property
    def first_data(self) -> int:
        """The position of the first data argument of the roots."""
        return self.num_outers + len(self.program.control)

    def moves(self, k: int, typed: Any) -> bool:
        """Whether derivatives may be taken by an operand of a type; not by those of control.

        A floating control scalar that has a derivative is a data argument too.
        """
        return has_derivative(typed) and not self.num_outers <= k < self.first_data

    @property
    def controlling(self) -> tuple[int, ...]:
        """The positions of the operands that control reads directly."""
        return self.program.cache.once("controlling", self._controlling)

    def _controlling(self) -> tuple[int, ...]:
        program = self.program
        found = set(range(self.num_outers, self.first_data))
        for value in program.control_outers:
            if value in program.outers:
                found.add(program.outers.index(value))
            else:
                found.update(outers_behind(program)[value])
        return tuple(sorted(found))

    @property
    def counting(self) -> tuple[int, ...]:
        """Those of them that the number of calls follows from, or arrays computed beforehand."""
        return self.program.cache.once("counting", self._counting)

    def _counting(self) -> tuple[int, ...]:
        program = self.program
        values = counting(program.graph, program.binding)
        computed = [v for v in program.control_outers if v not in program.outers]
        behind = frozenset[int]().union(*(outers_behind(program)[v] for v in computed))
        return tuple(k for k in self.controlling if k in behind or program.operands[k] in values)

    def differentiated(self, by: tuple[int, ...]) -> Params:
        """The invocation that gives the results as they come with derivatives by operands."""
        return dataclasses.replace(self, program=self.program.differentiated(by))

    def asked_by(self, *orders: tuple[int, ...]) -> Params:
        """The invocation of which derivatives by some operands each are taken next."""
        return dataclasses.replace(self, program=self.program.asked_by(*orders))

    def of_rows(self, rows: int) -> Params:
        """Several invocations at once, of calls of a wave or of examples with the same calls."""
        declared = None if self.declared is None else self.declared * rows
        return dataclasses.replace(self, declared=declared, rows=self.rows * rows)

    def widths(self, calls: int) -> tuple[int, ...]:
        """The widths of waves of an invocation of so many calls.

        Executor "reference" and the policy "alone" run one call after another.
        """
        policy = "" if self.host is None else self.host.policy
        if self.executor == "reference" or policy == "alone":
            return (1,)
        return widths_of(self.program, self.lanes, calls, platform=self.platform)

    def _sweep_width(self) -> int | None:
        """The width of waves that come in sweeps: on executor "graph" alone, which has to look."""
        if self.executor != "graph" or self.max_calls is None:
            return None
        given = self.program, self.lanes, self.max_calls
        return sweep_width(*given, platform=self.platform)

    def layout(self, *, readers: bool = False) -> Layout:
        """The sizes of the invocation; its capacity must have been decided.

        Raises:
            CapacityError: there is less memory than that.
        """
        assert self.max_calls is not None
        swept = self._sweep_width()
        widths = (swept,) if swept else self.widths(self.max_calls)
        layout = self.layout_of(self.max_calls, widths, readers=readers, sweeps=swept is not None)
        if self.platform == CPU:  # others say themselves how much they have
            _check_memory(self.program, layout)
        return layout

    def layout_of(
        self, calls: int, widths: tuple[int, ...], *, readers: bool, sweeps: bool = False
    ) -> Layout:
        """The sizes of the invocation if it makes so many calls, in waves of some widths."""
        return make_layout(
            self.program,
            self.lanes,
            calls,
            collect=self.collect,
            readers=readers,
            widths=widths,
            sweeps=sweeps,
            platform=self.platform,
        )

    def unbounded_layout(self, calls: int, widths: tuple[int, ...], *, readers: bool) -> Layout:
        """The sizes on executor "host", which need a bound only where every call is reported."""
        reported = self.max_calls if self.collect else None
        return self.layout_of(reported or calls, widths, readers=readers)


def _check_memory(program: Program, layout: Layout) -> None:
    """Refuses what no machine like this one could hold: JAX may wait for such an array for ever."""
    tapes = zip(layout.value_rows, program.classes, strict=True)
    largest = max((rows * row.size * row.dtype.itemsize for rows, row in tapes), default=0)
    if largest > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        raise CapacityError(
            f"room for {layout.max_calls} calls of {program.name} takes an array of "
            f"{largest / 1e9:.0f} GB, more than this machine's memory. Bound the calls of one "
            "invocation by fewer: rec_fn(max_calls=...)."
        )


def run_invocation(
    params: Params,
    layout: Layout,
    operands: Sequence[Any],
    cell_at: CellAt = quick_cell,
    residual_tapes: Sequence[Sequence[Any]] | None = None,
    *,
    scheduled: bool = True,
) -> tuple[Scheduled, list[Any], list[list[Any]]]:
    """Schedules and runs an invocation: `jaxrec.lowering._run.run` on its operands."""
    waiting = with_schedule(params, layout, table_types(params.program, layout), operands)
    inputs = plan_inputs(params, operands)
    return run(waiting, inputs, cell_at, residual_tapes, scheduled=scheduled)


def with_schedule(
    params: Params, layout: Layout, tables: Tables, operands: Sequence[Any]
) -> Scheduled:
    """An invocation with its schedule."""
    return Scheduled(
        params.program,
        layout,
        params.patterns,
        tables,
        tuple(operands[: params.num_outers]),
        tuple(operands[params.first_data :]),
    )


def plan_inputs(params: Params, operands: Sequence[Any]) -> PlanInputs:
    """What the scheduler reads; arrays that bodies compute from outer values are computed here."""
    outers = operands[: params.num_outers]
    read = params.program.control_outers
    key = "control", params.patterns, params.lanes
    reader = params.program.cache.once(key, lambda: ControlArrays(params, read))
    return PlanInputs(
        tuple(operands[params.num_outers : params.first_data]),
        tuple(reader(outers)),
        reader.patterns,
    )


def _control_pattern(params: Params, value: Value) -> LanePattern | None:
    """How lanes index an outer array, or one computed from outer arrays."""
    program = params.program
    if value in program.outers:
        return params.patterns[program.outers.index(value)]
    return pattern_of(program, params.patterns, params.lanes, value)


class ControlArrays:
    """Makes what the machines read of the outer values: outer arrays, and what is computed of them.

    Args:
        params: of the invocation.
        values: the arrays.

    Attributes:
        patterns: for each of them, how lanes index it.
    """

    def __init__(self, params: Params, values: Sequence[Value]) -> None:
        self.patterns = tuple(_control_pattern(params, value) for value in values)
        outers = params.program.outers
        self._params = params
        self._derived = [v for v in values if v not in outers]
        found = [*outers, *self._derived]
        self._where = [found.index(v) for v in values]
        self._at_once = jax.jit(self._made)

    def __call__(self, outers: Sequence[Any]) -> list[Any]:
        """The arrays, from the outer values; computed ones in one program where nothing traces."""
        found = [*outers, *self._made_of(outers)] if self._derived else outers
        return [found[k] for k in self._where]

    def _made_of(self, outers: Sequence[Any]) -> list[Any]:
        if not _compat.evaluates_now() or not all(map(_compat.is_concrete, outers)):
            return self._made(*outers)
        with _compat.without_checks():  # as `derived_arrays`
            return _compat.as_if_alone(self._at_once, outers)

    def _made(self, *outers: Any) -> list[Any]:
        at = self._params
        return derived_arrays(at.program, at.patterns, at.lanes, self._derived, outers)
