"""Leaves out operations whose results nobody reads."""

from __future__ import annotations

import dataclasses

from jaxrec.graph._ir import Op, Region, Switch, free_atoms, has_call


def without_unread(region: Region) -> Region:
    """A region without them, and so the regions inside it; calls stay, since users count them."""
    read = set(region.results)
    ops: list[Op] = []
    for op in reversed(region.ops):
        if not has_call(op) and read.isdisjoint(op.outputs):
            continue
        if isinstance(op, Switch):
            inner = tuple(map(without_unread, op.regions))
            op = dataclasses.replace(op, regions=inner)
        read.update(free_atoms(op))
        ops.append(op)
    return dataclasses.replace(region, ops=tuple(reversed(ops)))
