"""Invocations that the native machine runs: no schedule, no tapes and no bound on calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec.primitives._params import Params, control_array
from jaxrec.schedule._native import NativeCall, run_in_program, run_on_host
from jaxrec.split._native import NativeProgram


def is_native(params: Params) -> bool:
    """Whether the native machine runs an invocation."""
    return params.program.native is not None and params.executor == "graph" and not params.collect


def run_native(params: Params, operands: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Stages an invocation into the program that is being traced."""
    return run_in_program(*_call(params, operands), types)


def run_native_now(params: Params, operands: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """Runs an invocation whose operands are known; nothing is compiled."""
    with jax.ensure_compile_time_eval():
        call, roots, outers = _call(params, operands)
    return [jnp.asarray(x) for x in run_on_host(call, roots, outers, types)]


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
    call = NativeCall(native, params.lanes, patterns, params.declared, params.workers)
    return call, roots, [array for array, _ in arrays]
