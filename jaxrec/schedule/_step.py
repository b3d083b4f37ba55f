"""Stepping: the scheduler of a stepped program, called wave by wave.

From inside the XLA program:

    begin -> handle;  step(handle, tapes) -> wave;  operands(handle, wave) -> rows;  end -> tables

Where waves come in sweeps, `step` gives a whole sweep and what its waves read, as one array.

The scheduler waits at values that cells compute. `step` hands it the tapes of those values and gets
the next wave; `end` gives the tables of all that ran, which are those of a planned program.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive

from jaxrec import _compat, _core
from jaxrec._errors import UnsupportedError
from jaxrec.schedule._handlers import PLATFORMS, register_handlers
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._limits import Limits
from jaxrec.schedule._plan import PlanInputs, host_arguments, request_attributes
from jaxrec.schedule._tables import Tables, table_types, wave_columns, without_waves
from jaxrec.split._program import CellSpec, Program


class WaveRows(NamedTuple):
    """What a wave reads.

    Attributes:
        reads: for each tape input of its cell the value rows.
        exports: its control scalars.
        lanes: the lane of each row.
    """

    reads: tuple[Any, ...]
    exports: tuple[Any, ...]
    lanes: Any


@dataclasses.dataclass(frozen=True)
class Stepping:
    """A stepped invocation under way, inside a traced program.

    Attributes:
        program: the program.
        layout: its sizes.
        handle: of the scheduler.
    """

    program: Program
    layout: Layout
    handle: Any

    def first(self, tapes: Sequence[Any]) -> Any:
        """The first wave, as a row of the wave table; of kind -1 if there is none."""
        return self.after(jnp.zeros((1,), np.int32), tapes)

    def after(self, done: Any, tapes: Sequence[Any]) -> Any:
        """The wave after the one that `done`, a part of its operands, belongs to."""
        wave = jax.ShapeDtypeStruct((wave_columns(self.program),), np.int32)
        imported = [tapes[c] for c in self.program.imports]
        return _call(self.program, "jaxrec_step", wave, self.handle, done, *imported)

    def sweep(self, tapes: Sequence[Any]) -> Any:
        """The sweep after those that have run; its first kind is -1 if there is none."""
        words = jax.ShapeDtypeStruct((sum(map(self._sweep_words, self.program.cells)),), np.int32)
        imported = [tapes[c] for c in self.program.imports]
        done = self.handle  # not the last sweep: XLA would keep that, and copy the next one over it
        return _call(self.program, "jaxrec_step", words, self.handle, done, *imported)

    def waves(self, sweep: Any) -> list[tuple[Any, WaveRows]]:
        """For each cell its wave of a sweep, as a row of the wave table, and what it reads."""
        at, found = 0, []
        for spec in self.program.cells:
            parts = []
            for count, dtype in self._sweep_parts(spec):
                parts.append(_unpacked(sweep[at : at + _words(count, dtype)], count, dtype))
                at += _words(count, dtype)
            wave, *rows, lanes = parts
            reads, exports = rows[: len(spec.inputs)], rows[len(spec.inputs) :]
            found.append((wave, WaveRows(tuple(reads), tuple(exports), lanes)))
        return found

    def _sweep_parts(self, spec: CellSpec) -> list[tuple[int, np.dtype]]:
        """How many numbers of which type a sweep has of a cell, part after part."""
        width, ints = self.layout.widths[-1], np.dtype(np.int32)
        reads = [(width, ints) for _ in spec.inputs]
        exports = [(width, v.aval.dtype) for v in spec.cell.exports]
        return [(wave_columns(self.program), ints), *reads, *exports, (width, ints)]

    def _sweep_words(self, spec: CellSpec) -> int:
        return sum(_words(*part) for part in self._sweep_parts(spec))

    def operands(self, spec: CellSpec, width: int, wave: Any) -> WaveRows:
        """What a wave of a cell reads."""
        ints = jax.ShapeDtypeStruct((width,), np.int32)
        exports = [jax.ShapeDtypeStruct((width,), v.aval.dtype) for v in spec.cell.exports]
        types = [*(ints for _ in spec.inputs), *exports, ints]
        made = _call(self.program, "jaxrec_step_operands", types, self.handle, wave)
        count = len(spec.inputs)
        return WaveRows(tuple(made[:count]), tuple(made[count:-1]), made[-1])

    def results(self, wave: Any) -> tuple[Any, ...]:
        """For each result the value row of each lane, without a schedule; `wave` is of kind -1."""
        rows = table_types(self.program, self.layout).result_reads
        return _call(self.program, "jaxrec_step_results", rows, self.handle, wave)

    def end(self, wave: Any, *, waves: bool = True) -> Tables:
        """The tables of the schedule that ran; `wave` is of kind -1.

        Args:
            wave: the last one, which is none.
            waves: without, the tables have what tells the results alone.
        """
        like = table_types(self.program, self.layout)
        like = like if waves else without_waves(like)
        capacity = np.asarray([*self.layout.value_rows, *self.layout.read_rows], np.int64)
        made = _call(
            self.program,
            "jaxrec_step_end",
            jax.tree.leaves(like),
            self.handle,
            wave,
            capacity=capacity,
            readers=np.int64(self.layout.readers and waves),
            waves=np.int64(waves),
        )
        return jax.tree.unflatten(jax.tree.structure(like), list(made))


def _words(count: int, dtype: np.dtype) -> int:
    """How many 32-bit words numbers take, up to a multiple of 8 bytes."""
    return -(-count * dtype.itemsize // 8) * 2


def _unpacked(words: Any, count: int, dtype: np.dtype) -> Any:
    """The numbers that 32-bit words hold."""
    if dtype == np.bool_:
        return _unpacked(words, count, np.dtype(np.uint8)) != 0
    size = dtype.itemsize
    grouped = words.reshape(-1, size // 4) if size > 4 else words
    return lax.bitcast_convert_type(grouped, dtype).reshape(-1)[:count]


def begin_stepping(program: Program, layout: Layout, inputs: PlanInputs) -> Stepping:
    """Stages the start of a stepped invocation into the program that is being traced."""
    handle = _call(
        program,
        "jaxrec_step_begin",
        jax.ShapeDtypeStruct((2,), np.int32),
        program.words.view(np.int32),
        *inputs.roots,
        *inputs.outers,
        **request_attributes(program, layout, inputs),
        capacity=np.asarray(layout.value_rows, np.int64),
        cell_capacity=np.asarray(layout.cell_rows, np.int64),
    )
    return Stepping(program, layout, handle)


def start_stepper(
    program: Program,
    layout: Layout,
    inputs: PlanInputs,
    limits: Limits,
    max_calls: int | None,
    reuse: bool,
) -> Any:
    """Starts the same scheduler on the host.

    Args:
        program: what to schedule.
        layout: the number of roots and the widths of waves.
        inputs: what the scheduler starts from.
        limits: what is taken to be without end.
        max_calls: the calls that there is room for; None: as many as are made.
        reuse: whether rows whose values nothing can read any more are handed out again.

    Raises:
        PlanError: as the scheduler reports it.
    """
    given = host_arguments(program, layout, inputs, limits, max_calls)
    return _core.start_stepper(*given, depth_limit=limits.depth, reuse=reuse)


@dataclasses.dataclass(frozen=True, eq=False)
class _Target:
    """A handler, the function that it schedules, the types of its results and its attributes."""

    name: str
    function: str
    types: tuple[Any, ...]
    attributes: dict[str, Any]


# To JAX these calls are pure, since the scheduler that they work on is made and ended inside one
# invocation. XLA must run each of them once, in the order of their operands.
_step_call_p = Primitive("step_call")
_step_call_p.multiple_results = True
_step_call_p.def_abstract_eval(lambda *_, target: list(target.types))
_compat.define_impl(_step_call_p)  # for programs that JAX runs an operation at a time


def _lower(ctx: Any, *operands: Any, target: _Target) -> Any:
    if not set(PLATFORMS) & set(_compat.platforms_of(ctx)):
        raise UnsupportedError(
            f"{target.function}: recursion whose control depends on computed values runs as one "
            "program on CPU and on NVIDIA's GPUs only, and this one is compiled for "
            f"{', '.join(_compat.platforms_of(ctx))}. Put its arguments on a CPU device, or run it "
            'in jaxrec.executor("host").'
        )
    if _compat.devices_of(ctx) > 1:
        raise UnsupportedError(
            f"{target.function}: recursion whose control depends on computed values cannot be "
            "divided among devices, and this one is compiled for arrays on "
            f"{_compat.devices_of(ctx)} of them. Call it inside jax.shard_map over all axes of "
            "the mesh, where each device runs its own, or put its arguments on one device."
        )
    rule = jax.ffi.ffi_lowering(target.name, has_side_effect=True)
    return rule(ctx, *operands, **target.attributes)


_compat.register_lowering_rule(_step_call_p, _lower)


def _call(program: Program, name: str, types: Any, *operands: Any, **attributes: Any) -> Any:
    register_handlers()
    flat, tree = jax.tree.flatten(types)
    avals = tuple(ShapedArray(t.shape, t.dtype) for t in flat)
    made = _step_call_p.bind(*operands, target=_Target(name, program.name, avals, attributes))
    return jax.tree.unflatten(tree, made)
