"""Invocations that the native machine runs: no schedule, no tapes and no bound on calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrec import _compat
from jaxrec._checks import check_results
from jaxrec._host_options import default_device
from jaxrec.invocation._params import ControlArrays, Params
from jaxrec.invocation._results import outcome_types
from jaxrec.schedule._native import NativeCall, run_in_program, run_on_host
from jaxrec.split._native import NativeProgram


def is_native(params: Params) -> bool:
    """Whether the native machine runs an invocation."""
    on_machine = params.executor in ("graph", "host") and not params.collect
    return on_machine and params.program.native is not None


class Prepared:
    """An invocation of the native machine without its arrays."""

    def __init__(self, params: Params) -> None:
        native = params.program.native
        assert isinstance(native, NativeProgram)
        self.params = params
        self._arrays = ControlArrays(params, native.outers)
        patterns = self._arrays.patterns
        workers = params.workers or (0 if params.host is None else params.host.workers)
        types = tuple(outcome_types(params))
        bounds = params.declared, params.rows
        self.call = NativeCall(native, params.lanes, patterns, *bounds, workers, types)
        self._may_be_bad = any(np.issubdtype(t.dtype, np.inexact) for t in types)
        self._positions = _roots(params, native)

    def roots(self, operands: Sequence[Any]) -> list[Any]:
        """The arguments of the roots, with the lanes in front."""
        return [operands[k] if isinstance(k, int) else k for k in self._positions]

    def outers(self, operands: Sequence[Any]) -> list[Any]:
        """The arrays that all calls read."""
        return self._arrays(operands[: self.params.num_outers])

    def check(self, made: Sequence[Any]) -> None:
        """Raises if a result is what `jax_debug_nans` or `jax_debug_infs` looks for."""
        if self._may_be_bad:
            check_results(self.params.program.name, made)


def prepared(params: Params) -> Prepared:
    """An invocation without its arrays, kept with its program."""
    return params.program.cache.once((Prepared, params), lambda: Prepared(params))


def run_native(at: Prepared, operands: Sequence[Any]) -> list[Any]:
    """Stages an invocation into the program that is being traced."""
    return run_in_program(at.call, at.roots(operands), at.outers(operands))


def run_native_now(at: Prepared, operands: Sequence[Any]) -> list[Any]:
    """Runs an invocation whose operands are known; nothing is compiled.

    Returns:
        The results as NumPy arrays, which whoever takes the first lane puts on a device.

    Raises:
        JaxRecError: as the machine reports it, in its own class.
        FloatingPointError: a result is what `jax_debug_nans` or `jax_debug_infs` looks for.
    """
    made = run_on_host(at.call, at.roots(operands), at.outers(operands))
    at.check(made)
    return made


def on_device(made: Sequence[Any]) -> list[Any]:
    """Results as arrays of JAX: those that the machine has made, on JAX's default device."""
    put = _compat.Put(default_device())
    return [put(x, _compat.aval_of(x)) if isinstance(x, np.ndarray) else x for x in made]


def _roots(params: Params, native: NativeProgram) -> list[Any]:
    """For each argument of the roots its position among the operands, or an array if none is."""
    given, entry = params.program.roots, params.program.graph.entry
    shapes = [((params.lanes, *p.aval.shape), p.aval.dtype) for p in entry.params]
    return [
        params.num_outers + given.index(k) if k in given else np.zeros(*shapes[k])
        for k in native.roots
    ]
