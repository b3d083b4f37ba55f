"""Invocations that the native machine runs: no schedule, no tapes and no bound on calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec.primitives._params import Params, control_array
from jaxrec.schedule._native import NativeCall, run_in_program, run_on_host
from jaxrec.split._native import NativeProgram


def is_native(params: Params) -> bool:
    """Whether the native machine runs an invocation."""
    on_machine = params.executor in ("graph", "host") and not params.collect
    return on_machine and params.program.native is not None


def run_native(params: Params, operands: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Stages an invocation into the program that is being traced."""
    return run_in_program(*_call(params, operands), types)


def run_native_now(params: Params, operands: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Runs an invocation whose operands are known; nothing is compiled.

    Raises:
        JaxRecError: as the machine reports it, in its own class.
        FloatingPointError: a result is what `jax_debug_nans` or `jax_debug_infs` looks for.
    """
    with jax.ensure_compile_time_eval():
        call, roots, outers = _call(params, operands)
    made = run_on_host(call, roots, outers, types)
    _check_results(params, made)
    devices: Sequence[Any] = () if params.host is None else params.host.devices
    device = devices[0] if len(devices) > 1 else None
    return [jnp.asarray(x, device=device) for x in made]


def _check_results(params: Params, made: Sequence[Any]) -> None:
    values = jax.config.values
    looked_for = {
        "nan": values["jax_debug_nans"] and np.isnan,
        "inf": values["jax_debug_infs"] and np.isinf,
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
    positions = (*program.control, *program.data)
    given = dict(zip(positions, operands[params.num_outers :], strict=True))
    entry = program.graph.entry
    roots = [
        given[k]
        if k in given  # others are of no consequence
        else jnp.zeros((params.lanes, *entry.params[k].aval.shape), entry.params[k].aval.dtype)
        for k in native.roots
    ]
    arrays = [control_array(params, v, operands[: params.num_outers]) for v in native.outers]
    patterns = tuple(pattern for _, pattern in arrays)
    workers = params.workers or (0 if params.host is None else params.host.workers)
    call = NativeCall(native, params.lanes, patterns, params.declared, workers)
    return call, roots, [array for array, _ in arrays]
