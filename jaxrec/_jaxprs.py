"""The equations of jaxprs, those of the jaxprs inside of them included."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from jax.extend.core import JaxprEqn, jaxprs_in_params

MOVES = frozenset({"reshape", "squeeze", "broadcast_in_dim", "transpose", "rev"})
MOVES |= {"slice", "concatenate", "copy"}
"""Operations that compute nothing: each element of the result is one that they are given."""


def equations(jaxprs: Iterable[Any]) -> Iterator[JaxprEqn]:
    """Every equation of some jaxprs, each before those inside of it."""
    for jaxpr in jaxprs:
        for eqn in jaxpr.eqns:
            yield from within(eqn)


def within(eqn: JaxprEqn) -> Iterator[JaxprEqn]:
    """An equation and those inside of it."""
    yield eqn
    yield from equations(jaxprs_in_params(eqn.params))
