"""The specification of a graph as code: every graph is checked before it is split."""

from __future__ import annotations

from collections.abc import Sequence

from jaxrec.graph._ir import Atom, Call, Const, Function, Graph, Op, Region, Switch, Value, reads


class GraphError(AssertionError):
    """A graph that breaks the rules: a fault in jaxrec, never in the user's program."""


def check_graph(graph: Graph) -> Graph:
    """Returns the graph if it keeps the rules.

    Every value is made once, before it is read, in a scope that encloses the reader; calls agree
    with their callees and regions of a Switch with its Merge; call-site labels are unique in a
    function.

    Raises:
        GraphError: it does not.
    """
    for function in graph.functions:
        _check_function(graph, function)
    return graph


def _check_function(graph: Graph, function: Function) -> None:
    checker = _Checker(graph, function.name)
    scope = {*graph.captured, *function.params}
    checker.region(function.body, scope)
    if len(function.param_names) != len(function.params):
        raise GraphError(f"{function.name}: {len(function.param_names)} names")


class _Checker:
    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name
        self.sites: set[int] = set()
        self.made: set[Value] = set()

    def fail(self, text: str) -> None:
        raise GraphError(f"{self.name}: {text}")

    def region(self, region: Region, scope: set[Value]) -> None:
        scope = set(scope)
        for op in region.ops:
            self.atoms(reads(op), scope)
            self.op(op, scope)
            for value in op.outputs:
                if value in self.made:
                    self.fail(f"{value} is made twice")
                self.made.add(value)
            scope.update(op.outputs)
        self.atoms(region.results, scope)

    def atoms(self, atoms: Sequence[Atom], scope: set[Value]) -> None:
        for atom in atoms:
            if not isinstance(atom, Const) and atom not in scope:
                self.fail(f"{atom} is read where it is not in scope")

    def op(self, op: Op, scope: set[Value]) -> None:
        if isinstance(op, Call):
            self.call(op)
        elif isinstance(op, Switch):
            self.switch(op, scope)

    def call(self, op: Call) -> None:
        if op.site in self.sites:
            self.fail(f"call site {op.site} is used twice")
        self.sites.add(op.site)
        callee = self.graph.functions[op.callee]
        self.same_types(op.inputs, callee.params, f"arguments of call {op.site}")
        self.same_types(op.outputs, callee.body.results, f"results of call {op.site}")

    def switch(self, op: Switch, scope: set[Value]) -> None:
        if op.index.aval.shape:
            self.fail("the index of a Switch is not a scalar")
        for region in op.regions:
            self.region(region, scope)
            self.same_types(region.results, op.outputs, "results of a region")

    def same_types(self, have: Sequence[Atom], want: Sequence[Atom], what: str) -> None:
        if len(have) != len(want):
            self.fail(f"{what}: {len(have)} values, expected {len(want)}")
        for a, b in zip(have, want, strict=True):
            if a.aval.shape != b.aval.shape or a.aval.dtype != b.aval.dtype:
                self.fail(f"{what}: {a.aval} where {b.aval} is expected")
