"""From the control values of an invocation to its plan: batch, split or fire alone.

Two decisions, by costs. The ready firings of a cell are cut into waves by what the cell costs at
each width: one wide wave, some narrow ones, or waves of one call, where rows cost much and launches
little. And the waves of one domain are a chain, so domains are what runs at the same time: whether
dividing an invocation gains depends on whether halves of a wide wave cost nearly as much as the
whole, and on whether XLA divides large cells among the cores by itself. So schedules of one domain
and of several are made, their waves are added up, by the costs of each cell when it runs by itself
and when as many run as there are workers, and the cheapest schedule is taken.

This decision was left open by Jeong et al., "Improving the expressiveness of deep learning
frameworks with recursion" (EuroSys 2018), section 7: conditional batching, and priorities.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from jaxrec import _core
from jaxrec._host_options import HostOptions
from jaxrec.executors.host._costs import (
    COPY_SECONDS,
    Costs,
    guessed_costs,
    least_seconds,
    measured_costs,
    pays,
)
from jaxrec.executors.host._plan import Copy, HostPlan, host_plan
from jaxrec.executors.host._runs import waves_together
from jaxrec.executors.host._sizes import host_layout
from jaxrec.executors.host._stepped import step_forward
from jaxrec.invocation._bounds import planned
from jaxrec.invocation._params import Params
from jaxrec.schedule._layout import Layout

_SHARDS = (2, 4, 8, 16, 32)
"""Numbers of shards on a device that are tried, below that of workers."""


def plan_call(params: Params, operands: Sequence[Any], *, readers: bool = False) -> HostPlan:
    """Schedules an invocation.

    Args:
        params: of the invocation.
        operands: concrete ones.
        readers: whether the backward pass will need the plan.
    """
    core, sized, costs, division = _divided(params, operands, readers)
    if not readers:
        core.reuse_rows(sized.widths)
    layout = host_layout(params.program, sized, core, division.domains)
    together = waves_together(params.program, costs.alone)
    copies = [Copy(*copy) for copy in division.copies]
    return host_plan(
        params.program, core, layout, together, division.domains, division.shards, copies
    )


def schedule_core(params: Params, operands: Sequence[Any], layout: Layout) -> Any:
    """The core's schedule of an invocation that has run, with the layout that it had.

    It is the same again for the same control values.
    """
    if params.program.is_stepped:
        return step_forward(params, operands, widths=layout.widths)[1]
    return _divided(params, operands, layout.readers)[0]


def _divided(
    params: Params, operands: Sequence[Any], readers: bool
) -> tuple[Any, Layout, Costs, _Taken]:
    options, program = params.host, params.program
    assert options is not None
    core = planned(params, operands, waves=False)
    sized, costs = _cut(params, operands, readers, core)
    device = [options.device_of(spec.cell.name) for spec in program.cells]
    if any(device) or _shards(options, core) > 1:
        return core, sized, costs, _divide(options, core, sized, device, costs)
    core.lay_out(sized.widths, sized.costs)
    return core, sized, costs, _Taken()


def _cut(params: Params, operands: Sequence[Any], readers: bool, core: Any) -> tuple[Layout, Costs]:
    """The layout by whose widths and costs a schedule is to be cut into waves, and the costs."""
    options = params.host
    assert options is not None
    calls, fired = max(core.num_calls, 1), core.cell_rows
    sized = params.unbounded_layout(calls, _widths(params, calls), readers=readers)
    if options.policy != "adaptive" or not pays(params, fired, sized.widths):
        return sized, guessed_costs(params.program, sized.widths, options.workers)
    costs = measured_costs(params, operands, fired, sized.widths)
    return dataclasses.replace(sized, costs=tuple(costs.alone)), costs


def _divide(
    options: HostOptions, core: Any, sized: Layout, device: Sequence[int], costs: Costs
) -> _Taken:
    """Divides a schedule in the way that is fastest, perhaps not at all."""
    most, widths, adapts = _shards(options, core), sized.widths, options.policy == "adaptive"
    tried = [most]
    if adapts:
        tried = sorted({1 if any(device) else most, *(n for n in _SHARDS if n < most), most})
    best, taken, seconds = None, _Taken(), math.inf
    for shards in tried:
        of, workers = (costs.alone, 1) if shards == 1 else (costs.together, options.workers)
        made = _core.divide(core, shards, device, widths, of, COPY_SECONDS)
        found = made.estimate(core, of, COPY_SECONDS, workers)
        if found < seconds:
            best, seconds = made, found
            taken = _Taken(made.domains, shards, made.copies)
    least = least_seconds(core.cell_rows, widths, costs.alone)
    if adapts and not any(device) and seconds >= costs.worth * least:
        core.lay_out(widths, sized.costs)
        if seconds >= costs.worth * _core.estimate(core, costs.alone):
            return _Taken()
    assert best is not None
    best.replace(core)
    return taken


@dataclasses.dataclass(frozen=True)
class _Taken:
    """How the schedule that was taken is divided: into domains, and shards of each device."""

    domains: int = 1
    shards: int = 1
    copies: Sequence[tuple[int, int, int]] = ()


def _widths(params: Params, calls: int) -> tuple[int, ...]:
    """The widths to choose from; kernels are compiled only at those that a schedule takes.

    Where the roots go in step with each other, as many calls as there are roots are ready, or of a
    shard its share of them.
    """
    assert params.host is not None
    usual = params.widths(calls)
    shares = {math.ceil(params.lanes / n) for n in (1, params.host.workers)}
    return tuple(sorted({*usual, *(n for n in shares if usual[0] < n < usual[-1])}))


def _shards(options: HostOptions, core: Any) -> int:
    return min(options.shards, max(core.num_calls // 2, 1))
