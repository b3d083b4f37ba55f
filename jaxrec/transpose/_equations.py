"""The equations of a backward pass: what depends on what, and what is run again, not stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import JaxprEqn, Var

from jaxrec._jaxprs import MOVES

_STRUCTURAL = MOVES | {"split", "convert_element_type"}


def row_axis(narrow: Any, wide: Any) -> int | None:
    """The axis that grows with the number of rows."""
    axes = [k for k, (a, b) in enumerate(zip(narrow.shape, wide.shape, strict=True)) if a != b]
    return axes[0] if axes else None


def row_axes(narrow: Sequence[JaxprEqn], wide: Sequence[JaxprEqn]) -> dict[Any, int | None]:
    """The row axis of every result of the equations."""
    return {
        v: row_axis(v.aval, w.aval)
        for a, b in zip(narrow, wide, strict=True)
        for v, w in zip(a.outvars, b.outvars, strict=True)
    }


def needed(
    eqns: Sequence[JaxprEqn], outs: Sequence[Any], stop: set[int] | None = None
) -> list[JaxprEqn]:
    """The equations that `outs` depend on, not looking behind the equations in `stop`."""
    wanted = {v for v in outs if isinstance(v, Var)}
    kept = []
    for eqn in reversed(eqns):
        if wanted.intersection(eqn.outvars):
            kept.append(eqn)
            if stop is None or id(eqn) not in stop:
                wanted.update(a for a in eqn.invars if isinstance(a, Var))
    return kept[::-1]


def repeatable(eqns: Sequence[JaxprEqn], fixed: set[Any], leaves: set[Any]) -> set[int]:
    """Equations that `after` runs again instead of reading their results from a cut tape.

    Those that depend on no row, and those that only rearrange what the forward pass has left.
    """
    still, moved, found = set(fixed), set(leaves), set()
    for eqn in eqns:
        operands = [a for a in eqn.invars if isinstance(a, Var)]
        if all(a in still for a in operands):
            still.update(eqn.outvars)
            found.add(id(eqn))
        if eqn.primitive.name in _STRUCTURAL and all(a in moved or a in still for a in operands):
            moved.update(eqn.outvars)
            found.add(id(eqn))
    return found


def enlarging(
    made: Sequence[Var],
    makers: dict[Any, JaxprEqn],
    axes: dict[Any, int | None],
    cotangents: set[Any],
) -> set[int]:
    """Equations that make a row out of much smaller ones, such as outer products.

    To store the small ones and repeat the equations takes less time than to store the result.

    Args:
        made: what would be stored.
        makers: the equation that makes a value, for all but what is at hand anyway.
        axes: the row axis of each value.
        cotangents: what is not to be read again.
    """
    for var in made:
        found, ends, todo = set[int](), set[Any](), [var]
        while todo:
            part = todo.pop()
            eqn = makers.get(part)
            if eqn is not None and 2 * _size(part) > _size(var) and _multiplies(eqn):
                found.add(id(eqn))
                todo += [a for a in eqn.invars if isinstance(a, Var)]
            else:
                ends.add(part)
        stored = [v for v in ends if v in makers]
        small = 2 * sum(map(_size, stored)) <= _size(var)
        if found and small and not ends & cotangents and all(axes[v] is not None for v in stored):
            return found
    return set()


def _size(var: Any) -> int:
    return var.aval.size


def _multiplies(eqn: JaxprEqn) -> bool:
    """Whether an equation only moves elements, or multiplies each with each without a sum."""
    if eqn.primitive.name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return not contracted
    return eqn.primitive.name == "mul" or eqn.primitive.name in _STRUCTURAL


def reachable(eqns: Sequence[JaxprEqn], start: set[Any]) -> set[Any]:
    found = set(start)
    for eqn in eqns:
        if any(a in found for a in eqn.invars if isinstance(a, Var)):
            found.update(eqn.outvars)
    return found
