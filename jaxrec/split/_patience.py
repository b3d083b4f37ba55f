"""Operations that must not run before it is known that their branch is taken.

What only outer values go into could be computed once, before the recursion. That a loop has no end,
and that Python is called, is seen even if nothing reads the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jax.extend.core import jaxprs_in_params

from jaxrec.graph._ir import Op, Prim, Switch


def has_to_wait(ops: Iterable[Op]) -> bool:
    """Whether some operation may never end, or calls Python."""
    return any(name == "while" or "callback" in name for name in _names(ops))


def calls_host(ops: Iterable[Op]) -> bool:
    """Whether some operation calls a Python function."""
    return any("callback" in name for name in _names(ops))


def _names(ops: Iterable[Op]) -> Iterator[str]:
    for op in ops:
        if isinstance(op, Prim):
            yield op.name
            yield from _inner(op.eqn.params)
        elif isinstance(op, Switch):
            for region in op.regions:
                yield from _names(region.ops)


def _inner(params: dict[str, Any]) -> Iterator[str]:
    for jaxpr in jaxprs_in_params(params):
        for eqn in jaxpr.eqns:
            yield eqn.primitive.name
            yield from _inner(eqn.params)
