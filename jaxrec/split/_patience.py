"""Operations that must run for calls alone, and not before their branch is taken.

What only outer values go into could be computed once, before the recursion, and a wave computes
rows that are no call. That a loop has no end, and that Python is called, is seen even if nothing
reads the result; so is a recursion, which the rule of a derivative may start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jax.extend.core import jaxprs_in_params

from jaxrec.graph._ir import Op, Prim, Switch


def has_to_wait(ops: Iterable[Op]) -> bool:
    """Whether some operation may never end, or calls Python."""
    return _has_to_wait(_names(ops))


def jaxpr_has_to_wait(jaxpr: Any) -> bool:
    """The same of the equations of a jaxpr."""
    return _has_to_wait(_names_in([jaxpr]))


def _has_to_wait(names: Iterable[str]) -> bool:
    return any(
        name in ("while", "rec") or name.startswith("rec_") or "callback" in name for name in names
    )


def calls_host(ops: Iterable[Op]) -> bool:
    """Whether some operation calls a Python function."""
    return any("callback" in name for name in _names(ops))


def _names(ops: Iterable[Op]) -> Iterator[str]:
    for op in ops:
        if isinstance(op, Prim):
            yield op.name
            yield from inner_names(op)
        elif isinstance(op, Switch):
            for region in op.regions:
                yield from _names(region.ops)


def inner_names(op: Prim) -> Iterator[str]:
    """The names of the operations inside of one, such as those of a loop."""
    return _names_in(jaxprs_in_params(op.eqn.params))


def _names_in(jaxprs: Iterable[Any]) -> Iterator[str]:
    todo = list(jaxprs)
    while todo:
        for eqn in todo.pop().eqns:
            yield eqn.primitive.name
            todo.extend(jaxprs_in_params(eqn.params))
