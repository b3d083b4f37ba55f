"""Which values move with some others: what a derivative by those is a derivative of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

import jax.numpy as jnp

from jaxrec.graph._ir import Atom, Graph, Op, Prim, Switch, Value, is_constant, walk


def moving(graph: Graph, given: Iterable[Value]) -> set[Atom]:
    """The values that move with those given: a fixpoint over all calls."""
    found: set[Atom] = set(given)
    while True:
        before = len(found)
        for function in graph.functions:
            for op in walk(function.body):
                found.update(v for v in _moved_by(graph, op, found) if has_derivative(v))
        if len(found) == before:
            return found


def _moved_by(graph: Graph, op: Op, moving: set[Atom]) -> Iterator[Value]:
    """The values that move because of an operation: its results, or parameters of what it calls."""
    if isinstance(op, Prim):
        if not is_constant(op) and not moving.isdisjoint(op.inputs):
            yield from op.outputs
    elif isinstance(op, Switch):
        yield from (v for v in op.outputs if not moving.isdisjoint(op.sources(v)[1:]))
    else:
        yield from (param for param, atom in graph.arguments(op) if atom in moving)
        results = graph.functions[op.callee].body.results
        yield from (v for v, atom in zip(op.outputs, results, strict=True) if atom in moving)


def has_derivative(atom: Atom) -> bool:
    """Whether a value is of a type that has derivatives."""
    return jnp.issubdtype(atom.aval.dtype, jnp.inexact)


def places_moved(op: Prim, resting: Sequence[Collection[Atom]]) -> list[list[int]]:
    """For each of some derivatives the operands of an operation that it is taken by.

    Args:
        op: the operation.
        resting: for each derivative the operands of operations that do not move.
    """
    able = [
        (k, atom)
        for k, atom in enumerate(op.inputs)
        if isinstance(atom, Value) and has_derivative(atom)
    ]
    return [[k for k, atom in able if atom not in rest] for rest in resting]
