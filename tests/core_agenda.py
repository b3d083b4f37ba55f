"""A slow, literal model of the agenda: which firings run as one wave, and in which order."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Protocol


class Node(Protocol):
    """What the agenda needs to know of a firing."""

    cell: int


@functools.cache
def cover(n: int, widths: tuple[int, ...], costs: tuple[float, ...]) -> tuple[int, ...]:
    """The widths' numbers of the best cover of n, widest first, by trying every one."""
    if n <= 0:
        return ()
    options = []
    for i in range(len(widths)):
        waves = tuple(sorted((i, *cover(n - widths[i], widths, costs)), reverse=True))
        options.append((sum(costs[w] for w in waves), len(waves), [-w for w in waves], waves))
    return min(options)[-1]


def ranks(producers: Sequence[Sequence[int]]) -> list[int]:
    """The longest chain of firings that waits for each one; producers come before consumers."""
    # Firings are not in an order of execution, so repeat until nothing changes.
    out = [0] * len(producers)
    changed = True
    while changed:
        changed = False
        for i, sources in enumerate(producers):
            for source in sources:
                if out[source] < out[i] + 1:
                    out[source] = out[i] + 1
                    changed = True
    return out


def best_width(
    rank: Sequence[int],
    producers: Sequence[Sequence[int]],
    widths: Sequence[int],
    costs: Sequence[float],
) -> int:
    """The width that makes the firings that wait for others cheapest, by a lower bound on waves."""
    waiting = [r for r, sources in zip(rank, producers, strict=True) if sources]

    def cost(w: int) -> float:
        tails = [(sum(r >= low for r in waiting), low) for low in set(waiting)]
        return costs[w] * max((math.ceil(n / widths[w]) + low for n, low in tails), default=0)

    return widths[min(range(len(widths)), key=cost)]


def agenda(
    firings: Sequence[Node],
    producers: Sequence[Sequence[int]],
    widths: tuple[int, ...],
    costs: tuple[float, ...],
) -> Iterator[tuple[int, list[int]]]:
    """Yields (width's number, firings) of every wave, in order."""
    rank = ranks(producers)
    limit = best_width(rank, producers, widths, costs)
    unfired = set(range(len(firings)))
    while unfired:
        ready: dict[int, list[int]] = {}
        for i in sorted(unfired, key=lambda i: (-rank[i], i)):
            if not unfired.intersection(producers[i]):
                ready.setdefault(firings[i].cell, []).append(i)
        complete = [c for c in ready if len(ready[c]) == sum(firings[i].cell == c for i in unfired)]
        cell = min(complete, default=min(ready, key=lambda c: (-rank[ready[c][0]], c)))
        fired = ready[cell] if complete else ready[cell][:limit]
        unfired.difference_update(fired)
        for width in cover(len(fired), widths, costs):
            yield width, fired[: widths[width]]
            fired = fired[widths[width] :]
