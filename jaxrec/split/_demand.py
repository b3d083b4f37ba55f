"""Which computed values control demands: what makes a program a stepped one.

A planned program decides everything from values that are known before the first cell runs. Where a
choice with calls in it, or one that is to run the taken branch alone, depends on what cells
compute, the scheduler has to wait for that value: it *imports* it from a tape once its wave has
run.

Source: Jones, Gomard & Sestoft, "Partial evaluation and automatic program generation" (1993),
chapter 8, for the backward half of a binding-time analysis.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from jaxrec._types import is_whole
from jaxrec.graph._ir import (
    Atom,
    Call,
    Const,
    Function,
    Graph,
    Op,
    Prim,
    Switch,
    Value,
    walk,
)
from jaxrec.graph._work import decides_work
from jaxrec.split._scalar import fits

if TYPE_CHECKING:
    from jaxrec.split._binding import Binding


@dataclasses.dataclass(frozen=True)
class Demand:
    """What control needs that it cannot compute from control arguments.

    Attributes:
        values: all such values.
        imports: those that come from tapes.
        params: parameters that control needs, which must become control arguments first.
    """

    values: frozenset[Value]
    imports: frozenset[Value]
    params: frozenset[Value]


def _is_index(value: Value) -> bool:
    """Whether a value is an integer or boolean scalar that registers can hold."""
    return is_whole(value.aval) and fits(value.aval)


def find_demand(graph: Graph, binding: Binding, wide: frozenset[Value]) -> Demand:
    """Follows the indices of choices backwards.

    Args:
        graph: the graph.
        binding: what is computable without imports.
        wide: what would be, if every scalar argument and result of a call were known.
    """
    finder = _Finder(graph, binding, wide)
    for function in graph.functions:
        finder.need_compared(function)
        for op in walk(function.body):
            if decides_work(op):
                assert isinstance(op, Switch)
                finder.need(op.index)
            if isinstance(op, Call):
                finder.need_arguments(op)
    return finder.run()


class _Finder:
    def __init__(self, graph: Graph, binding: Binding, wide: frozenset[Value]) -> None:
        self._graph, self._binding, self._wide = graph, binding, wide
        self._todo: list[Atom] = []

    def need(self, atom: Atom) -> None:
        """Adds a value that control needs."""
        self._todo.append(atom)

    def need_compared(self, function: Function) -> None:
        """Adds the arguments by which calls of a shared function are compared."""
        if function.memo:
            self._todo += [param for param in function.params if _is_index(param)]

    def need_arguments(self, op: Call) -> None:
        """Adds what a call passes for control arguments."""
        pairs = self._graph.arguments(op)
        self._todo += [atom for param, atom in pairs if param in self._binding.computable]

    def run(self) -> Demand:
        values: set[Value] = set()
        imports: set[Value] = set()
        params: set[Value] = set()
        while self._todo:
            atom = self._todo.pop()
            if isinstance(atom, Const) or atom in values or self._binding.is_control(atom):
                continue
            if atom not in self._graph.makers and atom not in self._graph.told:
                params.add(atom)
                continue
            values.add(atom)
            if self._is_computed(atom):
                self._todo += self._sources(self._graph.makers[atom], atom)
            else:
                imports.add(atom)
        return Demand(frozenset(values), frozenset(imports), frozenset(params))

    def _is_computed(self, value: Value) -> bool:
        """Whether the machine computes a value, if need be from imports."""
        op = self._graph.makers.get(value)
        if value not in self._wide or op is None or isinstance(op, Call):
            return False
        sources = self._sources(op, value)
        return all(
            isinstance(a, Const) or a in self._wide or self._binding.is_control(a) for a in sources
        )

    def _sources(self, op: Op, value: Value) -> list[Atom]:
        """What a value that the machine computes follows from."""
        if isinstance(op, Switch):
            return op.sources(value)
        assert isinstance(op, Prim)
        return list(op.inputs[1:] if self._binding.is_load(op) else op.inputs)
