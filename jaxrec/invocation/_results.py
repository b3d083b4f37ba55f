"""The results of an invocation, flat: of the roots, and of every call if they are collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray

from jaxrec._types import has_derivative
from jaxrec.invocation._params import Params
from jaxrec.lowering._forward import Scheduled, collected


def outcome(at: Scheduled, results: Sequence[Any]) -> list[Any]:
    """Results, then if collected control arguments, lane and validity of each call."""
    if not at.layout.collect:
        return list(results)
    return [*results, *at.tables.calls_args, at.tables.calls_lane, collected(at)]


def outcome_types(params: Params) -> list[ShapedArray]:
    """The types of `outcome`."""
    program = params.program
    types = [_leading(params.lanes, a) for a in program.result_avals]
    if params.collect:
        calls = params.max_calls
        assert calls is not None
        types += [_leading(calls, a) for a in program.result_avals]
        types += [_leading(calls, program.graph.entry.params[k].aval) for k in program.control]
        types += [ShapedArray((calls,), np.dtype(np.int32)), ShapedArray((calls,), np.dtype(bool))]
    return types


def differentiable(params: Params) -> list[bool]:
    """For each of `outcome`, whether it has tangents."""
    flags = [has_derivative(a) for a in params.program.result_avals]
    if params.collect:
        flags += flags + [False] * (len(params.program.control) + 2)
    return flags


def _leading(size: int, aval: ShapedArray) -> ShapedArray:
    return ShapedArray((size, *aval.shape), aval.dtype)
