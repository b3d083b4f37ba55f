"""Choices and loops of JAX that make calls, in the lanes of a `jax.vmap` inside a body.

Where the predicate of a `cond` differs between lanes, JAX runs all branches and selects among their
results; where that of a `while_loop` does, JAX goes on with all lanes until the last one has ended.
Both would make calls that no lane asked for, and so recur without end. Here each lane chooses, and
ends, by itself.

JAX applies `vmap` while the body runs: all that it asks about a `cond` is the batching rule of the
primitive, in a table of the process. So the rules are replaced there, but only while a body is
traced, by ones that leave to JAX all equations without recursive calls. Equations with calls exist
only in bodies that are being traced: no other program can tell the difference, nor another thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr

from jaxrec import _compat
from jaxrec.trace._call import calls_inside, each_lane


def lanes_apart() -> Any:
    """A context in which the lanes of choices and loops of JAX that make calls act apart."""
    return _compat.batched_by({jax.lax.cond_p: _batch_cond, jax.lax.while_p: _batch_while})


def _batch_cond(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    """`jax.lax.cond` in lanes that choose apart: JAX would run all branches for each of them."""
    if dims[0] is _compat.not_mapped or not calls_inside(params):
        return None
    outs = each_lane(lambda *one: jax.lax.cond_p.bind(*one, **params), operands, dims)
    return outs, [0] * len(outs)


def _batch_while(operands: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    """`jax.lax.while_loop` in lanes that end apart: JAX would go on with all of them."""
    if not calls_inside(params) or not _end_apart(dims, **params):
        return None
    outs = each_lane(lambda *one: jax.lax.while_p.bind(*one, **params), operands, dims)
    return outs, [0] * len(outs)


def _end_apart(
    dims: Sequence[int | None],
    cond_jaxpr: ClosedJaxpr,
    body_jaxpr: ClosedJaxpr,
    cond_nconsts: int,
    body_nconsts: int,
) -> bool:
    """Whether the predicate of a loop may differ between lanes."""
    mapped = [d is not _compat.not_mapped for d in dims]
    of_cond, mapped = mapped[:cond_nconsts], mapped[cond_nconsts:]
    of_body, state = mapped[:body_nconsts], mapped[body_nconsts:]
    while True:
        after = _follows(body_jaxpr.jaxpr, [*of_body, *state])
        grown = [a or b for a, b in zip(state, after, strict=True)]
        if grown == state:
            return _follows(cond_jaxpr.jaxpr, [*of_cond, *state])[0]
        state = grown


def _follows(jaxpr: Jaxpr, mapped: Sequence[bool]) -> list[bool]:
    """Which results follow from the inputs marked so."""
    marked = {v for v, is_mapped in zip(jaxpr.invars, mapped, strict=True) if is_mapped}
    for eqn in jaxpr.eqns:
        operands = [v for v in eqn.invars if not _compat.is_literal(v)]
        # One with a named axis, such as `axis_index`, may differ between lanes.
        if not marked.isdisjoint(operands) or _compat.axes_named_by(eqn):
            marked.update(eqn.outvars)
    return [not _compat.is_literal(v) and v in marked for v in jaxpr.outvars]
