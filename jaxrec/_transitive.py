"""What some things lead to, however many steps away."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def transitive(
    start: Iterable[Any],
    step: Callable[[Any], Iterable[Any]],
    among: Callable[[Any], bool] = lambda _: True,
) -> set[Any]:
    """Some things, what these lead to, and so on.

    Args:
        start: the first of them.
        step: what one leads to.
        among: whether one is looked at; others are left out.
    """
    found, todo = set[Any](), list(start)
    while todo:
        thing = todo.pop()
        if thing not in found and among(thing):
            found.add(thing)
            todo += step(thing)
    return found
