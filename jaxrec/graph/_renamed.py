"""Puts other values in the place of some that a region reads or makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from jaxrec.graph._ir import Atom, Op, Region, Switch, Value

Names = Mapping[Value, Atom]
"""Values, and what stands for each; what stands for one that is made is a value."""


def renamed(region: Region, names: Names) -> Region:
    """A region with other values in the place of some."""
    if not names:
        return region
    ops = tuple(_renamed(op, names) for op in region.ops)
    return Region(ops, known(region.results, names))


def known(atoms: Iterable[Atom], names: Names) -> tuple[Atom, ...]:
    """What stands for values and constants."""
    return tuple(names.get(a, a) if isinstance(a, Value) else a for a in atoms)


def _renamed(op: Op, names: Names) -> Op:
    outputs = _made(op.outputs, names)
    if isinstance(op, Switch):
        inner = tuple(renamed(region, names) for region in op.regions)
        return Switch(known([op.index], names)[0], inner, outputs)
    return dataclasses.replace(op, inputs=known(op.inputs, names), outputs=outputs)


def _made(values: Sequence[Value], names: Names) -> tuple[Value, ...]:
    found = known(values, names)
    assert all(isinstance(value, Value) for value in found)
    return found  # type: ignore[return-value]
