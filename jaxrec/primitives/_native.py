"""Invocations that the native machine runs: no schedule, no tapes and no bound on calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxrec import _compat
from jaxrec.primitives._params import Params, control_array, control_pattern
from jaxrec.primitives._results import outcome_types
from jaxrec.schedule._native import NativeCall, run_in_program, run_on_host
from jaxrec.split._native import NativeProgram


def is_native(params: Params) -> bool:
    """Whether the native machine runs an invocation."""
    on_machine = params.executor in ("graph", "host") and not params.collect
    return on_machine and params.program.native is not None


def run_native(params: Params, operands: Sequence[Any]) -> list[Any]:
    """Stages an invocation into the program that is being traced."""
    return run_in_program(*_call(params, operands))


def run_native_now(params: Params, operands: Sequence[Any]) -> list[Any]:
    """Runs an invocation whose operands are known; nothing is compiled.

    Returns:
        The results as NumPy arrays, which whoever takes the first lane puts on a device.

    Raises:
        JaxRecError: as the machine reports it, in its own class.
        FloatingPointError: a result is what `jax_debug_nans` or `jax_debug_infs` looks for.
    """
    made = run_on_host(*_call(params, operands))
    _check_results(params, made)
    if params.host is None or len(params.host.devices) == 1:
        return made
    return jax.device_put(made, params.host.devices[0])


def _check_results(params: Params, made: Sequence[Any]) -> None:
    looked_for = {
        "nan": _compat.setting("jax_debug_nans") and np.isnan,
        "inf": _compat.setting("jax_debug_infs") and np.isinf,
    }
    for name, is_bad in looked_for.items():
        if is_bad and any(np.any(is_bad(np.asarray(x, np.float64))) for x in made):
            raise FloatingPointError(
                f"invalid value ({name}) in the result of {params.program.name}. "
                'jr.executor("reference") tells which operation makes it.'
            )


def _call(params: Params, operands: Sequence[Any]) -> tuple[NativeCall, list[Any], list[Any]]:
    program, native = params.program, params.program.native
    assert isinstance(native, NativeProgram)
    key = NativeCall, params
    if key not in program.cache:
        program.cache[key] = _without_arrays(params, native), _roots(params, native)
    call, positions = program.cache[key]
    roots = [operands[k] if isinstance(k, int) else k for k in positions]
    outers = operands[: params.num_outers]
    return call, roots, [control_array(params, value, outers) for value in native.outers]


def _without_arrays(params: Params, native: NativeProgram) -> NativeCall:
    patterns = tuple(control_pattern(params, value) for value in native.outers)
    workers = params.workers or (0 if params.host is None else params.host.workers)
    types = tuple(outcome_types(params))
    return NativeCall(native, params.lanes, patterns, params.declared, workers, types)


def _roots(params: Params, native: NativeProgram) -> list[Any]:
    """For each argument of the roots its position among the operands, or an array if none is."""
    program, entry = params.program, params.program.graph.entry
    given = (*program.control, *program.data)
    shapes = [((params.lanes, *p.aval.shape), p.aval.dtype) for p in entry.params]
    return [
        params.num_outers + given.index(k) if k in given else np.zeros(*shapes[k])
        for k in native.roots
    ]
