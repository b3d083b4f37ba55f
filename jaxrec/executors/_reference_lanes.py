"""An invocation on the definitional interpreter: one root after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxrec._errors import CapacityError
from jaxrec.executors._reference import Interpreter, Made
from jaxrec.invocation._bounds import derived_bound
from jaxrec.invocation._params import Params
from jaxrec.schedule._limits import limits_for, reference_depth
from jaxrec.schedule._plan import element_of


def run_reference(params: Params, operands: Sequence[Any]) -> list[Any]:
    """Runs every root of an invocation; the operands that control reads must be known."""
    program = params.program
    bounds = params.max_calls, params.declared, derived_bound(params)
    limits = limits_for(*bounds, depth=reference_depth(program))
    results, calls = [], []
    for lane in range(params.lanes):
        outers, args = _lane_operands(params, operands, lane)
        captured = outers[len(program.outers) - len(program.graph.captured) :]
        interpreter = Interpreter(program.graph, captured, limits, program.cache, program.taken)
        results.append(interpreter.run(args))
        calls.append(interpreter.calls)
    _check_capacity(params, sum(map(len, calls)))
    columns = [
        jnp.stack([lane[k] for lane in results]) if results else jnp.zeros((0, *a.shape), a.dtype)
        for k, a in enumerate(program.result_avals)
    ]
    return columns + (_report(params, calls) if params.collect else [])


def _check_capacity(params: Params, made: int) -> None:
    bound = params.bound
    if bound is not None and made > bound:
        needed = -(-made // params.rows)
        raise CapacityError(
            f"{params.program.name} made {needed} calls in one invocation, but max_calls is "
            f"{bound // params.rows}. Pass rec_fn(max_calls={needed}) or more."
        )


def _lane_operands(
    params: Params, operands: Sequence[Any], lane: int
) -> tuple[list[Any], list[Any]]:
    program, entry = params.program, params.program.graph.entry
    outers = [
        x if pattern is None else x[element_of(lane, pattern)]
        for x, pattern in zip(operands[: params.num_outers], params.patterns, strict=True)
    ]
    by_value = dict(zip(program.outers, outers, strict=True))
    roots = dict(zip(program.roots, operands[params.num_outers :], strict=True))
    args = [
        by_value[p]
        if p in by_value
        else roots[k][lane]
        if k in roots
        else jnp.zeros(p.aval.shape, p.aval.dtype)
        for k, p in enumerate(entry.params)
    ]
    return outers, args


def _report(params: Params, calls_by_lane: Sequence[Sequence[Made]]) -> list[Any]:
    """Every call of the entry function: results, control arguments, lane, validity."""
    made = [(lane, c) for lane, calls in enumerate(calls_by_lane) for c in calls]
    calls = [(lane, c) for lane, c in made if c.function == 0]
    size = params.max_calls if params.max_calls is not None else len(calls)

    def padded(rows: list[Any], aval: Any) -> Any:
        blank = jnp.zeros((size - len(rows), *aval.shape), aval.dtype)
        return jnp.concatenate([jnp.stack(rows), blank]) if rows else blank

    avals = params.program.result_avals
    results = [
        padded([c.results[k] for _, c in calls if c.results], a) for k, a in enumerate(avals)
    ]
    entry = params.program.graph.entry
    args = [
        padded([jnp.asarray(c.args[k]) for _, c in calls], entry.params[k].aval)
        for k in params.program.control
    ]
    lanes = np.zeros(size, np.int32)
    lanes[: len(calls)] = [lane for lane, _ in calls]
    return [*results, *args, jnp.asarray(lanes), jnp.arange(size) < len(calls)]
