"""An assembler for control programs and a slow, obvious model of the scheduler, for tests.

The model follows the definition literally: it runs a frame's instructions in Python, recurses at
every call, and hands out rows wave by wave. It knows nothing of outlines, segments or arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from core_agenda import agenda

from jaxrec import _core

OPCODES = _core.opcodes()
DTYPES = _core.dtypes()
I32 = DTYPES["int32"]


@dataclass(frozen=True)
class Cell:
    """Classes of the slots and element types of the exports."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    exports: tuple[str, ...] = ()


@dataclass(frozen=True)
class Function:
    """Code is a list of tuples (opcode name, operands...); ("LABEL", name) marks a target."""

    control: tuple[str, ...]
    data: tuple[int, ...]
    results: tuple[int, ...]
    registers: int
    slots: int
    code: tuple[tuple[Any, ...], ...]
    memo: bool = False


@dataclass(frozen=True)
class Program:
    outers: tuple[tuple[str, int], ...]
    classes: int
    cells: tuple[Cell, ...]
    functions: tuple[Function, ...]
    entry: int = 0
    imports: tuple[tuple[int, str], ...] = ()

    def encode(self) -> np.ndarray:
        words: list[int] = [_core.MAGIC, _core.VERSION, len(self.outers)]
        for dtype, rank in self.outers:
            words += [DTYPES[dtype], rank]
        words += [self.classes, len(self.cells)]
        for cell in self.cells:
            words += _list(cell.inputs) + _list(cell.outputs)
            words += _list([DTYPES[d] for d in cell.exports])
        words += [len(self.imports)]
        for value_class, dtype in self.imports:
            words += [value_class, DTYPES[dtype]]
        words += [len(self.functions), self.entry]
        for function in self.functions:
            words.append(int(function.memo))
            words += _list([DTYPES[d] for d in function.control])
            words += _list(function.data) + _list(function.results)
            words += [function.registers, function.slots]
            words += _list(_assemble(function.code))
        return np.array(words, np.int64)


def _list(items: Sequence[int]) -> list[int]:
    return [len(items), *items]


def _operands(op: str, args: tuple[Any, ...], offsets: dict[str, int]) -> list[int]:
    """Operands as words: a list becomes its length and its items, a label its offset."""
    words: list[int] = []
    for arg in args:
        if isinstance(arg, list):
            words += _list([offsets.get(a, 0) if isinstance(a, str) else a for a in arg])
        elif isinstance(arg, str):
            words.append(offsets.get(arg, 0) if op == "JUMP" else DTYPES[arg])
        else:
            words.append(int(arg))
    return words


def _assemble(code: Sequence[tuple[Any, ...]]) -> list[int]:
    offsets: dict[str, int] = {}
    words: list[int] = []
    for _ in range(2):  # the first pass finds the labels
        words = []
        for op, *args in code:
            if op == "LABEL":
                offsets[args[0]] = len(words)
            else:
                words += [OPCODES[op], *_operands(op, tuple(args), offsets)]
    return words


Value = tuple[Any, ...]  # ("out", firing, slot) or ("arg", leaf, lane)


@dataclass
class Firing:
    cell: int
    frame: int
    inputs: list[Value]
    exports: list[int]


@dataclass
class Frame:
    function: int
    parent: int
    site: int
    lane: int
    control: list[int]
    results: list[Value] = field(default_factory=list)
    firings: list[Firing] = field(default_factory=list)


class Model:
    """Runs a program by recursion. Integer control only, without wrapping."""

    def __init__(
        self,
        program: Program,
        roots: Sequence[np.ndarray],
        outers: Sequence[np.ndarray],
        lanes: int,
    ) -> None:
        self.program, self.outers, self.lanes = program, outers, lanes
        self.frames: list[Frame] = []
        self.root_frames: list[int] = []
        self._shared: dict[tuple[int, ...], list[Value]] = {}
        for lane in range(lanes):
            self.root_frames.append(len(self.frames))
            data = [("arg", k, lane) for k in range(len(program.functions[program.entry].data))]
            self._call(program.entry, [int(r[lane]) for r in roots], data, -1, -1, lane)
        # Preorder of frames, then program order within each.
        self.firings = [f for frame in self.frames for f in frame.firings]
        self._number = {id(f): i for i, f in enumerate(self.firings)}

    def _run(
        self,
        function: int,
        control: list[int],
        data: list[Value],
        parent: int,
        site: int,
        lane: int,
    ) -> list[Value]:
        me = len(self.frames)
        frame = Frame(function, parent, site, lane, control)
        self.frames.append(frame)
        fun = self.program.functions[function]
        regs = dict(enumerate(control))
        slots: dict[int, Value] = dict(enumerate(data))
        labels = {args[0]: i for i, (op, *args) in enumerate(fun.code) if op == "LABEL"}
        at = 0
        while True:
            op, *args = fun.code[at]
            at += 1
            if op == "LABEL":
                continue
            if op == "RETURN":
                frame.results = [slots[s] for s in args[0]]
                return frame.results
            if op == "JUMP":
                at = labels[args[0]]
            elif op == "SWITCH":
                reg, targets = args
                at = labels[targets[min(max(regs[reg], 0), len(targets) - 1)]]
            elif op == "CALL":
                callee, label, cregs, dslots, rslots = args
                results = self._call(
                    callee, [regs[r] for r in cregs], [slots[s] for s in dslots], me, label, lane
                )
                slots.update(zip(rslots, results, strict=True))
            elif op == "FIRE":
                self._fire(frame, me, regs, slots, *args)
            elif op == "ALIAS":
                slots[args[0]] = slots[args[1]]
            else:
                regs[args[0]] = self._control(op, args, regs)

    def _call(self, function: int, control: list[int], *rest: Any) -> list[Value]:
        """Runs a call, or finds the results of an equal one of the lane."""
        if not self.program.functions[function].memo:
            return self._run(function, control, *rest)
        key = (function, rest[-1], *control)
        if key not in self._shared:
            self._shared[key] = self._run(function, control, *rest)
        return self._shared[key]

    def _fire(
        self,
        frame: Frame,
        me: int,
        regs: dict[int, int],
        slots: dict[int, Value],
        cell: int,
        exports: list[int],
        inputs: list[int],
        outputs: list[int],
    ) -> None:
        firing = Firing(cell, me, [slots[s] for s in inputs], [regs[r] for r in exports])
        frame.firings.append(firing)
        for k, s in enumerate(outputs):
            slots[s] = ("out", firing, k)

    def _control(self, op: str, args: list[Any], regs: dict[int, int]) -> int:
        if op == "CONST":
            return args[2]
        if op == "LOAD":
            return int(self.outers[args[1]][tuple(regs[r] for r in args[2])])
        a, b = regs[args[2]], regs[args[3]]
        simple = {"ADD": a + b, "SUB": a - b, "MUL": a * b, "LT": int(a < b), "EQ": int(a == b)}
        return simple[op]

    def producers(self) -> list[list[int]]:
        """The firings whose outputs each firing reads, as often as it reads them."""
        return [[self._number[id(v[1])] for v in f.inputs if v[0] == "out"] for f in self.firings]

    def lay_out(self, widths: Sequence[int], costs: Sequence[float], collect: bool) -> Rows:
        return Rows(self, tuple(widths), tuple(costs), collect)


class Rows:
    """Waves, reads and readers, as lists."""

    def __init__(
        self, model: Model, widths: tuple[int, ...], costs: tuple[float, ...], collect: bool
    ) -> None:
        program, lanes = model.program, model.lanes
        entry = program.functions[program.entry]
        self.pad = pad = max(widths)
        self.value_row: dict[tuple[Any, ...], int] = {}
        self.waves: list[list[int]] = []
        self.reads: list[list[int]] = [[] for _ in range(program.classes)]
        self.cell_rows: list[list[Firing]] = [[] for _ in program.cells]
        values = [0] * program.classes
        for k, c in enumerate(entry.data):
            for lane in range(lanes):
                self.value_row["arg", k, lane] = pad + values[c]
                values[c] += 1
        max_out = max((len(c.outputs) for c in program.cells), default=0)
        max_in = max((len(c.inputs) for c in program.cells), default=0)
        for width, numbers in agenda(model.firings, model.producers(), widths, costs):
            wave = [model.firings[i] for i in numbers]
            number = wave[0].cell
            cell = program.cells[number]
            row = [number * len(widths) + width, len(wave), pad + len(self.cell_rows[number])]
            self.cell_rows[number] += wave
            outs = [0] * max_out
            for k, c in enumerate(cell.outputs):
                outs[k] = pad + values[c]
                for firing in wave:
                    self.value_row["out", id(firing), k] = pad + values[c]
                    values[c] += 1
            ins = [0] * max_in
            for k, c in enumerate(cell.inputs):
                ins[k] = pad + len(self.reads[c])
                self.reads[c] += [self.row(f.inputs[k]) for f in wave]
            self.waves.append(row + outs + ins)
        self.values = values
        self.columns = 3 + max_out + max_in
        self.roots = roots = [model.frames[i] for i in model.root_frames]
        self.collected = [f for f in model.frames if f.function == program.entry and collect]
        self.result_start = self._results(entry.results, roots)
        self.collect_start = self._results(entry.results, self.collected) if collect else []

    def row(self, value: Value) -> int:
        """The value row that holds a value."""
        if value[0] == "out":
            return self.value_row["out", id(value[1]), value[2]]
        return self.value_row[value]

    def _results(self, classes: tuple[int, ...], frames: list[Frame]) -> list[int]:
        starts = []
        for k, c in enumerate(classes):
            starts.append(self.pad + len(self.reads[c]))
            self.reads[c] += [self.row(f.results[k]) for f in frames]
        return starts

    def readers(self, c: int) -> dict[int, list[int]]:
        """Read rows of each value row of class c."""
        out: dict[int, list[int]] = {}
        for r, v in enumerate(self.reads[c]):
            out.setdefault(v, []).append(self.pad + r)
        return out

    def value_rows(self, cell: int, k: int) -> list[int]:
        """The value row of output k of each firing of a cell, by cell row."""
        return [self.value_row["out", id(f), k] for f in self.cell_rows[cell]]

    def root_rows(self, k: int) -> list[int]:
        """The value row of data argument k of each root."""
        return [row for key, row in self.value_row.items() if key[:2] == ("arg", k)]
