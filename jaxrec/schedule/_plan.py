"""Calling the scheduler: inside a compiled program, and on the host.

On CPU and on NVIDIA's GPUs the XLA program calls the scheduler as an FFI handler. On other
platforms it calls back to the host, where the same core runs on NumPy arrays; neither re-enters
JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrec import _core
from jaxrec._errors import ErrorsOfTheCore
from jaxrec.schedule._handlers import by_handler, call_handler
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._limits import Limits, limits_for, stepped_limits
from jaxrec.schedule._tables import Tables, table_types
from jaxrec.split._program import Program

_TARGET = "jaxrec_plan"

LanePattern = tuple[int, int]
"""How lanes index an outer value, a stride and a size: see `element_of`."""


def element_of(lane: Any, pattern: LanePattern) -> Any:
    """Which element of an outer value a lane reads, or each of several lanes."""
    stride, size = pattern
    return (lane // stride) % size


@dataclasses.dataclass(frozen=True)
class PlanInputs:
    """What a schedule is a function of.

    Attributes:
        roots: control arguments of the roots, each `[lanes]`.
        outers: the arrays that the control machine reads.
        patterns: for each of them how lanes index its leading axis; None if all lanes share it.
    """

    roots: tuple[Any, ...]
    outers: tuple[Any, ...]
    patterns: tuple[LanePattern | None, ...]


def plan_in_program(program: Program, layout: Layout, inputs: PlanInputs) -> Tables:
    """Stages the scheduler into the program that is being traced."""
    # As halves: without x64 JAX has no 64-bit integers.
    operands = (program.words.view(np.int32), *inputs.roots, *inputs.outers)

    def inside(*arrays: Any) -> list[Any]:
        return _ffi_plan(program, layout, inputs, arrays)

    def elsewhere(*arrays: Any) -> list[Any]:
        return _callback_plan(program, layout, inputs, arrays)

    flat = by_handler(inside, elsewhere, operands)
    return jax.tree.unflatten(jax.tree.structure(table_types(program, layout)), flat)


def _ffi_plan(
    program: Program, layout: Layout, inputs: PlanInputs, arrays: Sequence[Any]
) -> list[Any]:
    made = call_handler(
        _TARGET,
        jax.tree.leaves(table_types(program, layout)),
        *arrays,
        **request_attributes(program, layout, inputs),
        readers=np.int64(layout.readers),
        capacity=np.asarray([*layout.value_rows, *layout.read_rows], np.int64),
        workers=np.int64(0),
    )
    return list(made)


def request_attributes(program: Program, layout: Layout, inputs: PlanInputs) -> dict[str, Any]:
    """What the scheduler's handlers are told beside the arrays."""
    limits = limits_for(layout.max_calls, stepped=stepped_limits(program, "graph", layout.lanes))
    return {
        "lanes": np.int64(layout.lanes),
        "widths": np.asarray(layout.widths, np.int64),
        "costs": np.asarray(layout.costs, np.float64),
        "sweeps": np.int64(layout.sweeps),
        "names": program.names,
        "outer_lanes": lane_numbers(inputs.patterns),
        "max_calls": np.int64(layout.max_calls),
        "call_limit": np.int64(limits.calls),
        "depth_limit": np.int64(limits.depth),
        "collect": np.int64(layout.collect),
    }


def _callback_plan(
    program: Program, layout: Layout, inputs: PlanInputs, arrays: Sequence[Any]
) -> list[Any]:
    types = jax.tree.leaves(table_types(program, layout))
    roots = len(inputs.roots)
    fixed = dataclasses.replace(inputs, roots=(), outers=())  # a callback keeps no traced values

    def on_host(*given: Any) -> list[Any]:
        host = [np.asarray(x) for x in given[1:]]
        made = dataclasses.replace(fixed, roots=tuple(host[:roots]), outers=tuple(host[roots:]))
        schedule = plan_on_host(
            program, layout, made, limits_for(layout.max_calls), layout.max_calls
        )
        buffers = [np.zeros(t.shape, t.dtype) for t in types]
        schedule.fill(buffers, [*layout.value_rows, *layout.read_rows], layout.readers)
        return buffers

    return jax.pure_callback(on_host, types, *arrays, vmap_method="sequential")


def plan_on_host(
    program: Program,
    layout: Layout,
    inputs: PlanInputs,
    limits: Limits,
    max_calls: int | None,
    *,
    waves: bool = True,
) -> Any:
    """Runs the scheduler now.

    Args:
        program: what to schedule.
        layout: the number of roots and the widths of waves.
        inputs: what the schedule is a function of.
        limits: what is taken to be without end.
        max_calls: the calls that there is room for; None: as many as are made.
        waves: whether it is laid out, or only its calls are found.

    Returns:
        The core's schedule.

    Raises:
        JaxRecError: as the scheduler reports it, in its own class.
    """
    with ErrorsOfTheCore():
        given = host_arguments(program, layout, inputs, limits, max_calls)
        return _core.plan(*given, depth_limit=limits.depth, waves=waves, sweeps=layout.sweeps)


def host_arguments(
    program: Program, layout: Layout, inputs: PlanInputs, limits: Limits, max_calls: int | None
) -> tuple[Any, ...]:
    """What the scheduler takes on the host, planning or stepping; arguments as `plan_on_host`."""
    return (
        program.words,
        [np.asarray(x, order="C") for x in inputs.roots],
        [np.asarray(x, order="C") for x in inputs.outers],
        lane_numbers(inputs.patterns),
        layout.lanes,
        list(layout.widths),
        list(layout.costs),
        program.names,
        -1 if max_calls is None else max_calls,
        limits.calls,
        layout.collect,
    )


def lane_numbers(patterns: Sequence[LanePattern | None]) -> Any:
    """How lanes index arrays, as the scheduler takes it: two numbers an array."""
    return np.asarray([x for p in patterns for x in (p or (0, -1))], np.int64)
