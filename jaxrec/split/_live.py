"""Which values the data plane must make: those that results depend on, other than by control."""

from __future__ import annotations

from collections.abc import Iterator

from jaxrec.graph._ir import (
    Atom,
    Call,
    Const,
    Graph,
    Op,
    Region,
    Switch,
    Value,
    free_atoms,
    shows,
)
from jaxrec.split._binding import Binding


def live_values(graph: Graph, binding: Binding) -> frozenset[Value]:
    """The values that cells compute or that flow between cells.

    Starts from the results of every function, what control imports and what is shown, and follows
    operands backwards. An integer that the control plane supplies ends the search, as an outer
    value does.
    """
    makers = _makers(graph, binding)
    live: set[Value] = set()
    todo: list[Atom] = [atom for f in graph.functions for atom in f.body.results]
    todo += binding.imports
    todo += (a for op in graph.ops if shows(op) for a in free_atoms(op))
    while todo:
        atom = todo.pop()
        if isinstance(atom, Const) or atom in live:
            continue
        if atom in binding.outer_of or binding.is_export(atom):
            continue
        live.add(atom)
        todo.extend(graph.passed.get(atom, ()))
        if atom in makers:
            todo.extend(_sources(makers[atom], atom, binding))
    return frozenset(live)


def _sources(op: Op, value: Value, binding: Binding) -> Iterator[Atom]:
    if isinstance(op, Switch) and binding.is_control_switch(op):
        k = op.outputs.index(value)
        yield from (region.results[k] for region in op.regions)
    elif not isinstance(op, Call):
        yield from free_atoms(op)


def _makers(graph: Graph, binding: Binding) -> dict[Value, Op]:
    found: dict[Value, Op] = {}

    def visit(region: Region) -> None:
        for op in region.ops:
            found.update((value, op) for value in op.outputs)
            if isinstance(op, Switch) and binding.is_control_switch(op):
                for inner in op.regions:
                    visit(inner)

    for function in graph.functions:
        visit(function.body)
    return found
