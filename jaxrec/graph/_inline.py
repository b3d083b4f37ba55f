"""Puts what a function computes where its derivative rule keeps JAX from looking inside.

Derivatives are taken of the graph with its rules, so what is made here is run and never
differentiated.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax

from jaxrec import _compat
from jaxrec._order import apply_equation, has_rule
from jaxrec.graph._build import region_of
from jaxrec.graph._ir import Atom, Graph, Op, Prim, Region, Switch, Value, walk
from jaxrec.graph._moving import places_moved
from jaxrec.graph._renamed import known, renamed


def is_opaque(op: Prim) -> bool:
    """Whether an operation is, or contains, a function that has a rule or is checkpointed."""
    return has_rule(op.eqn) or _compat.called(op.eqn) is not None


def without_rules(
    graph: Graph, taken: Sequence[Collection[Value]], kept: Collection[Value]
) -> Graph:
    """The same graph with operations in place of the functions that have a derivative rule.

    Args:
        graph: the graph.
        taken: for each derivative taken of its results what rests, see `Program.taken`.
        kept: values that are left to the operations that make them.
    """
    found: dict[Op, Region] = {}
    for function in graph.functions:
        opaque = (op for op in walk(function.body) if isinstance(op, Prim) and is_opaque(op))
        regions = ((op, _region(op, taken[function.order :], kept)) for op in opaque)
        found.update((op, region) for op, region in regions if region is not None)
    if not found:
        return graph
    functions = [dataclasses.replace(f, body=_inlined(f.body, found)) for f in graph.functions]
    return dataclasses.replace(graph, functions=tuple(functions))


def _region(op: Prim, taken: Sequence[Collection[Value]], kept: Collection[Value]) -> Region | None:
    """What an operation computes; None where it stays."""
    if all(value in kept for value in op.outputs):
        return None

    def run(*operands: Any) -> list[Any]:
        return apply_equation(op.eqn, operands, places_moved(op, taken))

    with _compat.without_mesh():
        closed = jax.make_jaxpr(run)(*(atom.aval for atom in op.inputs))
    return region_of(_compat.without_dead(closed), op.inputs, plain=True)


def _inlined(region: Region, found: Mapping[Op, Region]) -> Region:
    """A region in which other operations stand for some."""
    names: dict[Value, Atom] = {}
    spliced = _spliced(region, found, names)
    return renamed(spliced, names)


def _spliced(region: Region, found: Mapping[Op, Region], names: dict[Value, Atom]) -> Region:
    """The same before names are changed; `names`: what results of the operations are now."""
    ops: list[Op] = []
    for op in region.ops:
        if op in found:
            ops += found[op].ops
            names.update(zip(op.outputs, known(found[op].results, names), strict=True))
        elif isinstance(op, Switch):
            regions = tuple(_spliced(inner, found, names) for inner in op.regions)
            ops.append(dataclasses.replace(op, regions=regions))
        else:
            ops.append(op)
    return Region(tuple(ops), region.results)
