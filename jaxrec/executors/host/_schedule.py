"""From the control values of an invocation to its plan: batch, split or fire alone.

The waves of one domain are a chain, so domains are what runs at the same time. Whether dividing an
invocation gains is a matter of costs: halves of a wide wave cost nearly as much as the whole where
a launch is what costs, and large cells are divided among the cores by XLA itself. So the waves of
both schedules are added up, by the costs of each cell at each width when it runs by itself and
when as many run as there are workers, and the cheaper schedule is taken.

This decision was left open by Jeong et al., "Improving the expressiveness of deep learning
frameworks with recursion" (EuroSys 2018), section 7: conditional batching, and priorities.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jaxrec import _core
from jaxrec.executors.host._costs import COPY_SECONDS, Costs, cell_costs
from jaxrec.executors.host._options import HostOptions
from jaxrec.executors.host._plan import Copy, HostPlan, host_layout, host_plan
from jaxrec.executors.host._stepped import step_forward
from jaxrec.schedule._layout import choose_widths, make_layout

if TYPE_CHECKING:
    from jaxrec.primitives._params import Params
    from jaxrec.schedule._layout import Layout


def plan_call(params: Params, operands: Sequence[Any], *, readers: bool = False) -> HostPlan:
    """Schedules an invocation.

    Args:
        params: of the invocation.
        operands: concrete ones.
        readers: whether the backward pass will need the plan.
    """
    core, sized, division = _divided(params, operands, readers)
    domains = 1 if division is None else division.domains
    copies = [] if division is None else [Copy(*copy) for copy in division.copies]
    if not readers:
        core.reuse_rows(sized.widths)
    layout = host_layout(params.program, sized, core, domains, copies)
    return host_plan(params.program, core, layout, domains, copies)


def schedule_core(params: Params, operands: Sequence[Any]) -> Any:
    """The core's schedule of an invocation: always the same for the same control values."""
    if params.program.is_stepped:
        return step_forward(params, operands)[1]
    return _divided(params, operands, False)[0]


def _divided(
    params: Params, operands: Sequence[Any], readers: bool
) -> tuple[Any, Layout, Any | None]:
    from jaxrec.primitives._capacity import plan_now

    options = params.host
    assert options is not None
    calls = max(plan_now(params, operands).num_calls, 1)
    sized = make_layout(
        params.program,
        params.lanes,
        params.max_calls if params.collect and params.max_calls else calls,
        collect=params.collect,
        readers=readers,
        widths=_widths(params, calls, readers),
    )
    core = plan_now(params, operands, sized)
    program = params.program
    device = [options.device_of(spec.cell.name) for spec in program.cells]
    costs = cell_costs(params, operands, core, sized.widths)
    spread = any(device)
    shards = _shards(options, core)
    if not spread and shards == 1:
        return core, sized, None
    whole = _core.divide(core, 1, device, sized.widths, costs.alone, COPY_SECONDS)
    divided = whole
    if shards > 1:
        divided = _core.divide(core, shards, device, sized.widths, costs.together, COPY_SECONDS)
        if options.policy == "adaptive" and not _gains(core, whole, divided, costs, options):
            divided = whole
    if divided is whole and not spread:
        return core, sized, None
    domains, copies = divided.domains, divided.copies
    divided.replace(core)
    return core, sized, _Taken(domains, copies)


@dataclasses.dataclass(frozen=True)
class _Taken:
    """What is left of a division that is a schedule now."""

    domains: int
    copies: list[tuple[int, int, int]]


def _widths(params: Params, calls: int, readers: bool) -> tuple[int, ...]:
    assert params.host is not None
    if params.host.policy == "alone":
        # A cell of one row has no row axis to find, which its backward pass is cut along.
        return (2,) if readers else (1,)
    return choose_widths(params.lanes, calls)


def _shards(options: HostOptions, core: Any) -> int:
    return min(options.shards, max(core.num_calls // 2, 1))


def _gains(core: Any, whole: Any, divided: Any, costs: Costs, options: HostOptions) -> bool:
    """Whether the divided schedule is faster."""
    alone = whole.estimate(core, costs.alone, COPY_SECONDS, 1)
    together = divided.estimate(core, costs.together, COPY_SECONDS, options.workers)
    return together < alone
