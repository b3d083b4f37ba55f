"""The graph in the DOT language of Graphviz."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from jaxrec.graph._ir import Atom, Call, Const, Function, Graph, Op, Region, Switch, Value, reads


def to_dot(graph: Graph) -> str:
    """Writes a graph as a DOT digraph: a cluster a function, Call_i entering, Return_i leaving."""
    lines = [line for k, f in enumerate(graph.functions) for line in _Dot(graph, k, f).lines()]
    return "\n".join(["digraph {", "  rankdir=TB; node [shape=box];", *lines, "}"])


class _Dot:
    def __init__(self, graph: Graph, index: int, function: Function) -> None:
        self.graph, self.index, self.function = graph, index, function
        self._ids = itertools.count()
        self._maker: dict[Value, str] = {}

    def lines(self) -> Iterator[str]:
        yield f"  subgraph cluster_{self.index} {{ label={_quote(self.function.name)};"
        for name, value in zip(self.function.param_names, self.function.params, strict=True):
            yield from self.node(f"Arg {name}", (), (value,), f"f{self.index}_in")
        yield from self.region(self.function.body)
        yield from self.node("Result", self.function.body.results, (), f"f{self.index}_out")
        yield "  }"

    def region(self, region: Region) -> Iterator[str]:
        for op in region.ops:
            yield from self.op(op)

    def op(self, op: Op) -> Iterator[str]:
        if isinstance(op, Call):
            name = self.graph.functions[op.callee].name
            yield from self.node(f"Call_{op.site} {name}", op.inputs, ())
            call = self._last
            yield from self.node(f"Return_{op.site} {name}", (), op.outputs)
            yield f"    {call} -> {self._last} [style=dashed];"
        elif isinstance(op, Switch):
            yield from self.switch(op)
        else:
            yield from self.node(op.name, op.inputs, op.outputs)

    def switch(self, op: Switch) -> Iterator[str]:
        yield from self.node("Switch", reads(op), (), shape="diamond")
        start = self._last
        ends: list[Atom] = []
        for region in op.regions:
            yield from self.region(region)
            ends.extend(region.results)
        yield from self.node("Merge", ends, op.outputs, shape="invtriangle")
        yield f"    {start} -> {self._last} [style=dotted];"

    def node(
        self,
        label: str,
        inputs: tuple[Atom, ...] | list[Atom],
        outputs: tuple[Value, ...],
        name: str | None = None,
        shape: str = "box",
    ) -> Iterator[str]:
        self._last = (
            f"n{self.index}_{next(self._ids)}" if name is None else f"{name}{next(self._ids)}"
        )
        self._maker.update(dict.fromkeys(outputs, self._last))
        yield f"    {self._last} [label={_quote(label)}, shape={shape}];"
        for atom in inputs:
            if not isinstance(atom, Const) and atom in self._maker:
                yield f"    {self._maker[atom]} -> {self._last};"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
