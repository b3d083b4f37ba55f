"""Operations that must not run before it is known that their branch is taken.

What only outer values go into could be computed once, before the recursion. That a loop has no end,
and that Python is called, is seen even if nothing reads the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
            yield from inner_names(op)
        elif isinstance(op, Switch):
            for region in op.regions:
                yield from _names(region.ops)


def inner_names(op: Prim) -> Iterator[str]:
    """The names of the operations inside of one, such as those of a loop."""
    todo = list(jaxprs_in_params(op.eqn.params))
    while todo:
        for eqn in todo.pop().eqns:
            yield eqn.primitive.name
            todo.extend(jaxprs_in_params(eqn.params))
