"""What code names: variables, attributes, and attributes of variables."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterator
from types import CodeType

_BODIES = 1000
"""Bodies of which it is kept what they name."""

_VARIABLE = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"))
_ATTRIBUTE = frozenset(("LOAD_ATTR", "LOAD_METHOD"))


def codes(code: CodeType) -> Iterator[CodeType]:
    """Some code and that of the functions that it makes."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


@functools.lru_cache(maxsize=_BODIES)
def names(code: CodeType) -> frozenset[str]:
    """Names of global variables and of attributes."""
    return frozenset(name for inner in codes(code) for name in inner.co_names)


@functools.lru_cache(maxsize=_BODIES)
def global_names(code: CodeType) -> frozenset[str]:
    """Names of global variables."""
    steps = (step for inner in codes(code) for step in dis.get_instructions(inner))
    return frozenset(x.argval for x in steps if x.opname in ("LOAD_GLOBAL", "LOAD_NAME"))


@functools.lru_cache(maxsize=_BODIES)
def chains(code: CodeType) -> frozenset[tuple[str, ...]]:
    """Attributes of variables: `("m", "sub", "act")` where the code says `m.sub.act`."""
    found = set[tuple[str, ...]]()
    for inner in codes(code):
        chain: tuple[str, ...] = ()
        for step in dis.get_instructions(inner):
            if step.opname in _ATTRIBUTE and chain:
                chain = (*chain, step.argval)
                found.add(chain)
            elif step.opname != "EXTENDED_ARG":  # a part of the next, in code of many names
                chain = (step.argval,) if step.opname in _VARIABLE else ()
    return frozenset(found)
