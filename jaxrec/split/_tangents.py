"""Which values of a derivative are tangents, that is follow from a tangent that it is given.

A tangent of zero stays zero whatever it is multiplied by (`_native_ops.py`). Reverse mode never
visits what a choice has left out or what does not depend on its argument; forward mode passes there
with a tangent of zero, which an infinite derivative must not make NaN of.
"""

from __future__ import annotations

from collections.abc import Iterable

from jaxrec.graph._ir import Atom, Graph, Op, Prim, Region, Switch, Value
from jaxrec.split._native_loops import Loop, Loops


def find_tangents(graph: Graph, loops: Loops, given: Iterable[Value]) -> frozenset[Atom]:
    """The tangents of a graph.

    Args:
        graph: the graph.
        loops: its loops.
        given: the tangents among parameters, results of calls and results of choices.
    """
    found: set[Atom] = set(given)
    if found:
        for function in graph.functions:
            _mark(function.body, loops, found)
    return frozenset(found)


def _mark(region: Region, loops: Loops, found: set[Atom]) -> None:
    for op in region.ops:
        if isinstance(op, Switch):
            for inner in op.regions:
                _mark(inner, loops, found)
            found.update(v for v in op.outputs if not found.isdisjoint(op.sources(v)[1:]))
        elif isinstance(op, Prim):
            loop = loops.of(op)
            if loop is not None:
                _mark_loop(op, loop, loops, found)
            elif not found.isdisjoint(op.inputs):
                found.update(op.outputs)


def _mark_loop(op: Op, loop: Loop, loops: Loops, found: set[Atom]) -> None:
    """What a loop carries: a fixpoint over its turns."""
    sources, before = loop.inits, -1
    while len(found) != before:
        before = len(found)
        found.update(v for v, atom in zip(loop.carried, sources, strict=True) if atom in found)
        _mark(loop.cond, loops, found)
        _mark(loop.body, loops, found)
        sources = loop.body.results
    last = loop.carried[len(loop.carried) - len(op.outputs) :]
    found.update(v for v, own in zip(op.outputs, last, strict=True) if own in found)
