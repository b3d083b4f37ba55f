"""Moves what only branches read into them, where its derivative may be infinite.

Python computes a value where it is written, and a branch that is not taken contributes nothing to
its derivative. A cell that computes the value for all its calls has a cotangent of zero for it in
those that take another branch, and zero times an infinite derivative is NaN:

    t = jnp.sqrt(x)
    return jr.cond(x > 0, lambda: t + f(x - 1), lambda: 0.0)

So the square root becomes an operation of the branch that reads it, and runs for the calls that
take it.

Source: Knoop, Ruething & Steffen, "Partial dead code elimination" (PLDI 1994), for sinking an
operation towards its readers.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence

import jax.numpy as jnp

from jaxrec.graph._ir import (
    Atom,
    Const,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    names_of,
    reads,
    region_atoms,
    walk,
)

_STEEP = {"acos", "acosh", "asin", "atan2", "atanh", "cbrt", "div", "erf_inv", "igamma", "lgamma"}
_STEEP |= {"digamma", "log", "log1p", "polygamma", "pow", "rem", "rsqrt", "sqrt", "tan", "zeta"}
_STEEP |= {"cholesky", "eig", "eigh", "householder_product", "lu", "qr", "svd", "triangular_solve"}
"""Operations with an infinite derivative, or none, at some finite operand."""

_LOOPS = {"scan", "while"}

_FEW = 1024
"""Elements up to which an operation that makes no loop may stand in several branches."""

Place = tuple[Switch, int] | None
"""Where a value is read: in a branch of a choice, or beside the operation that makes it."""


def compute_where_read(graph: Graph) -> Graph:
    """The same graph, with operations moved into the branches that read their results."""
    ids = itertools.count(1 + max((v.id for v in _values(graph)), default=0))
    functions = [dataclasses.replace(f, body=_moved(f.body, ids)) for f in graph.functions]
    return dataclasses.replace(graph, functions=tuple(functions))


def _values(graph: Graph) -> Iterator[Value]:
    yield from graph.captured
    for function in graph.functions:
        yield from function.params
        for op in walk(function.body):
            yield from op.outputs


def _moved(region: Region, ids: Iterator[int]) -> Region:
    """A region after the move, and those inside it."""
    places = _places(region)
    ops: list[Op] = []
    for op in region.ops:
        if isinstance(op, Switch):
            inner = [_with_moved(op, k, places, ids) for k in range(len(op.regions))]
            ops.append(dataclasses.replace(op, regions=tuple(inner)))
        elif op not in places:
            ops.append(op)
    return dataclasses.replace(region, ops=tuple(ops))


def _with_moved(
    switch: Switch, number: int, places: Mapping[Op, set[Place]], ids: Iterator[int]
) -> Region:
    """A branch with the operations that are moved into it, under names of its own."""
    mine = [op for op, where in places.items() if (switch, number) in where]
    region = switch.regions[number]
    names = {v: Value(next(ids), v.aval) for op in mine for v in op.outputs}
    return _moved(_renamed(Region((*mine, *region.ops), region.results), names), ids)


def _places(region: Region) -> dict[Op, set[Place]]:
    """The operations to move, in order, each with the branches that read what it makes."""
    readers: dict[Atom, set[Place]] = collections.defaultdict(set)
    for atom in region.results:
        readers[atom].add(None)
    steep = _steep(region)
    found: dict[Op, set[Place]] = {}
    for op in reversed(region.ops):
        where = set().union(*(readers[value] for value in op.outputs))
        if _is_unread(op, where) or (op in steep and _is_for_branches(op, where)):
            found[op] = where
        else:
            where = {None}
        for atom in reads(op):
            readers[atom] |= where
        if isinstance(op, Switch):
            for k, inner in enumerate(op.regions):
                for atom in region_atoms(inner):
                    readers[atom].add((op, k))
    return dict(reversed(found.items()))


def _is_unread(op: Op, where: set[Place]) -> bool:
    """Whether an operation is for nothing: it has no branch to go to."""
    return isinstance(op, Prim) and not where


def _is_for_branches(op: Op, where: set[Place]) -> bool:
    """Whether some calls may do without an operation that is read in these places."""
    if None in where:
        return False
    if len(where) > 1 and _is_heavy(op):
        return False
    taken = collections.Counter(place[0] for place in where if place)
    return all(len(switch.regions) > count for switch, count in taken.items())


def _is_heavy(op: Op) -> bool:
    """Whether an operation takes so long that no call should run it twice."""
    elements = sum(atom.aval.size for atom in reads(op))
    return elements > _FEW or not _LOOPS.isdisjoint(names_of(op))


def _steep(region: Region) -> set[Op]:
    """The operations whose derivative may be infinite, and those that follow from them."""
    found: set[Op] = set()
    made: set[Atom] = set()
    for op in region.ops:
        if not isinstance(op, Prim) or not _has_derivative(op):
            continue
        if _is_steep(op) or not made.isdisjoint(op.inputs):
            found.add(op)
            made.update(op.outputs)
    return found


def _has_derivative(op: Prim) -> bool:
    return any(jnp.issubdtype(value.aval.dtype, jnp.inexact) for value in op.outputs)


def _is_steep(op: Prim) -> bool:
    if op.name in ("div", "rem") and isinstance(op.inputs[1], Const):
        return False
    if op.name == "integer_pow":
        return op.eqn.params["y"] < 0
    return not _STEEP.isdisjoint(names_of(op))


def _renamed(region: Region, names: Mapping[Value, Value]) -> Region:
    """A region in which some values have other names."""
    if not names:
        return region

    def known(atoms: Sequence[Atom]) -> tuple[Atom, ...]:
        return tuple(names.get(a, a) if isinstance(a, Value) else a for a in atoms)

    def outputs(op: Op) -> tuple[Value, ...]:
        return tuple(names.get(value, value) for value in op.outputs)

    def renamed(op: Op) -> Op:
        if isinstance(op, Switch):
            inner = tuple(_renamed(r, names) for r in op.regions)
            return Switch(known([op.index])[0], inner, outputs(op))
        return dataclasses.replace(op, inputs=known(op.inputs), outputs=outputs(op))

    return Region(tuple(map(renamed, region.ops)), known(region.results))
