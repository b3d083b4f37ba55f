"""Where derivatives flow in some calls and not in others.

Python derives what flows. Cells derive for all their calls, with zeros for those where nothing
does, so they have to know where that may be: see `jaxrec/_zeros.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from jaxrec._types import has_derivative
from jaxrec.graph._ir import (
    Atom,
    Call,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    is_constant,
    reads,
    walk,
)

Sources = Callable[[Op, set[Atom]], Iterable[Atom]]
"""The operands of an operation or a call that derivatives of some results flow to."""


class Asked(NamedTuple):
    """Which results of the entry function have a derivative.

    Attributes:
        of_roots: of the calls from outside.
        of_calls: of every call, where all are reported.
    """

    of_roots: frozenset[int]
    of_calls: frozenset[int] = frozenset()


def partly_derived(graph: Graph, asked: Asked) -> set[Atom]:
    """What derivatives flow to in some calls, and not surely in all.

    In a branch those are calls that take it.

    Args:
        graph: the graph.
        asked: of what derivatives are taken.
    """
    bodies = [function.body for function in graph.functions]
    some = (derived(body, body.results, of_branches=set.union) for body in bodies)
    return set[Atom]().union(*some) - _surely_derived(graph, asked)


def _surely_derived(graph: Graph, asked: Asked) -> set[Atom]:
    """What derivatives flow to in each call, whichever branches it takes.

    A greatest fixpoint: what the calls inside a call take is supposed to be derived, and so is what
    they give, until it turns out that it is not.
    """
    supposed: set[Atom] = {param for function in graph.functions for param in function.params}
    supposed.update(value for call in graph.calls for value in call.outputs)

    def sources(op: Op, found: set[Atom]) -> Iterable[Atom]:
        if isinstance(op, Call):
            return (atom for param, atom in graph.arguments(op) if param in supposed)
        assert isinstance(op, Prim)
        return (op.inputs[k] for k, j in op.flow if op.outputs[j] in found)

    while True:
        sure = set[Atom]()
        for k, function in enumerate(graph.functions):
            results = _given_on(graph, k, supposed, asked)
            sure |= derived(function.body, results, sources)
        if supposed <= sure:
            return sure
        supposed &= sure


def _given_on(graph: Graph, k: int, derived: set[Atom], asked: Asked) -> list[Atom]:
    """The results of a function whose derivative each of its calls has."""
    results = graph.functions[k].body.results
    given = set(range(len(results))) if k else set(asked.of_roots)
    for call in graph.calls:
        if call.callee == k:
            given = {j for j in given if call.outputs[j] in derived}
    return [results[j] for j in (given if k else given | asked.of_calls)]


def passes_on(op: Op) -> bool:
    """Whether derivatives may flow through an operation itself, as they do not through an index."""
    if isinstance(op, Switch) or is_constant(op):
        return False
    return any(has_derivative(out.aval) for out in op.outputs)


def _all_operands(op: Op, found: set[Atom]) -> Iterable[Atom]:
    """Those that it may flow to, without a look at what the operation is."""
    del found
    return reads(op) if passes_on(op) else ()


def derived(
    region: Region,
    results: Iterable[Atom],
    sources: Sources = _all_operands,
    of_branches: Callable[..., set[Atom]] = set.intersection,
) -> set[Atom]:
    """What derivatives of some results flow to, whichever branches are taken.

    Args:
        region: the region; of the values that its branches make, what the derivative of a call that
            takes the branch flows to.
        results: the results.
        sources: the operands that it flows to.
        of_branches: what is said of all branches from what is of each.
    """
    found = set(results)
    for op in reversed(region.ops):
        if found.isdisjoint(op.outputs):
            continue
        if not isinstance(op, Switch):
            found.update(sources(op, found))
            continue
        asked = [value in found for value in op.outputs]
        inner = [
            derived(r, itertools.compress(r.results, asked), sources, of_branches)
            for r in op.regions
        ]
        found |= of_branches(*inner)
        for branch, own in zip(op.regions, inner, strict=True):
            found.update(v for made in walk(branch) for v in made.outputs if v in own)
    return found


def surely_moving(graph: Graph, given: Collection[Value], moving: set[Atom]) -> set[Atom]:
    """What moves in each call.

    Args:
        graph: the graph.
        given: the values that a derivative is taken by.
        moving: what moves in some calls.
    """
    sure = moving.difference({*graph.entry.params, *graph.captured}.difference(given))
    while resting := sure.intersection(_resting(graph, sure)):
        sure -= resting
    return sure


def _resting(graph: Graph, moving: set[Atom]) -> Iterator[Value]:
    """Values that rest in some call if others do than those that move."""
    for param, atoms in graph.passed.items():
        if not moving.issuperset(atoms):
            yield param
    for op in graph.ops:
        if isinstance(op, Switch):
            yield from (v for v in op.outputs if not moving.issuperset(op.sources(v)[1:]))
        elif isinstance(op, Call):
            results = graph.functions[op.callee].body.results
            pairs = zip(op.outputs, results, strict=True)
            yield from (v for v, atom in pairs if atom not in moving)
        else:
            moves = {j for k, j in op.flow if op.inputs[k] in moving}
            yield from (v for j, v in enumerate(op.outputs) if j not in moves)
