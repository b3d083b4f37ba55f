"""How many calls an invocation can make, and its schedule where that follows from known values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrec import _compat
from jaxrec.invocation._params import Params, plan_inputs
from jaxrec.schedule._layout import Layout, make_layout
from jaxrec.schedule._limits import Limits, limits_for, stepped_limits
from jaxrec.schedule._plan import element_of, plan_on_host
from jaxrec.split._bound import most_calls


def derived_bound(params: Params) -> int | None:
    """A bound on calls that are indexed by nodes, or None."""
    key = (most_calls, params.lanes, params.copies, params.patterns)
    return params.program.cache.once(key, lambda: _bound_by_nodes(params))


def _bound_by_nodes(params: Params) -> int | None:
    copies = _index_arrays(params)

    lanes = params.lanes // max(params.copies, 1)
    bound = most_calls(params.program.visits, lanes, copies)
    return None if bound is None else bound * params.copies


def _index_arrays(params: Params) -> int:
    """How many different arrays, all that control reads together, the lanes have."""
    lanes = np.arange(params.lanes)
    controlling = [params.patterns[k] for k in params.controlling if k < params.num_outers]
    which = [element_of(lanes, pattern) for pattern in filter(None, controlling)]
    return len(np.unique(np.stack(which, 1), axis=0)) if which else 1


def has_no_bound(params: Params) -> bool:
    """Whether neither the user nor the arguments bound the calls of an invocation."""
    return params.bound is None and derived_bound(params) is None


def limits_of(params: Params) -> Limits:
    """When the recursion is taken to be without end."""
    bounds = params.max_calls, params.declared, derived_bound(params)
    stepped = stepped_limits(params.program, params.executor, params.lanes)
    return limits_for(*bounds, stepped=stepped)


def is_plannable(params: Params, operands: Sequence[Any]) -> bool:
    """Whether the schedule follows from values that are known now."""
    return _is_known(params, operands, params.controlling)


def is_countable(params: Params, operands: Sequence[Any]) -> bool:
    """Whether the number of calls does, if not the schedule: cells may read more of control."""
    return _is_known(params, operands, params.counting)


def _is_known(params: Params, operands: Sequence[Any], positions: Iterable[int]) -> bool:
    is_planned = not params.program.is_stepped
    return is_planned and all(_compat.is_concrete(operands[k]) for k in positions)


def planned(
    params: Params, operands: Sequence[Any], layout: Layout | None = None, *, waves: bool = True
) -> Any:
    """The core's schedule of a planned invocation whose control operands are known.

    Without waves it is still to be laid out.
    """
    layout = layout or layout_for_planning(params)
    with jax.ensure_compile_time_eval():
        inputs = plan_inputs(params, operands)
    limits = limits_of(params)
    return plan_on_host(params.program, layout, inputs, limits, params.bound, waves=waves)


def layout_for_planning(params: Params) -> Layout:
    """A layout for a schedule whose sizes are not known yet."""

    def make() -> Layout:
        return make_layout(
            params.program,
            params.lanes,
            1 << 20,
            collect=params.collect,
            platform=params.platform,
        )

    key = (make_layout, params.lanes, params.collect, params.platform)
    return params.program.cache.once(key, make)
