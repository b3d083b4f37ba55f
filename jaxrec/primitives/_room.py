"""Room for more calls than an invocation makes, so that others like it run the same program.

A program is compiled for a size of its tapes. In a session of a notebook, or a loop that JAX does
not compile, each invocation may make another number of calls; room that is not used takes little
time, and compiling takes seconds.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

from jaxrec import _compat
from jaxrec._errors import CapacityError
from jaxrec.invocation._differentiated import Wrt
from jaxrec.invocation._params import Params
from jaxrec.primitives._capacity import decide_capacity, runs_alone
from jaxrec.primitives._primitives import rec_forward_p
from jaxrec.primitives._residuals import residual_types
from jaxrec.schedule._widths import power_of_two

_LEAST, _LEAST_DIFFERENTIATED = 1 << 10, 1 << 4
"""Calls for which there is room anyway."""

_MOST_LANES = _LEAST >> 4
"""Roots for which that is likely to be enough."""

_SPARE_FLOPS = 1 << 24
"""Arithmetic that a gradient may do in vain for calls that are not made: products for weights are
those of whole tapes.
"""

_MOST_BYTES = 1 << 26
"""What values and residuals may take where there is room for more calls than are made."""


def with_room(params: Params, operands: Sequence[Any], wrt: Wrt | None = None) -> Params:
    """`decide_capacity`, with room to spare where the invocation runs now and no size is declared.

    Args:
        params: of the invocation.
        operands: of it.
        wrt: what it is differentiated by, if it is.
    """
    sized = decide_capacity(params, operands)
    if not _is_free(params, operands):
        return sized
    assert sized.max_calls is not None
    size = max(_least(params, wrt), power_of_two(sized.max_calls))
    roomy = dataclasses.replace(sized, max_calls=size)
    return roomy if _is_small(roomy, operands, wrt) else sized


def forward_pass(params: Params, operands: Sequence[Any], wrt: Wrt) -> tuple[list[Any], Params]:
    """The results and residuals of an invocation, and its parameters with their capacity.

    How many calls a stepped one makes is known once it has run, so it runs with as much room as the
    last one had; counting its calls first takes a program and a run more.
    """
    if params.executor == "host":  # which needs no capacity
        return rec_forward_p.bind(*operands, params=params, wrt=wrt), params
    guess = _guess(params, operands, wrt)
    if guess is not None:
        with contextlib.suppress(CapacityError):
            return rec_forward_p.bind(*operands, params=guess, wrt=wrt), guess
    made = with_room(params, operands, wrt)
    if params.program.is_stepped and _is_free(params, operands):
        params.program.cache[_key(params)] = made.max_calls
    return rec_forward_p.bind(*operands, params=made, wrt=wrt), made


def _guess(params: Params, operands: Sequence[Any], wrt: Wrt) -> Params | None:
    """A stepped invocation with room that is likely to be enough, if it may have any."""
    if not params.program.is_stepped or not _is_free(params, operands):
        return None
    first = _LEAST if _least(params, wrt) == _LEAST and params.lanes <= _MOST_LANES else None
    size = params.program.cache.get(_key(params), first)
    if size is None:
        return None
    roomy = dataclasses.replace(params, max_calls=size)
    return roomy if _is_small(roomy, operands, wrt) else None


def _least(params: Params, wrt: Wrt | None) -> int:
    """The fewest calls that there is room for, a power of two."""
    if wrt is None:
        return _LEAST
    spare = int(_SPARE_FLOPS / (params.program.row_flops + 1.0))
    return min(power_of_two(max(spare, _LEAST_DIFFERENTIATED)), _LEAST)


def _key(params: Params) -> Any:
    return "differentiated room", params.lanes


def _is_free(params: Params, operands: Sequence[Any]) -> bool:
    """Whether the capacity of an invocation may be any that is enough."""
    return params.max_calls is None and runs_alone(params, operands)


def _is_small(params: Params, operands: Sequence[Any], wrt: Wrt | None) -> bool:
    """Whether what an invocation has room for takes little memory."""
    assert params.max_calls is not None
    if wrt is None:
        return params.program.call_bytes * params.max_calls <= _MOST_BYTES
    avals = list(map(_compat.aval_of, operands))

    def size() -> int:
        return sum(a.size * a.dtype.itemsize for a in residual_types(params, wrt, avals))

    key = ("residual bytes", params, wrt, *((a.shape, a.dtype) for a in avals))
    return params.program.cache.once(key, size) <= _MOST_BYTES
