"""What is known of a `scan` before it becomes recursion: its parts, and what its carry is for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec.trace._call import MAX_UNROLLED, makes_calls, rec_call_p
from jaxrec.trace._scope import packed_shape

_LEAF_EQUATIONS = 48


@dataclasses.dataclass(frozen=True, eq=False)
class Scan:
    """A `scan` equation.

    Attributes:
        body: what an iteration runs: from constants, carry and elements to carry and yields.
        length: the number of iterations.
        reverse: whether the last elements come first.
        fixed: how many values all iterations read.
        carried: how many values an iteration hands to the next.
        out: the types of the results.
    """

    body: ClosedJaxpr
    length: int
    reverse: bool
    fixed: int
    carried: int
    out: list[Any]

    @property
    def read(self) -> int:
        """How many arrays of elements there are."""
        return len(self.body.in_avals) - self.fixed - self.carried

    def parts(self, values: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
        """Of the operands: what all iterations read, the carry, and the arrays of elements."""
        values, carry = list(values), self.fixed + self.carried
        return values[: self.fixed], values[self.fixed : carry], values[carry:]

    def place(self, iteration: Any) -> Any:
        """Where the elements of an iteration are in the arrays."""
        return self.length - 1 - iteration if self.reverse else iteration

    @property
    def carry_out(self) -> list[Any]:
        """The variables of the carry after an iteration."""
        return list(self.body.jaxpr.outvars[: self.carried])

    @property
    def carry_in(self) -> list[Any]:
        """The variables of the carry before an iteration."""
        return list(self.body.jaxpr.invars[self.fixed :][: self.carried])


def may_carry_control(scan: Scan) -> bool:
    """Whether calls may be chosen by something in the carry, other than by a counter."""
    computed, counted = _computed(scan), counters(scan)
    return any(
        k not in computed and k not in counted and (not v.aval.shape or packed_shape(v.aval))
        for k, v in enumerate(scan.carry_in)
    )


def _computed(scan: Scan) -> set[int]:
    """Positions in the carry of what depends on the result of a call."""
    computed: set[int] = set()
    while True:
        tainted = {scan.carry_in[k] for k in computed}
        for eqn in scan.body.eqns:
            if makes_calls(eqn) or tainted.intersection(_variables(eqn.invars)):
                tainted.update(eqn.outvars)
        after = {k for k, v in enumerate(scan.carry_out) if v in _variables([v]) and v in tainted}
        if after <= computed:
            return computed
        computed |= after


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if not _compat.is_literal(atom)]


def counters(scan: Scan) -> dict[int, int]:
    """Positions in the carry of integers that grow by a constant, with that constant."""
    made = {v: eqn for eqn in scan.body.eqns for v in eqn.outvars}
    found: dict[int, int] = {}
    for k, (before, after) in enumerate(zip(scan.carry_in, scan.carry_out, strict=True)):
        eqn = None if _compat.is_literal(after) else made.get(after)
        if eqn is None or eqn.primitive.name != "add" or after.aval.shape:
            continue
        steps = [a.val for a in eqn.invars if _compat.is_literal(a)]
        if (
            len(steps) == 1
            and before in eqn.invars
            and jnp.issubdtype(after.aval.dtype, jnp.integer)
        ):
            found[k] = int(steps[0])
    return found


def leaf_size(body: ClosedJaxpr) -> int:
    """How many iterations one frame runs: few if an iteration is long, to keep programs small."""
    return max(1, min(MAX_UNROLLED, _LEAF_EQUATIONS // max(1, _size(body))))


def _size(body: ClosedJaxpr) -> int:
    return sum(_equation_size(eqn) for eqn in body.eqns)


def _equation_size(eqn: JaxprEqn) -> int:
    if eqn.primitive is rec_call_p:
        return 1
    inner = _compat.inlined(eqn)
    if inner is not None:
        return _size(inner)
    branches = eqn.params.get("branches", ())
    return 1 + sum(_equation_size(e) for branch in branches for e in branch.eqns)
