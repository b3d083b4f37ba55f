"""Moves what only branches read into them, where its derivative may be infinite.

Python computes a value where it is written, and a branch that is not taken contributes nothing to
its derivative. A cell that computes the value for all its calls has a cotangent of zero for it in
those that take another branch, and zero times an infinite derivative is NaN:

    t = jnp.sqrt(x)
    return jr.cond(x > 0, lambda: t + f(x - 1), lambda: 0.0)

So the square root becomes an operation of the branch that reads it, and runs for the calls that
take it. Where a predicate reads it too, or an integer that is made of it, it is computed twice:
through them flows no derivative.

Source: Knoop, Ruething & Steffen, "Partial dead code elimination" (PLDI 1994), for sinking an
operation towards its readers.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
from collections.abc import Iterator, Mapping

from jaxrec._types import has_derivative
from jaxrec.graph._flops import LOOPS
from jaxrec.graph._ir import (
    Atom,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    first_free_id,
    is_constant,
    names_of,
    reads,
    region_atoms,
)
from jaxrec.graph._renamed import renamed
from jaxrec.graph._resting import derived, passes_on
from jaxrec.graph._steep import is_steep
from jaxrec.graph._unread import without_unread
from jaxrec.graph._work import decides_work, is_long

_FEW = 1024
"""Elements up to which an operation that makes no loop may run twice in a call."""

_MOST_PLACES = 64
"""Branches into which an operation is copied at most."""


class Beside(enum.Enum):
    """How a value is read beside the operation that makes it."""

    DERIVED = enum.auto()
    SEEN = enum.auto()  # by what has no derivative


Place = tuple[Switch, int] | Beside
"""Where a value is read: in a branch of a choice, or not in any."""


def compute_where_read(graph: Graph) -> Graph:
    """The same graph, with operations moved into the branches that read their results."""
    ids = itertools.count(first_free_id(graph))
    bodies = [_moved(without_unread(f.body), ids) for f in graph.functions]
    pairs = zip(graph.functions, bodies, strict=True)
    functions = [dataclasses.replace(function, body=body) for function, body in pairs]
    return dataclasses.replace(graph, functions=tuple(functions))


def _moved(region: Region, ids: Iterator[int]) -> Region:
    """A region after the move, and those inside it."""
    places = _places(region)
    ops: list[Op] = []
    for op in region.ops:
        if isinstance(op, Switch):
            inner = [_with_moved(op, k, places, ids) for k in range(len(op.regions))]
            ops.append(dataclasses.replace(op, regions=tuple(inner)))
        elif op not in places or Beside.SEEN in places[op]:
            ops.append(op)
    return dataclasses.replace(region, ops=tuple(ops))


def _with_moved(
    switch: Switch, number: int, places: Mapping[Op, set[Place]], ids: Iterator[int]
) -> Region:
    """A branch with the operations that are moved into it, under names of its own."""
    mine = [op for op, where in places.items() if (switch, number) in where]
    region = switch.regions[number]
    names = {v: Value(next(ids), v.aval) for op in mine for v in op.outputs}
    return _moved(renamed(Region((*mine, *region.ops), region.results), names), ids)


def _places(region: Region) -> dict[Op, set[Place]]:
    """The operations to move, in order, each with the places that read what it makes."""
    readers: dict[Atom, set[Place]] = collections.defaultdict(set)
    for atom in region.results:
        readers[atom].add(Beside.DERIVED)
    steep, sure = _steep(region), derived(region, region.results)
    found: dict[Op, set[Place]] = {}
    for op in reversed(region.ops):
        where = set().union(*(readers[value] for value in op.outputs))
        if op in steep and sure.isdisjoint(op.outputs) and _may_move(op, where):
            found[op] = where
        elif not passes_on(op) or where == {Beside.SEEN}:
            where = {Beside.SEEN}
        else:
            where = {Beside.DERIVED}
        for atom in reads(op):
            readers[atom] |= where
        if isinstance(op, Switch):
            for k, inner in enumerate(op.regions):
                for atom in region_atoms(inner):
                    readers[atom].add((op, k))
    return dict(reversed(found.items()))


def _may_move(op: Op, where: set[Place]) -> bool:
    """Whether an operation may become one of each branch in which it is read."""
    choices = {place[0] for place in where if isinstance(place, tuple)}
    if not choices or Beside.DERIVED in where or len(where) > _MOST_PLACES:
        return False
    if is_long(op) and not all(map(decides_work, choices)):
        return False  # the scheduler would have to wait for their indices
    runs = len(choices) + (Beside.SEEN in where)
    return runs == 1 or not _is_heavy(op)


def _is_heavy(op: Op) -> bool:
    """Whether an operation takes so long that no call should run it twice."""
    elements = sum(atom.aval.size for atom in reads(op))
    return elements > _FEW or not LOOPS.isdisjoint(names_of(op))


def _steep(region: Region) -> set[Op]:
    """The operations whose derivative may be infinite, and those that follow from them."""
    found: set[Op] = set()
    made: set[Atom] = set()
    for op in region.ops:
        if not isinstance(op, Prim) or not _is_inexact(op):
            continue
        if is_steep(op) or not made.isdisjoint(op.inputs):
            made.update(op.outputs)
            if not is_constant(op):
                found.add(op)
    return found


def _is_inexact(op: Op) -> bool:
    return any(has_derivative(out.aval) for out in op.outputs)
