"""Calling the scheduler: inside a compiled program, and on the host.

On CPU the scheduler runs inside the XLA program, as an FFI handler. On other platforms the program
calls back to the host, where the same core runs on NumPy arrays; neither re-enters JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrec import _core
from jaxrec._errors import from_message
from jaxrec.schedule._handlers import register_handlers
from jaxrec.schedule._layout import Layout, Tables, flat_tables, table_types, unflatten_tables
from jaxrec.split._program import Program

_TARGET = "jaxrec_plan"

CALL_LIMIT = 10_000_000
"""Calls after which a recursion is taken to be without end."""

LanePattern = tuple[int, int]
"""How lanes index an outer value: lane `l` reads element `(l // stride) % size`."""


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

    def on_cpu(*arrays: Any) -> list[Any]:
        return _ffi_plan(program, layout, inputs, arrays)

    def elsewhere(*arrays: Any) -> list[Any]:
        return _callback_plan(program, layout, inputs, arrays)

    flat = jax.lax.platform_dependent(*operands, cpu=on_cpu, default=elsewhere)
    return unflatten_tables(table_types(program, layout), flat)


def _ffi_plan(
    program: Program, layout: Layout, inputs: PlanInputs, arrays: Sequence[Any]
) -> list[Any]:
    register_handlers()
    types = flat_tables(table_types(program, layout))
    call = jax.ffi.ffi_call(_TARGET, types, vmap_method="sequential")
    made = call(
        *arrays,
        lanes=np.int64(layout.lanes),
        widths=np.asarray(layout.widths, np.int64),
        costs=np.asarray(layout.costs, np.float64),
        names=program.names,
        outer_lanes=_patterns(inputs.patterns),
        max_calls=np.int64(layout.max_calls),
        call_limit=np.int64(CALL_LIMIT),
        collect=np.int64(layout.collect),
        readers=np.int64(layout.readers),
        capacity=np.asarray([*layout.value_rows, *layout.read_rows], np.int64),
        workers=np.int64(0),
    )
    return list(made)


def _callback_plan(
    program: Program, layout: Layout, inputs: PlanInputs, arrays: Sequence[Any]
) -> list[Any]:
    types = flat_tables(table_types(program, layout))
    roots = len(inputs.roots)

    def on_host(*given: Any) -> list[Any]:
        host = [np.asarray(x) for x in given[1:]]
        made = dataclasses.replace(inputs, roots=tuple(host[:roots]), outers=tuple(host[roots:]))
        schedule = plan_on_host(program, layout, made, max_calls=layout.max_calls)
        buffers = [np.zeros(t.shape, t.dtype) for t in types]
        schedule.fill(buffers, [*layout.value_rows, *layout.read_rows], layout.readers)
        return buffers

    return jax.pure_callback(on_host, types, *arrays, vmap_method="sequential")


def plan_on_host(
    program: Program, layout: Layout, inputs: PlanInputs, max_calls: int = -1, workers: int = 0
) -> Any:
    """Runs the scheduler now.

    Returns:
        The core's schedule.

    Raises:
        JaxRecError: as the scheduler reports it, in its own class.
    """
    try:
        return _core.plan(
            program.words,
            [np.asarray(x, order="C") for x in inputs.roots],
            [np.asarray(x, order="C") for x in inputs.outers],
            _patterns(inputs.patterns),
            layout.lanes,
            list(layout.widths),
            list(layout.costs),
            program.names,
            max_calls,
            CALL_LIMIT,
            layout.collect,
            workers,
        )
    except _core.PlanError as error:
        raise from_message(error.args[1]) from None


def _patterns(patterns: Sequence[LanePattern | None]) -> Any:
    return np.asarray([x for p in patterns for x in (p or (1, 0))], np.int64)
