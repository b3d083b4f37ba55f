"""Choices that decide how much is computed."""

from __future__ import annotations

from jaxrec.graph._flops import PRODUCTS, work_of
from jaxrec.graph._ir import Op, Switch, has_call, names_of, shows
from jaxrec.graph._patience import has_to_wait
from jaxrec.graph._steep import has_steep

_LONG = PRODUCTS | {"scan"}  # a loop of another kind has to wait

_WASTED_FLOPS = 3e5
"""Arithmetic of branches that are not taken which takes less time than it takes to run the calls of
each branch apart: waves are narrower then, and wait for the choice to be computed.

Measured on two CPU cores, a fold of 25 trees and its gradient: two products with `[150, 300]` take
little more than half the time together, sixteen with `[64, 128]` as long, and eight with
`[150, 300]` one and a half times as long.
"""


def is_long(op: Op) -> bool:
    """Whether an operation may cost so much that a branch must not run it in vain."""
    return has_to_wait([op]) or not _LONG.isdisjoint(names_of(op))


def decides_work(op: Op) -> bool:
    """Whether a Switch decides what runs, so that the scheduler must know its index."""
    return isinstance(op, Switch) and (has_call(op) or shows(op) or _is_routed(op))


def _is_routed(op: Switch) -> bool:
    """Whether a choice without calls runs the branch that is taken alone.

    The others run all their branches for all calls, which is right where derivatives of them are
    finite, and quick where they are short.
    """
    return is_long(op) and (has_to_wait([op]) or has_steep(op) or _wasted(op) > _WASTED_FLOPS)


def _wasted(op: Switch) -> float:
    """What the branches take that are not taken, if the longest is."""
    times = [sum(work.time_in_flops for work in work_of(region.ops)) for region in op.regions]
    return sum(times) - max(times)
