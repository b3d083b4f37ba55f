"""What a drawing of a graph shows: boxes in rows, and edges between them.

Operations whose results are read by one other operation only are drawn in one box with it, and the
arithmetic that makes an index is left out of the box's text: so a gate of a cell is one box, and
`tree.left[i]` is one line. Tooltips list every operation.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

from jaxrec.graph._ir import (
    Atom,
    Call,
    Function,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    free_atoms,
    reads,
)
from jaxrec.graph._print import format_prim
from jaxrec.trace._signature import show

_MOST_LINES = 5
_ARGS_A_ROW = 6
_ARGUMENTS = ("arg", "captured")


@dataclasses.dataclass(frozen=True, eq=False)
class Box:
    """A node of the drawing, or a frame around rows of boxes.

    Attributes:
        kind: what it stands for; decides how it looks.
        lines: its text.
        tooltip: what the text leaves out.
        rows: the boxes inside it.
    """

    kind: str
    lines: tuple[str, ...]
    tooltip: str
    rows: tuple[tuple[Box, ...], ...] = ()


@dataclasses.dataclass(frozen=True)
class Edge:
    """A line between boxes: of kind "argument", "data", "tag" (Call to Return) or "choice"."""

    source: Box
    target: Box
    kind: str


def boxes_of(graph: Graph) -> tuple[Box, list[Edge]]:
    """A frame with the functions of a graph one below the other, and the edges."""
    builder = _Builder(graph)
    captured = [builder.argument("captured", v.variable or repr(v), v) for v in graph.captured]
    functions = [(builder.function(f),) for f in graph.functions]
    frame = Box("graph", (), "", (*_wrapped(captured), *functions))
    return frame, list(builder.edges)


class _Builder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.edges: dict[Edge, None] = {}
        self._maker: dict[Atom, Box] = {}
        self._names: dict[Atom, str] = {}
        self._passed: set[tuple[str, Atom]] = set()

    def argument(self, kind: str, name: str, value: Value) -> Box:
        box = Box(kind, (name,), f"{name} {value}: {show(value.aval)}")
        self._maker[value], self._names[value] = box, name
        return box

    def function(self, function: Function) -> Box:
        named = list(zip(function.param_names, function.params, strict=True))
        self._passed = set(named)
        args = [self.argument("arg", name, value) for name, value in named]
        body = self.rows(function.body)
        result = Box("result", ("Result",), f"Result {_list(function.body.results)}")
        self.connect(function.body.results, result)
        rows = (*_wrapped(args), *body, (result,))
        return Box("function", (f"function {function.name}",), function.name, rows)

    def connect(self, atoms: Sequence[Atom], target: Box) -> None:
        for atom in atoms:
            maker = self._maker.get(atom)
            if maker is not None:
                self.edge(maker, target, "argument" if maker.kind in _ARGUMENTS else "data")

    def edge(self, source: Box, target: Box, kind: str) -> None:
        self.edges[Edge(source, target, kind)] = None

    def rows(self, region: Region) -> tuple[tuple[Box, ...], ...]:
        """The boxes of a region, each below those whose values it reads."""
        rows: dict[int, list[Box]] = collections.defaultdict(list)
        row_of: dict[Atom, int] = {}
        groups = _groups(region)
        for op in region.ops:
            if op not in groups:
                continue
            row = max((row_of.get(a, 0) for o in groups[op] for a in free_atoms(o)), default=0)
            for box in self.boxes(op, groups[op]):
                rows[row].append(box)
                row += 1
            row_of.update((value, row) for value in op.outputs)
        return tuple(tuple(rows[k]) for k in sorted(rows))

    def boxes(self, op: Op, group: Sequence[Op]) -> tuple[Box, ...]:
        """The boxes of an operation, one below the other."""
        if isinstance(op, Call):
            return self.call(op)
        if isinstance(op, Switch):
            return (self.choice(op),)
        prims = [o for o in group if isinstance(o, Prim)]
        box = Box("prim", self.label(prims), "\n".join(map(format_prim, prims)))
        made = {value for prim in prims for value in prim.outputs}
        self.connect([a for prim in prims for a in prim.inputs if a not in made], box)
        self._maker.update(dict.fromkeys(op.outputs, box))
        return (box,)

    def call(self, op: Call) -> tuple[Box, ...]:
        callee = self.graph.functions[op.callee]
        pairs = list(zip(callee.param_names, op.inputs, strict=True))
        lines = [f"{name} = {atom}" for name, atom in pairs]
        push = f"pushes {op.site} on the tag and enters {callee.name}"
        enter = Box("call", (f"Call_{op.site} {callee.name}",), "\n".join([push, *lines]))
        pop = f"pops {op.site}: {_list(op.outputs)}"
        back = Box("return", (f"Return_{op.site} {callee.name}",), pop)
        # Arguments that are passed on under their own name would hide the others' lines.
        self.connect([atom for name, atom in pairs if (name, atom) not in self._passed], enter)
        self.edge(enter, back, "tag")
        self._maker.update(dict.fromkeys(op.outputs, back))
        return enter, back

    def choice(self, op: Switch) -> Box:
        switch = Box("switch", ("Switch",), f"Switch {op.index}")
        merge = Box("merge", ("Merge",), f"{_list(op.outputs)} = Merge")
        self.connect(reads(op), switch)
        frames = []
        for k, region in enumerate(op.regions):
            frame = Box("region", (f"region {k}",), f"runs if {op.index} is {k}", self.rows(region))
            self.edge(switch, frame, "choice")
            self.connect(region.results, merge)
            frames.append(frame)
        self._maker.update(dict.fromkeys(op.outputs, merge))
        return Box("choice", (), "", ((switch,), tuple(frames), (merge,)))

    def label(self, prims: Sequence[Prim]) -> tuple[str, ...]:
        hidden = _index_arithmetic(prims)
        lines = [self.short(prim) for prim in prims if prim not in hidden]
        extra = len(lines) - _MOST_LINES
        return tuple(lines if extra <= 0 else [*lines[: _MOST_LINES - 1], f"... {extra + 1} more"])

    def short(self, prim: Prim) -> str:
        """The name of an operation; a read of an element of an argument as `tree.left[...]`."""
        if prim.name == "dynamic_slice" and prim.inputs[0] in self._names:
            return f"{self._names[prim.inputs[0]]}[...]"
        return prim.name


def _groups(region: Region) -> dict[Op, list[Op]]:
    """The operations drawn in one box, by the last of them."""
    readers: dict[Atom, set[Op | None]] = collections.defaultdict(set)
    for op in region.ops:
        for atom in free_atoms(op):
            readers[atom].add(op)
    for atom in region.results:
        readers[atom].add(None)
    last_of: dict[Op, Op] = {}
    for op in reversed(region.ops):
        read_by = set().union(*(readers[value] for value in op.outputs))
        only = next(iter(read_by)) if len(read_by) == 1 else None
        last_of[op] = last_of[only] if isinstance(op, Prim) and isinstance(only, Prim) else op
    groups: dict[Op, list[Op]] = {}
    for op in region.ops:
        groups.setdefault(last_of[op], []).append(op)
    return groups


def _index_arithmetic(prims: Sequence[Prim]) -> set[Prim]:
    """Operations that only make an index or only give a read element its shape."""
    starts = [a for p in prims if p.name == "dynamic_slice" for a in p.inputs[1:]]
    found: set[Prim] = set()
    for prim in reversed(prims):
        if any(value in starts for value in prim.outputs):
            found.add(prim)
            starts.extend(prim.inputs)
    shaping = {p for p in prims if p.name in {"squeeze", "convert_element_type"}}
    return found | shaping if len(found | shaping) < len(prims) else set()


def _list(atoms: Sequence[Atom]) -> str:
    return ", ".join(map(repr, atoms))


def _wrapped(boxes: Sequence[Box]) -> tuple[tuple[Box, ...], ...]:
    return tuple(tuple(boxes[k : k + _ARGS_A_ROW]) for k in range(0, len(boxes), _ARGS_A_ROW))
