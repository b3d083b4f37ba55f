"""Tape classes: values that may stand for each other at run time share a tape.

The argument of a call and the parameter it becomes, the result of a call and what the callee
returns, the results of the regions of a Switch and its Merge: each pair is one value at run time,
known to the schedule as an alias and never copied. The classes are the connected components.
"""

from __future__ import annotations

from collections.abc import Iterable

from jax.core import ShapedArray

from jaxrec.graph._ir import Atom, Call, Graph, Region, Switch, Value
from jaxrec.split._binding import Binding
from jaxrec.split._cells import Cells


class Classes:
    """The classes of tape values, numbered in order of first mention.

    Attributes:
        avals: the type of one row of each class.
    """

    def __init__(self, graph: Graph, binding: Binding, cells: Cells) -> None:
        self._binding, self._cells = binding, cells
        self._parent: dict[Value, Value] = {}
        self._number: dict[Value, int] = {}
        self.avals: list[ShapedArray] = []
        for function in graph.functions:
            self._visit(graph, function.body)

    def of(self, value: Value) -> int:
        """The class of a tape value."""
        root = self._find(value)
        if root not in self._number:
            self._number[root] = len(self.avals)
            self.avals.append(root.aval)
        return self._number[root]

    def _find(self, value: Value) -> Value:
        path = []
        while value in self._parent:
            path.append(value)
            value = self._parent[value]
        self._parent.update((v, value) for v in path)
        return value

    def _union(self, a: Value, b: Value) -> None:
        a, b = self._find(a), self._find(b)
        if a is not b:
            self._parent[b] = a

    def _join(self, region: Region, atoms: Iterable[Atom], values: Iterable[Value]) -> None:
        handed = self._cells.blocks[region].handed
        for atom, value in zip(atoms, values, strict=True):
            if value in self._cells.live and value not in self._binding.outer_of:
                self._union(tape_of(handed, atom), value)

    def _visit(self, graph: Graph, region: Region) -> None:
        for op in region.ops:
            if isinstance(op, Call):
                callee = graph.functions[op.callee]
                self._join(region, op.inputs, callee.params)
                self._join_results(callee.body, op.outputs)
            elif isinstance(op, Switch) and self._binding.is_control_switch(op):
                for inner in op.regions:
                    self._visit(graph, inner)
                    self._join(inner, inner.results, op.outputs)

    def _join_results(self, body: Region, outputs: Iterable[Value]) -> None:
        handed = self._cells.blocks[body].handed
        for atom, value in zip(body.results, outputs, strict=True):
            self._union(tape_of(handed, atom), value)


def tape_of(handed: dict[Atom, Value], atom: Atom) -> Value:
    """The tape value that stands for what a region passes on."""
    value = handed.get(atom, atom)
    assert isinstance(value, Value)
    return value


def result_values(body: Region, cells: Cells) -> list[Value]:
    """The tape values that a function returns."""
    handed = cells.blocks[body].handed
    return [tape_of(handed, atom) for atom in body.results]
