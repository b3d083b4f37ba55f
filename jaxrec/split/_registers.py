"""Control values in registers of the control machine, each computed where it is first needed.

What only one branch needs is so computed in that branch alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from jaxrec.graph._ir import Atom, Const, Op, Prim, Value
from jaxrec.split import _native_ops, _scalar
from jaxrec.split._binding import Arrays
from jaxrec.split._scalar import Registers


class Assembler(_scalar.Emitter, Protocol):
    """The code of a function, to which control values are appended."""

    def register(self) -> int:
        """A new register."""
        ...

    def load(self, array: Value, number: int, where: Sequence[int]) -> int:
        """Appends a read of one element of an array and returns the register that it fills."""
        ...


class ArrayTable:
    """The outer arrays that the control machine reads, numbered as they are met."""

    def __init__(self, arrays: Arrays) -> None:
        self._root = arrays.outer_of
        self.values: list[Value] = []

    def index(self, array: Value) -> int:
        """The number of an outer or derived array."""
        root = self._root.get(array, array)
        if root not in self.values:
            self.values.append(root)
        return self.values.index(root)


class ControlValues:
    """The control values of one function.

    Args:
        makers: the operation that each value is a result of.
        arrays: which values are arrays that all calls read.
        deciding: the values that decide calls, which are read at indices in range alone.
        table: the numbers of the arrays.
        to: the code that grows.
        imports: values that cells make.
        read: what appends a read of such a value and returns the register that it fills.
        tangents: the values that are tangents.
    """

    def __init__(
        self,
        makers: Mapping[Value, Op],
        arrays: Arrays,
        deciding: frozenset[Value],
        table: ArrayTable,
        to: Assembler,
        imports: frozenset[Value] = frozenset(),
        read: Callable[[Value], int] | None = None,
        tangents: frozenset[Atom] = frozenset(),
    ) -> None:
        self._makers, self._arrays, self._deciding = makers, arrays, deciding
        self._table, self._to = table, to
        self._imports, self._read, self._tangents = imports, read, tangents
        self.registers: dict[Value, Registers] = {}

    def get(self, atom: Atom) -> Registers:
        """Registers with the elements of a value, computed here if they are not yet."""
        todo: list[Atom] = [atom]
        while todo:
            missing = [a for a in self.operands(todo[-1]) if not self.is_ready(a)]
            if missing:
                todo += missing
            else:
                self._compute(todo.pop())
        return self._ready(atom)

    def scalar(self, atom: Atom) -> int:
        """The register of a scalar."""
        return int(self.get(atom)[()])

    def fresh(self, value: Value) -> Registers:
        """New registers for the elements of a value."""
        self.registers[value] = shaped([self._to.register() for _ in range(value.aval.size)], value)
        return self.registers[value]

    def is_ready(self, atom: Atom) -> bool:
        """Whether nothing has to be computed for a value."""
        return isinstance(atom, Const) or atom in self.registers

    def operands(self, atom: Atom) -> Sequence[Atom]:
        """The control values that a value would be computed from here."""
        if self.is_ready(atom) or self._arrays.is_array(atom) or atom in self._imports:
            return ()
        op = self._makers[atom]  # type: ignore[index]
        assert isinstance(op, Prim)
        return op.inputs[1:] if self._arrays.is_load(op) else op.inputs

    def _ready(self, atom: Atom) -> Registers:
        if isinstance(atom, Const):
            elements = np.broadcast_to(np.asarray(atom.value), atom.aval.shape).flat
            return shaped([self._to.constant(x, atom.aval.dtype) for x in elements], atom)
        return self.registers[atom]

    def _compute(self, atom: Atom) -> None:
        if self.is_ready(atom):
            return
        assert isinstance(atom, Value)
        if self._arrays.is_array(atom):
            self.registers[atom] = self._load(atom, [], atom.aval.shape)
        elif atom in self._imports:
            assert self._read is not None
            self.registers[atom] = shaped([self._read(atom)], atom)
        else:
            op = self._makers[atom]
            assert isinstance(op, Prim)
            self.registers.update(zip(op.outputs, self._results(op), strict=True))

    def _results(self, op: Prim) -> Sequence[Registers]:
        if not self._arrays.is_load(op):
            tangents = [atom in self._tangents for atom in op.inputs]
            return _native_ops.compile_op(op, list(map(self._ready, op.inputs)), tangents, self._to)
        array = op.inputs[0]
        assert isinstance(array, Value)
        indices = [self._ready(a) for a in op.inputs[1:]]
        starts = _scalar.starts_of(op, indices, self._deciding, self._to)
        types = [a.aval.dtype for a in op.inputs[1:]]
        return [self._load(array, starts, op.eqn.params["slice_sizes"], types)]

    def _load(
        self,
        array: Value,
        starts: Sequence[int],
        sizes: Sequence[int],
        types: Sequence[np.dtype[Any]] = (),
    ) -> Registers:
        """Loads a block of an outer array; an axis taken whole needs no start."""
        # Where the last number of the type ends the sum is below 0, which is out of range too.
        dtype = np.int32 if all(np.can_cast(t, np.int32) for t in types) else np.int64
        number, result = self._table.index(array), np.empty(tuple(sizes), dtype=object)
        for index in np.ndindex(*result.shape):
            where = []
            for axis, offset in enumerate(index):
                whole = not starts or array.aval.shape[axis] == sizes[axis] != 1
                where.append(self._index(None if whole else starts[axis], offset, dtype))
            result[index] = self._to.load(array, number, where)
        return result

    def _index(self, start: int | None, offset: int, dtype: Any) -> int:
        if start is not None and offset == 0:
            return start
        constant = self._to.constant(offset, dtype)
        return constant if start is None else self._to.emit("ADD", dtype, start, constant)


def each(registers: Registers) -> list[int]:
    """The registers of the elements of a value, in row-major order."""
    return [int(r) for r in registers.ravel()]


def shaped(registers: Sequence[int], atom: Atom) -> Registers:
    """Registers, one for each element of a value, in its shape."""
    result = np.empty(len(registers), dtype=object)
    result[:] = list(registers)
    return result.reshape(atom.aval.shape)
