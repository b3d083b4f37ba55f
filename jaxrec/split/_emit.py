"""Control bytecode: what a frame of a function does on the host.

The code of a function computes its predicates and the control arguments of its calls, and fires its
cells. A value of the data plane is a *slot*, a reference that the scheduler resolves later, so the
code waits for no cell, except where control itself depends on one: IMPORT.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxrec.graph._ir import Atom, Call, Function, Graph, Op, Region, Switch, Value
from jaxrec.split import _scalar
from jaxrec.split._binding import Binding
from jaxrec.split._bundles import Bundles
from jaxrec.split._cells import Cell, Cells
from jaxrec.split._classes import result_values, tape_of
from jaxrec.split._registers import ArrayTable, ControlValues, each, shaped
from jaxrec.split._scalar import DTYPES, OPCODES, Registers


@dataclasses.dataclass(frozen=True, eq=False)
class Code:
    """The bytecode of one function."""

    words: tuple[int, ...]
    num_registers: int
    num_slots: int
    control_params: tuple[Value, ...]
    data_params: tuple[Value, ...]


def emit_function(
    graph: Graph,
    function: Function,
    binding: Binding,
    cells: Cells,
    needed: frozenset[Value],
    bundles: Bundles,
    table: ArrayTable,
) -> Code:
    """Compiles a function for the control machine."""
    emitter = _FunctionEmitter(graph, function, binding, cells, needed, bundles, table)
    emitter.region(function.body)
    emitter.return_(result_values(function.body, cells))
    return Code(
        tuple(emitter.to.words),
        emitter.to.num_registers,
        emitter.num_slots,
        emitter.control_params,
        emitter.data_params,
    )


def params_of(
    function: Function, binding: Binding, cells: Cells, needed: frozenset[Value]
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The parameters that travel in registers and those that travel in tapes."""
    control = tuple(p for p in function.params if p in needed and p not in binding.imports)
    data = tuple(p for p in function.params if p in cells.live and p not in binding.outer_of)
    return control, data


class _Words:
    """Bytecode that grows, and the registers that it fills.

    What is computed twice, as the indices of several arrays are, is computed once.
    """

    def __init__(self, num_registers: int) -> None:
        self.words: list[int] = []
        self.num_registers = num_registers
        self.known: dict[tuple[Any, ...], int] = {}

    def put(self, opcode: str, *operands: int | Sequence[int]) -> None:
        """Appends an instruction; operands of any number stand behind that number."""
        self.words.append(OPCODES[opcode])
        for operand in operands:
            self.words += [operand] if isinstance(operand, int) else [len(operand), *operand]

    def register(self) -> int:
        self.num_registers += 1
        return self.num_registers - 1

    def emit(self, opcode: str, dtype: Any, *operands: int) -> int:
        return self._once(opcode, DTYPES[np.dtype(dtype).name], *operands)

    def load(self, array: Value, number: int, where: Sequence[int]) -> int:
        del array
        return self._once("LOAD", number, tuple(where))

    def constant(self, value: Any, dtype: Any) -> int:
        return self.emit("CONST", dtype, _scalar.bits(value, np.dtype(dtype)))

    def _once(self, opcode: str, *operands: Any) -> int:
        """The register of a result, which is computed here if it is not there yet."""
        key = (opcode, *operands)
        if key not in self.known:
            self.known[key] = self.register()
            self.put(opcode, self.known[key], *operands)
        return self.known[key]


class _FunctionEmitter:
    """Emits the dataflow between cells and calls."""

    def __init__(
        self,
        graph: Graph,
        function: Function,
        binding: Binding,
        cells: Cells,
        needed: frozenset[Value],
        bundles: Bundles,
        table: ArrayTable,
    ) -> None:
        self.graph, self.binding, self.cells = graph, binding, cells
        self.needed, self.bundles = needed, bundles
        self.control_params, self.data_params = params_of(function, binding, cells, needed)
        self.to = _Words(len(self.control_params))
        self.values = ControlValues(
            graph.makers, binding, binding.deciding, table, self.to, binding.imports, self.import_
        )
        self.values.registers.update(
            (param, shaped([k], param)) for k, param in enumerate(self.control_params)
        )
        self.num_slots = 0
        self.slots: dict[Value, int] = {}
        self.made(self.data_params)

    def made(self, values: Sequence[Value]) -> list[int]:
        """New slots for tape values where they are made, one for each row."""
        rows = self.bundles.rows(values)
        self.slots.update({v: self.num_slots + k for k, v in enumerate(rows)})
        self.num_slots += len(rows)
        return [self.slots[v] for v in rows]

    def rows(self, values: Sequence[Value]) -> list[int]:
        """The slots of tape values, one for each row."""
        return [self.slots[v] for v in self.bundles.rows(values)]

    def passed(self, region: Region, atoms: Sequence[Atom], targets: Sequence[Value]) -> list[int]:
        """The slots of what a region passes on as `targets`, one for each of their rows."""
        handed = self.cells.blocks[region].handed
        groups = self.bundles.groups(targets)
        return [self.slots[self.bundles.first(tape_of(handed, atoms[g[0]]))] for g in groups]

    def import_(self, value: Value) -> int:
        """Waits for a value that a cell makes."""
        target = self.to.register()
        number = self.bundles.imports.index(self.bundles.of(value))
        self.to.put("IMPORT", target, self.slots[value], number)
        return target

    def region(self, region: Region) -> None:
        for level in self.cells.blocks[region].levels:
            if level.cell is not None:
                self.fire(level.cell)
            for op in sorted(level.ops, key=self._waits):
                self.op(op, region)

    def _waits(self, op: Op) -> int:
        """An order in which no call waits for a computed value that only later ones need."""
        if isinstance(op, Switch):
            return 2
        return int(
            any(a in self.binding.demanded and a not in self.values.registers for a in op.inputs)
        )

    def fire(self, cell: Cell) -> None:
        exports = [self.values.scalar(v) for v in cell.exports]
        inputs = self.rows(cell.inputs)
        outputs = self.made([v for _, v in cell.outputs])
        self.to.put("FIRE", cell.index, exports, inputs, outputs)

    def return_(self, results: Sequence[Value]) -> None:
        self.to.put("RETURN", self.rows(results))

    def op(self, op: Op, region: Region) -> None:
        if isinstance(op, Call):
            self.call(op, region)
        elif isinstance(op, Switch):
            self.switch(op)

    def call(self, op: Call, region: Region) -> None:
        callee = self.graph.functions[op.callee]
        control, data = params_of(callee, self.binding, self.cells, self.needed)
        passed = dict(zip(callee.params, op.inputs, strict=True))
        registers = [self.values.scalar(passed[p]) for p in control]
        arguments = self.passed(region, [passed[p] for p in data], data)
        results = self.made(op.outputs)
        self.to.put("CALL", op.callee, op.site, registers, arguments, results)

    def switch(self, op: Switch) -> None:
        words = self.to.words
        self.to.put("SWITCH", self.values.scalar(op.index), [0] * len(op.regions))
        targets = len(words) - len(op.regions)
        computed = [v for v in op.outputs if v in self.needed and v not in self.binding.imports]
        merged = {v: self.values.fresh(v) for v in computed}
        live = [v for v in op.outputs if v in self.cells.live]
        slots = self.made(live)
        ends = []
        for k, region in enumerate(op.regions):
            words[targets + k] = len(words)
            self._branch(op, region, merged, live, slots)
            self.to.put("JUMP", 0)
            ends.append(len(words) - 1)
        for end in ends:
            words[end] = len(words)

    def _branch(
        self,
        op: Switch,
        region: Region,
        merged: dict[Value, Registers],
        live: Sequence[Value],
        slots: Sequence[int],
    ) -> None:
        """Emits a region; registers filled inside it are not valid outside."""
        before = dict(self.values.registers), dict(self.to.known)
        self.region(region)
        yields = dict(zip(op.outputs, region.results, strict=True))
        sources = self.passed(region, [yields[v] for v in live], live)
        for slot, source in zip(slots, sources, strict=True):
            self.to.put("ALIAS", slot, source)
        for value, targets in merged.items():
            dtype, made = DTYPES[value.aval.dtype.name], self.values.get(yields[value])
            for target, register in zip(each(targets), each(made), strict=True):
                self.to.put("CONVERT", target, dtype, dtype, register)
        self.values.registers, self.to.known = before
