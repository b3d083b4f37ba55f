"""Operations that must run for calls alone, and not before their branch is taken.

What only outer values go into could be computed once, before the recursion, and a wave computes
rows that are no call. That a loop has no end, and that Python is called, is seen even if nothing
reads the result; so is a recursion, which the rule of a derivative may start.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from jaxrec._jaxprs import equations
from jaxrec.graph._ir import Op, names_of


def has_to_wait(ops: Iterable[Op]) -> bool:
    """Whether some operation may never end, or calls Python."""
    return any(map(waits, _all_names(ops)))


def jaxpr_has_to_wait(jaxpr: Any) -> bool:
    """The same of the equations of a jaxpr."""
    return any(waits(eqn.primitive.name) for eqn in equations([jaxpr]))


def waits(name: str) -> bool:
    """Whether an operation of this name may never end, or calls Python."""
    return name in ("while", "rec") or name.startswith("rec_") or "callback" in name


def calls_host(ops: Iterable[Op]) -> bool:
    """Whether some operation calls a Python function."""
    return any("callback" in name for name in _all_names(ops))


def _all_names(ops: Iterable[Op]) -> Iterator[str]:
    return itertools.chain.from_iterable(map(names_of, ops))
