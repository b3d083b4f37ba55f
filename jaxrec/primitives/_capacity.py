"""How many calls an invocation can make: declared, derived, or found by running it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxrec import _compat
from jaxrec._errors import CapacityError
from jaxrec._host_options import host_options
from jaxrec.executors.host._stepped import step_forward
from jaxrec.invocation._bounds import (
    derived_bound,
    is_countable,
    layout_for_planning,
    planned,
)
from jaxrec.invocation._params import Params, run_invocation
from jaxrec.primitives._alike import Batched, batched
from jaxrec.primitives._batching import Batch
from jaxrec.primitives._primitives import run_compiled
from jaxrec.schedule._layout import Layout, bucket
from jaxrec.schedule._limits import stepped_limits
from jaxrec.schedule._widths import power_of_two
from jaxrec.split._native import unknown_operation

_ROOM, _ROOM_OF_LANE = 1 << 12, 1 << 4
"""Calls, in all and of each lane, for which an eager stepped invocation gets room before it gets as
much as a recursion that ends may need."""


def decide_capacity(params: Params, operands: Sequence[Any]) -> Params:
    """Fixes `max_calls`, from the schedule itself if its inputs are known, else from a bound.

    Raises:
        CapacityError: neither is there.
        JaxRecError: the schedule cannot be made (a wrong index, a recursion without end).
    """
    if params.max_calls is not None:
        return params
    operands = list(map(_compat.value_behind, operands))
    return dataclasses.replace(params, max_calls=_capacity(params, operands))


def _capacity(params: Params, operands: Sequence[Any]) -> int | None:
    derived = derived_bound(params)
    # The report of `collect` has the size of the bound where that is enough: as far as possible it
    # does not depend on the values of the arguments.
    fixed = derived if params.declared is None and params.collect else params.declared
    # Also where the size is fixed: what is wrong with the arguments is an error here and now.
    calls = _known_calls(dataclasses.replace(params, max_calls=params.declared), operands)
    if calls is not None:
        return fixed if fixed is not None and calls <= fixed else bucket(calls)
    if fixed is not None:
        return fixed
    if any(map(_compat.is_batched, operands)):
        return _calls_of_examples(params, operands)
    if derived is None:
        raise CapacityError(_no_bound(params))
    return derived


def _no_bound(params: Params) -> str:
    """What is wrong with an invocation of which no bound is known, and what to do."""
    message = (
        f"under jit and jax.checkpoint, and in branches and loops of jax.lax, the number of calls "
        f"of {params.program.name} must be bounded, and no bound "
        "follows from its arguments (its calls are not indexed by the nodes of an array, or a "
        "loop of unknown length makes them). Declare one: rec_fn(max_calls=...) or "
        f"{params.program.name}.with_options(max_calls=...)."
    )
    if params.executor == "reference" and params.program.native is not None:
        message += f' Executor "graph" needs none for {params.program.name}.'
    unknown = unknown_operation(params.program.graph, params.program.binding)
    if unknown is not None:
        message += f" The machine for scalars, which needs none, does not compute {unknown}."
    return message


def _known_calls(params: Params, operands: Sequence[Any]) -> int | None:
    """The calls of an invocation whose schedule follows from known values, or None."""
    if is_countable(params, operands):
        return plan_now(params, _with_zeros(params, operands), waves=False).num_calls
    is_runnable = params.program.is_stepped and all(map(_compat.is_concrete, operands))
    return _count_calls(params, operands) if is_runnable and params.declared is None else None


def _with_zeros(params: Params, operands: Sequence[Any]) -> list[Any]:
    """The operands with zeros for what control reads, is not known and decides no call."""
    found = list(operands)
    for k in params.controlling:
        if not _compat.is_concrete(found[k]):
            aval = _compat.aval_of(found[k])
            found[k] = np.zeros(aval.shape, aval.dtype)
    return found


def _calls_of_examples(params: Params, operands: Sequence[Any]) -> int | None:
    """The calls of all examples that `vmap` maps over: at least those of one."""
    values, dims = zip(*_compat.unbatched_once(operands), strict=True)
    batch = batched(params, values, dims)
    return decide_capacity(batch.params, batch.operands).max_calls


def batch_of(
    params: Params,
    operands: Sequence[Any],
    dims: Sequence[Any],
    size: int | None = None,
    apart: Iterable[int] = (),
    asked: Iterable[int] = (),
    *,
    ran: bool = True,
) -> Batched:
    """A batched invocation, its capacity decided if that of one example is; see `batched`.

    Where it perhaps has not run, its operands tell nothing. One that runs now finds its own.
    """
    batch = batched(params, operands, dims, size, apart, asked)
    if params.max_calls is None:
        return batch
    if ran and runs_alone(batch.params, batch.operands):
        batch.params = dataclasses.replace(batch.params, max_calls=None)
    elif isinstance(batch, Batch):
        batch.params = _decided(params, batch, ran)
    return batch


def runs_alone(params: Params, operands: Sequence[Any]) -> bool:
    """Whether the capacity of an invocation is nobody's concern but its own."""
    fixed = params.declared is not None or params.collect
    return not fixed and not _compat.is_staged() and all(map(_compat.is_concrete, operands))


def _decided(params: Params, batch: Batch, ran: bool) -> Params:
    """The parameters of a batched invocation, if those of one example are decided."""
    assert params.max_calls is not None
    sized = dataclasses.replace(batch.params, max_calls=bucket(batch.size * params.max_calls))
    is_batched = any(map(_compat.is_batched, batch.operands))
    if is_batched and not ran:
        return sized
    tells = params.declared is not None or params.program.is_stepped
    if tells or is_countable(batch.params, batch.operands):
        return decide_capacity(batch.params, batch.operands)
    if is_batched:
        with contextlib.suppress(CapacityError):
            return decide_capacity(batch.params, batch.operands)
    # What one example needs is all that is known, or what follows from nodes is as good.
    derived = derived_bound(params)
    if derived is None or params.max_calls > derived:
        return sized
    return decide_capacity(batch.params, batch.operands)


def on_graph(params: Params, operands: Sequence[Any]) -> Params:
    """The same invocation on executor "graph", its capacity decided."""
    return decide_capacity(dataclasses.replace(params, executor="graph", host=None), operands)


def plan_now(
    params: Params, operands: Sequence[Any], layout: Layout | None = None, *, waves: bool = True
) -> Any:
    """As `planned` of an invocation whose operands are known; a stepped one has to run."""
    if not params.program.is_stepped:
        return planned(params, operands, layout, waves=waves)
    layout = layout or layout_for_planning(params)
    host = params.host or host_options(1, None, None, "batch")
    on = dataclasses.replace(params, executor="host", host=host)

    def run(*own: Any) -> Sequence[Any]:
        return [step_forward(on, own, widths=layout.widths)[1]]

    core = _compat.as_if_alone(run, operands)[0]
    if layout.sweeps:
        core.lay_out(layout.widths, layout.costs, sweeps=True)
    return core


def grow(params: Params, operands: Sequence[Any], kind: str, fun: Any) -> tuple[Params, list[Any]]:
    """Runs a stepped invocation that has no bound, with more room until it is enough.

    How many calls it makes is known only once it has run. Room that is not used costs little,
    since tapes are not filled, so it grows in few steps, since each is compiled, and is remembered.

    Args:
        params: without `max_calls`.
        operands: known values.
        kind: a name for the program to run.
        fun: the program, a function of the operands and `params`.

    Returns:
        The parameters with a capacity that was enough, and the results.
    """
    program = params.program
    key = ("room", params.lanes)
    limits = stepped_limits(program, params.executor, params.lanes)
    assert limits is not None
    least = program.cache.get(key, max(_ROOM, power_of_two(_ROOM_OF_LANE * params.lanes)))
    sizes = (max(size, least) for size in (least, limits.depth, limits.calls))
    sizes = sorted({min(size, limits.calls) for size in sizes})
    for size in sizes:
        sized = dataclasses.replace(params, max_calls=size)
        try:
            outs = run_compiled(kind, fun, sized, operands)
        except CapacityError:
            if size < sizes[-1]:
                continue
            raise
        program.cache[key] = size
        return sized, outs
    raise AssertionError("there is always a size to try")


def _count_calls(params: Params, operands: Sequence[Any]) -> int:
    """How many calls a stepped invocation makes, all functions together."""
    if params.executor == "host":
        # The report of `collect` is not asked for yet: its size is what is to be found out.
        return step_forward(dataclasses.replace(params, collect=False), operands)[1].num_calls
    _, (calls,) = grow(params, operands, "count", _run_counting)
    return int(calls)


def _run_counting(*operands: Any, params: Params) -> list[Any]:
    at, _, _ = run_invocation(params, params.layout(), operands)
    return [at.tables.num_calls]
