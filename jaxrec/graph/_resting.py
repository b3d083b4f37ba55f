"""Where derivatives flow in some calls and not in others.

Python derives what flows. Cells derive for all their calls, with zeros for those where nothing
does, so they have to know where that may be: see `jaxrec/_zeros.py`. What is known of all calls is
a greatest fixpoint: a call passes on what the calls inside it do, down to those that make none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator

from jaxrec._types import has_derivative
from jaxrec.graph._ir import Atom, Call, Graph, Op, Region, Switch, Value, is_constant, walk

Given = Callable[[Call], Iterable[Atom]]
"""The operands of a call that its derivatives flow to."""


def surely_derived(graph: Graph) -> set[Atom]:
    """What derivatives flow to in each call, whichever branches it takes; in a branch, if it does.

    That is whichever of the results of the graph have a derivative, be it one alone.
    """
    taken = {param for function in graph.functions for param in function.params}

    def given(call: Call) -> Iterable[Atom]:
        return (atom for param, atom in graph.arguments(call) if param in taken)

    while True:
        found = [_derived_in_each(function.body, given) for function in graph.functions]
        sure = set[Atom]().union(*found)
        if taken <= sure:
            break
        taken &= sure
    for k in _left_out(graph, sure):
        found[k].clear()
    return set[Atom]().union(*found)


def _left_out(graph: Graph, sure: set[Atom]) -> set[int]:
    """The functions of which some call is not derived, since that which makes it does not."""
    found = {call.callee for call in graph.calls if sure.isdisjoint(call.outputs)}
    todo = list(found)
    while todo:
        body = graph.functions[todo.pop()].body
        new = {op.callee for op in walk(body) if isinstance(op, Call)} - found
        found |= new
        todo += new
    return found


def _derived_in_each(body: Region, given: Given) -> set[Atom]:
    """What the derivative of any one result flows to."""
    results = [atom for atom in body.results if has_derivative(atom.aval)]
    each = [derived(body, [atom], given) for atom in results]
    return set.intersection(*each) if each else set()


def _all_operands(call: Call) -> Iterable[Atom]:
    return call.inputs


def derived(region: Region, results: Iterable[Atom], given: Given = _all_operands) -> set[Atom]:
    """What derivatives of some results flow to whichever branches are taken.

    Args:
        region: the region; of the values that its branches make, what the derivative of a call that
            takes the branch flows to.
        results: the results.
        given: the operands of calls that theirs flow to.
    """
    found = set(results)
    for op in reversed(region.ops):
        if found.isdisjoint(op.outputs):
            continue
        if isinstance(op, Switch):
            asked = [value in found for value in op.outputs]
            inner = [derived(r, itertools.compress(r.results, asked), given) for r in op.regions]
            found |= set.intersection(*inner)
            for branch, own in zip(op.regions, inner, strict=True):
                found.update(v for made in walk(branch) for v in made.outputs if v in own)
        elif passes_on(op):
            found.update(given(op) if isinstance(op, Call) else op.inputs)
    return found


def passes_on(op: Op) -> bool:
    """Whether derivatives flow through an operation itself, as they do not through an index."""
    if isinstance(op, Switch) or is_constant(op):
        return False
    return any(has_derivative(out.aval) for out in op.outputs)


def surely_moving(graph: Graph, moving: Collection[Atom], given: Collection[Value]) -> set[Atom]:
    """The values that move in each call.

    Args:
        graph: the graph.
        moving: those that move in some.
        given: the values that a derivative is taken by.
    """
    sure = set(moving).difference({*graph.entry.params, *graph.captured}.difference(given))
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
        elif is_constant(op) or moving.isdisjoint(op.inputs):
            yield from op.outputs
