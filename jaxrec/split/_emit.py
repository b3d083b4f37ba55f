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

from jaxrec.graph._ir import (
    Atom,
    Call,
    Const,
    Function,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
)
from jaxrec.split import _scalar
from jaxrec.split._binding import Binding
from jaxrec.split._bundles import Bundles
from jaxrec.split._cells import Cell, Cells
from jaxrec.split._classes import result_values, tape_of
from jaxrec.split._scalar import DTYPES, OPCODES, Registers


@dataclasses.dataclass(frozen=True, eq=False)
class Code:
    """The bytecode of one function."""

    words: tuple[int, ...]
    num_registers: int
    num_slots: int
    control_params: tuple[Value, ...]
    data_params: tuple[Value, ...]


class OuterTable:
    """The outer arrays that the control machine reads, numbered as they are met."""

    def __init__(self, binding: Binding) -> None:
        self._root = binding.outer_of
        self.values: list[Value] = []

    def index(self, value: Value) -> int:
        """The number of an outer or derived array."""
        root = self._root.get(value, value)
        if root not in self.values:
            self.values.append(root)
        return self.values.index(root)


def emit_function(
    graph: Graph,
    function: Function,
    binding: Binding,
    cells: Cells,
    needed: frozenset[Value],
    bundles: Bundles,
    outers: OuterTable,
) -> Code:
    """Compiles a function for the control machine."""
    emitter = _FunctionEmitter(graph, function, binding, cells, needed, bundles, outers)
    emitter.region(function.body)
    emitter.put("RETURN", *emitter.counted(emitter.rows(result_values(function.body, cells))))
    return Code(
        tuple(emitter.words),
        emitter.num_registers,
        emitter.num_slots,
        emitter.control_params,
        emitter.data_params,
    )


def params_of(
    function: Function, binding: Binding, cells: Cells, needed: frozenset[Value]
) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """The parameters that travel in registers and those that travel in tapes."""
    control = tuple(p for p in function.params if p in needed)
    data = tuple(p for p in function.params if p in cells.live and p not in binding.outer_of)
    return control, data


def import_classes(binding: Binding, bundles: Bundles) -> list[int]:
    """The tape classes that control reads."""
    return sorted({bundles.of(value) for value in binding.imports})


class _FunctionEmitter:
    def __init__(
        self,
        graph: Graph,
        function: Function,
        binding: Binding,
        cells: Cells,
        needed: frozenset[Value],
        bundles: Bundles,
        outers: OuterTable,
    ) -> None:
        self.graph, self.binding, self.cells = graph, binding, cells
        self.needed, self.bundles, self.outers = needed, bundles, outers
        self.words: list[int] = []
        self.control_params, self.data_params = params_of(function, binding, cells, needed)
        self.num_registers = len(self.control_params)
        self.num_slots = 0
        self.slots: dict[Value, int] = {}
        self.made(self.data_params)
        self.registers: dict[Value, Registers] = {
            v: _single(k) for k, v in enumerate(self.control_params)
        }
        self.constants: dict[tuple[int, int], int] = {}
        self.imports = import_classes(binding, bundles)

    def put(self, opcode: str, *operands: int) -> None:
        self.words += [OPCODES[opcode], *operands]

    @staticmethod
    def counted(operands: Sequence[int]) -> list[int]:
        """Operands behind their number."""
        return [len(operands), *operands]

    def register(self) -> int:
        self.num_registers += 1
        return self.num_registers - 1

    def fresh(self, shape: tuple[int, ...]) -> Registers:
        """A new register for each element."""
        registers = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            registers[index] = self.register()
        return registers

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

    def emit(self, opcode: str, dtype: Any, *operands: int) -> int:
        target = self.register()
        self.put(opcode, target, DTYPES[np.dtype(dtype).name], *operands)
        return target

    def constant(self, value: Any, dtype: Any) -> int:
        bits = _scalar.bits(value, np.dtype(dtype))
        key = (DTYPES[np.dtype(dtype).name], bits)
        if key not in self.constants:
            self.constants[key] = self.emit("CONST", dtype, bits)
        return self.constants[key]

    # Control values.

    def control(self, atom: Atom) -> Registers:
        """Registers with the elements of a control value, computed here if they are not yet."""
        todo: list[Atom] = [atom]
        while todo:
            missing = [a for a in self._operands(todo[-1]) if not self._is_ready(a)]
            if missing:
                todo += missing
            else:
                self._compute(todo.pop())
        return self._ready(atom)

    def scalar(self, atom: Atom) -> int:
        return int(self.control(atom)[()])

    def _is_ready(self, atom: Atom) -> bool:
        return isinstance(atom, Const) or atom in self.registers

    def _ready(self, atom: Atom) -> Registers:
        if isinstance(atom, Const):
            filled = np.full(atom.aval.shape, None, dtype=object)
            values = np.broadcast_to(np.asarray(atom.value), atom.aval.shape)
            for index in np.ndindex(*atom.aval.shape):
                filled[index] = self.constant(values[index], atom.aval.dtype)
            return filled
        return self.registers[atom]

    def _operands(self, atom: Atom) -> Sequence[Atom]:
        if self._is_ready(atom) or self.binding.is_array(atom) or atom in self.binding.imports:
            return ()
        op = self.graph.makers[atom]  # type: ignore[index]
        assert isinstance(op, Prim)
        return op.inputs[1:] if self.binding.is_load(op) else op.inputs

    def _compute(self, atom: Atom) -> None:
        if self._is_ready(atom):
            return
        assert isinstance(atom, Value)
        if self.binding.is_array(atom):
            self.registers[atom] = self._load(atom, [], atom.aval.shape)
            return
        if atom in self.binding.imports:
            self.registers[atom] = _single(self._import(atom))
            return
        op = self.graph.makers[atom]
        assert isinstance(op, Prim)
        if self.binding.is_load(op):
            indices = [self._ready(a) for a in op.inputs[1:]]
            starts = _scalar.starts_of(op, indices, self.binding.deciding, self)
            self.registers[atom] = self._load(op.inputs[0], starts, op.eqn.params["slice_sizes"])
        else:
            args = [self._ready(a) for a in op.inputs]
            self.registers[atom] = _scalar.compile_op(op, args, self)

    def _import(self, value: Value) -> int:
        """Waits for a value that a cell makes."""
        target = self.register()
        number = self.imports.index(self.bundles.of(value))
        self.put("IMPORT", target, self.slots[value], number)
        return target

    def _load(self, array: Atom, starts: Sequence[int], sizes: Sequence[int]) -> Registers:
        """Loads a block of an outer array; an axis taken whole needs no start."""
        assert isinstance(array, Value)
        outer, result = self.outers.index(array), np.empty(tuple(sizes), dtype=object)
        for index in np.ndindex(*result.shape):
            where = [
                self._index(starts[axis] if starts else None, k, _is_whole(array, axis, sizes))
                for axis, k in enumerate(index)
            ]
            target = self.register()
            self.put("LOAD", target, outer, *self.counted(where))
            result[index] = target
        return result

    def _index(self, start: int | None, offset: int, whole: bool) -> int:
        if whole or start is None:
            return self.constant(offset, np.int64)
        if offset == 0:
            return start
        return self.emit("ADD", np.int64, start, self.constant(offset, np.int64))

    # The dataflow between cells and calls.

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
        return int(any(a in self.binding.demanded and a not in self.registers for a in op.inputs))

    def fire(self, cell: Cell) -> None:
        exports = [self.scalar(v) for v in cell.exports]
        inputs = self.rows(cell.inputs)
        outputs = self.made([v for _, v in cell.outputs])
        counted = self.counted
        self.put("FIRE", cell.index, *counted(exports), *counted(inputs), *counted(outputs))

    def op(self, op: Op, region: Region) -> None:
        if isinstance(op, Call):
            self.call(op, region)
        elif isinstance(op, Switch):
            self.switch(op)

    def call(self, op: Call, region: Region) -> None:
        callee = self.graph.functions[op.callee]
        control, data = params_of(callee, self.binding, self.cells, self.needed)
        passed = dict(zip(callee.params, op.inputs, strict=True))
        registers = [self.scalar(passed[p]) for p in control]
        arguments = self.passed(region, [passed[p] for p in data], data)
        results = self.made(op.outputs)
        counted = self.counted
        self.put(
            "CALL", op.callee, op.site, *counted(registers), *counted(arguments), *counted(results)
        )

    def switch(self, op: Switch) -> None:
        index = self.scalar(op.index)
        self.put("SWITCH", index, *self.counted([0] * len(op.regions)))
        targets = len(self.words) - len(op.regions)
        computed = [v for v in op.outputs if v in self.needed and v not in self.binding.imports]
        merged = {v: self.fresh(v.aval.shape) for v in computed}
        live = [v for v in op.outputs if v in self.cells.live]
        slots = self.made(live)
        ends = []
        for k, region in enumerate(op.regions):
            self.words[targets + k] = len(self.words)
            self._branch(op, region, merged, live, slots)
            self.put("JUMP", 0)
            ends.append(len(self.words) - 1)
        for end in ends:
            self.words[end] = len(self.words)
        self.registers.update(merged)

    def _branch(
        self,
        op: Switch,
        region: Region,
        merged: dict[Value, Registers],
        live: Sequence[Value],
        slots: Sequence[int],
    ) -> None:
        """Emits a region; registers filled inside it are not valid outside."""
        before = dict(self.registers), dict(self.constants)
        self.region(region)
        yields = dict(zip(op.outputs, region.results, strict=True))
        sources = self.passed(region, [yields[v] for v in live], live)
        for slot, source in zip(slots, sources, strict=True):
            self.put("ALIAS", slot, source)
        for value, registers in merged.items():
            dtype, made = DTYPES[value.aval.dtype.name], self.control(yields[value])
            for index in np.ndindex(*registers.shape):
                self.put("CONVERT", int(registers[index]), dtype, dtype, int(made[index]))
        self.registers, self.constants = before


def _is_whole(array: Value, axis: int, sizes: Sequence[int]) -> bool:
    """Whether a block takes all of an axis, and its start is not looked at."""
    return array.aval.shape[axis] == sizes[axis] != 1


def _single(register: int) -> Registers:
    result = np.empty((), dtype=object)
    result[()] = register
    return result
