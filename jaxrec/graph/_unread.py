"""Leaves out operations whose results nobody reads and that show nothing."""

from __future__ import annotations

import dataclasses

from jaxrec.graph._ir import Op, Region, Switch, free_atoms, has_call, shows


def without_unread(region: Region) -> Region:
    """A region without them, and so the regions inside it; calls stay, since users count them."""
    read = set(region.results)
    ops: list[Op] = []
    for op in reversed(region.ops):
        if read.isdisjoint(op.outputs) and not (has_call(op) or shows(op)):
            continue
        if isinstance(op, Switch):
            inner = tuple(map(without_unread, op.regions))
            op = dataclasses.replace(op, regions=inner)
        read.update(free_atoms(op))
        ops.append(op)
    return dataclasses.replace(region, ops=tuple(reversed(ops)))
