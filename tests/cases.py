"""Which cases of a large cross product always run, which are slow, and which are exhaustive."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

EXECUTORS = ("graph", "host", "reference")


def spread(
    cases: Iterable[tuple[str, ...]], fast: int = 0, slow: int = 1, of: int = 83
) -> list[Any]:
    """Divides a cross product: of so many cases `fast` always run, `slow` are slow, the rest are
    exhaustive.

    A prime has no factor in common with the numbers of modes and executors, so every mode meets
    many programs on every executor.
    """
    rest = of - fast - slow
    marks = [()] * fast + [pytest.mark.slow] * slow + [pytest.mark.exhaustive] * rest
    return [_case(case, marks[k % of]) for k, case in enumerate(cases)]


def picked(
    cases: Iterable[tuple[Any, ...]],
    fast: Collection[tuple[Any, ...]],
    slow: Collection[tuple[Any, ...]] = (),
) -> list[Any]:
    """Some cases of a cross product always run, some are slow, the rest are exhaustive."""

    def marks(case: tuple[Any, ...]) -> Any:
        return () if case in fast else pytest.mark.slow if case in slow else pytest.mark.exhaustive

    return [_case(case, marks(case)) for case in cases]


def in_turn(
    programs: Iterable[Any], executors: tuple[str, ...] = EXECUTORS, first: int = 0
) -> list[Any]:
    """Every program on one of the executors, in turn; on the others it is exhaustive."""
    return [
        _case((program, executor), () if (k - j) % len(executors) == 0 else pytest.mark.exhaustive)
        for k, program in enumerate(programs, first)
        for j, executor in enumerate(executors)
    ]


def _case(case: tuple[Any, ...], marks: Any) -> Any:
    names = [str(getattr(x, "__name__", x)) for x in case]
    return pytest.param(*case, id="-".join(names), marks=marks)
