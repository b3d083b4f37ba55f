"""Random control programs that end: every call passes a smaller number on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from core_model import Cell, Function, Program

I32 = "int32"

# Registers: 0 n, 1 a constant, 2 a smaller n, 3 what the table says of n, 4 whether to stop.
_REGISTERS = 5


class RandomProgram:
    """Draws programs with several classes, cells and mutually recursive functions."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.classes = self.pick(1, 3)
        cells = [
            Cell(self.some(0, 3), self.some(1, 2), (I32,) * self.pick(0, 2))
            for _ in range(self.pick(1, 4))
        ]
        # One source cell a class, so that a value of any class can always be made.
        self.cells = (*cells, *(Cell((), (c,), (I32,)) for c in range(self.classes)))
        empty = [
            Function((I32,), self.some(0, 2), self.some(1, 2), _REGISTERS, 0, ())
            for _ in range(self.pick(1, 3))
        ]
        empty = [dataclasses.replace(f, memo=not f.data and self.pick(0, 1) == 1) for f in empty]
        self.functions = empty
        self.slots: list[int] = []  # class of each slot in use
        self.code: list[tuple[Any, ...]] = []
        self.program = Program(
            outers=((I32, 1),),
            classes=self.classes,
            cells=self.cells,
            functions=tuple(self.body(function) for function in empty),
        )

    def inputs(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Roots and the table of branches."""
        roots = self.rng.integers(0, 7, size=self.pick(1, 5)).astype(np.int32)
        return [roots], [self.rng.integers(0, 5, size=16).astype(np.int32)]

    def pick(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def some(self, least: int, most: int) -> tuple[int, ...]:
        return tuple(self.pick(0, self.classes - 1) for _ in range(self.pick(least, most)))

    def body(self, function: Function) -> Function:
        branches = self.pick(1, 3)
        labels = [f"branch{i}" for i in range(branches)]
        self.code = [
            ("CONST", 1, I32, 1),
            ("LT", 4, I32, 0, 1),
            ("SWITCH", 4, ["more", "base"]),
            ("LABEL", "more"),
            ("LOAD", 3, 0, [0]),
            ("SWITCH", 3, labels),
        ]
        most = 0
        for label in [*labels, "base"]:
            self.code.append(("LABEL", label))
            self.slots = list(function.data)
            for _ in range(self.pick(0, 3)):
                self.step(may_call=label != "base")
            self.code.append(("RETURN", [self.value(c) for c in function.results]))
            most = max(most, len(self.slots))
        return dataclasses.replace(function, slots=most, code=tuple(self.code))

    def step(self, *, may_call: bool) -> None:
        kind = self.pick(0, 3 if may_call else 1)
        if kind == 0 and self.slots:
            source = self.pick(0, len(self.slots) - 1)
            self.code.append(("ALIAS", self.slot(self.slots[source]), source))
        elif kind <= 1:
            number = self.pick(0, len(self.cells) - 1)
            cell = self.cells[number]
            inputs = [self.value(c) for c in cell.inputs]
            outputs = [self.slot(c) for c in cell.outputs]
            self.code.append(("FIRE", number, [0] * len(cell.exports), inputs, outputs))
        else:
            number = self.pick(0, len(self.functions) - 1)
            callee = self.functions[number]
            data = [self.value(c) for c in callee.data]
            self.code += [("CONST", 1, I32, self.pick(1, 3)), ("SUB", 2, I32, 0, 1)]
            results = [self.slot(c) for c in callee.results]
            self.code.append(("CALL", number, self.pick(0, 9), [2], data, results))

    def value(self, c: int) -> int:
        """A slot that holds a value of class c: one there is, or a new one."""
        found = [i for i, held in enumerate(self.slots) if held == c]
        if found and self.pick(0, 3):
            return found[self.pick(0, len(found) - 1)]
        out = self.slot(c)
        source = len(self.cells) - self.classes + c
        self.code.append(("FIRE", source, [0], [], [out]))
        return out

    def slot(self, c: int) -> int:
        self.slots.append(c)
        return len(self.slots) - 1
