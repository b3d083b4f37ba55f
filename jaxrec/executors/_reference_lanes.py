"""An invocation on the definitional interpreter: one root after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxrec._errors import CapacityError
from jaxrec.executors._reference import Interpreter

if TYPE_CHECKING:
    from jaxrec.primitives._params import Params


def run_reference(params: Params, operands: Sequence[Any]) -> list[Any]:
    """Runs every root of an invocation; the operands that control reads must be known."""
    program = params.program
    runs = []
    for lane in range(params.lanes):
        outers, args = _lane_operands(params, operands, lane)
        captured = outers[len(program.outers) - len(program.graph.captured) :]
        interpreter = Interpreter(program.graph, captured)
        runs.append((interpreter.run(args), interpreter.calls))
    results = [jnp.stack(column) for column in zip(*(r for r, _ in runs), strict=True)]
    return results + (_report(params, [calls for _, calls in runs]) if params.collect else [])


def _lane_operands(
    params: Params, operands: Sequence[Any], lane: int
) -> tuple[list[Any], list[Any]]:
    program, entry = params.program, params.program.graph.entry
    outers = [
        x if pattern is None else x[(lane // pattern[0]) % pattern[1]]
        for x, pattern in zip(operands[: params.num_outers], params.patterns, strict=True)
    ]
    by_value = dict(zip(program.outers, outers, strict=True))
    roots = dict(zip((*program.control, *program.data), operands[params.num_outers :], strict=True))
    args = [
        by_value[p]
        if p in by_value
        else roots[k][lane]
        if k in roots
        else jnp.zeros(p.aval.shape, p.aval.dtype)
        for k, p in enumerate(entry.params)
    ]
    return outers, args


def _report(params: Params, calls_by_lane: Sequence[Sequence[Any]]) -> list[Any]:
    """Every call of the entry function: results, control arguments, lane, validity."""
    calls = [(lane, c) for lane, made in enumerate(calls_by_lane) for c in made if c[0] == 0]
    size = params.max_calls if params.max_calls is not None else len(calls)
    if len(calls) > size:
        name = params.program.name
        raise CapacityError(
            f"{name} made {len(calls)} calls in one invocation, but max_calls is {size}. "
            f"Pass rec_fn(max_calls={len(calls)}) or more."
        )

    def padded(rows: list[Any], aval: Any) -> Any:
        blank = jnp.zeros((size - len(rows), *aval.shape), aval.dtype)
        return jnp.concatenate([jnp.stack(rows), blank]) if rows else blank

    avals = params.program.result_avals
    results = [padded([c[2][k] for _, c in calls], a) for k, a in enumerate(avals)]
    entry = params.program.graph.entry
    args = [
        padded([jnp.asarray(c[1][k]) for _, c in calls], entry.params[k].aval)
        for k in params.program.control
    ]
    lanes = np.zeros(size, np.int32)
    lanes[: len(calls)] = [lane for lane, _ in calls]
    return [*results, *args, jnp.asarray(lanes), jnp.arange(size) < len(calls)]
