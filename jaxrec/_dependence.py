"""What of a jaxpr depends on some of its arguments, by way of loops and branches too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jaxrec import _compat


class Inside(NamedTuple):
    """What a loop or a choice computes.

    Attributes:
        name: the parameter of the equation that holds it.
        jaxprs: the body, or the branches.
        given: for each of their arguments whether it depends, in some turn of a loop.
    """

    name: str
    jaxprs: tuple[ClosedJaxpr, ...]
    given: list[bool]


class Dependence:
    """Finds that; what it has found of a jaxpr it does not look for again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Jaxpr, tuple[bool, ...]], list[bool]] = {}

    def results(self, closed: ClosedJaxpr, given: Sequence[bool]) -> list[bool]:
        """For each result, whether it depends on one of the arguments that are given."""
        key = (closed.jaxpr, tuple(given))
        if key not in self._known:
            self._known[key] = self._find(closed, given)
        return self._known[key]

    def _find(self, closed: ClosedJaxpr, given: Sequence[bool]) -> list[bool]:
        found = {v for v, holds in zip(closed.jaxpr.invars, given, strict=True) if holds}

        def holds(atoms: Sequence[Any]) -> list[bool]:
            return [not _compat.is_literal(a) and a in found for a in atoms]

        for eqn in closed.jaxpr.eqns:
            outs = self.of(eqn, holds(eqn.invars))
            found.update(v for v, reached in zip(eqn.outvars, outs, strict=True) if reached)
        return holds(closed.jaxpr.outvars)

    def of(self, eqn: JaxprEqn, given: Sequence[bool]) -> list[bool]:
        """The same of the results of an equation, by its operands."""
        if not any(given):
            return [False] * len(eqn.outvars)
        called = _compat.called(eqn)
        if called is not None:
            return self.results(called, given)
        inside = self.inside(eqn, given)
        if inside is None or self._decides(eqn, given, inside):
            return [True] * len(eqn.outvars)
        made = [self.results(jaxpr, inside.given) for jaxpr in inside.jaxprs]
        return list(map(any, zip(*made, strict=True)))

    def inside(self, eqn: JaxprEqn, given: Sequence[bool]) -> Inside | None:
        """What a loop or a choice computes; None of other equations."""
        params = eqn.params
        match eqn.primitive.name:
            case "scan":
                body, (first, count) = params["jaxpr"], _compat.scan_counts(eqn)
                return Inside("jaxpr", (body,), self._of_turns(body, given, first, count))
            case "while":
                body, first = params["body_jaxpr"], params["body_nconsts"]
                own = given[params["cond_nconsts"] :]
                own = self._of_turns(body, own, first, len(own) - first)
                return Inside("body_jaxpr", (body,), own)
            case "cond":
                return Inside("branches", tuple(params["branches"]), list(given[1:]))
            case _:
                return None

    def _of_turns(
        self, body: ClosedJaxpr, given: Sequence[bool], first: int, count: int
    ) -> list[bool]:
        """Which arguments of a loop's body depend in some turn; `count` of them go around."""
        found, last = list(given), first + count
        while True:
            made = self.results(body, found)[:count]
            around = [a or b for a, b in zip(found[first:last], made, strict=True)]
            if around == found[first:last]:
                return found
            found[first:last] = around

    def _decides(self, eqn: JaxprEqn, given: Sequence[bool], inside: Inside) -> bool:
        """Whether what is given decides which branch is taken, or how often a loop turns."""
        if eqn.primitive.name == "cond":
            return given[0]
        if eqn.primitive.name != "while":
            return False
        first, around = eqn.params["cond_nconsts"], inside.given[eqn.params["body_nconsts"] :]
        return any(self.results(eqn.params["cond_jaxpr"], [*given[:first], *around]))
