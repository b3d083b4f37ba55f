"""Code of native scalar programs: instructions on virtual registers.

There are as many registers as values, each written by one instruction, except those that merge the
branches of a choice and those that a loop carries. `_native_words` gives them numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxrec import _core
from jaxrec.graph._ir import Value
from jaxrec.split._scalar import DTYPES, OPCODES, bits, value_of

_NAMES = {code: name for name, code in DTYPES.items()}

_COMPARISONS = {"EQ": "EQ", "NE": "NE", "LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}
"""Each with the comparison of the operands in the other order."""

_SAME = {("AND", True), ("OR", False), ("XOR", False), ("EQ", True), ("NE", False)}
"""What leaves a boolean as it is."""

_COMMUTATIVE = {"ADD", "MUL", "AND", "OR", "XOR"}
_HOT: dict[str, list[str]] = _core.native_instructions()
"""By element type, the operations with instructions of their own: these take immediates."""


@dataclasses.dataclass(slots=True)
class Instr:
    """An instruction on virtual registers.

    Attributes:
        form: its name in the encoding, or LABEL, which marks a place.
        writes: registers that it fills.
        reads: registers that it reads.
        detail: operations, types and immediates, by form.
        targets: labels that it may jump to.
    """

    form: str
    writes: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    detail: tuple[Any, ...] = ()
    targets: tuple[int, ...] = ()


class Builder:
    """The instructions of one function; an `Assembler` of `_registers`.

    Constants are registers that nothing fills: they become immediates where they can, and are
    loaded where they are read otherwise.
    """

    def __init__(self, num_params: int) -> None:
        self.code: list[Instr] = []
        self.num_params = num_params
        self.num_registers = num_params
        self._labels = 0
        self._constants: dict[int, tuple[np.dtype[Any], Any]] = {}
        self._made: dict[int, Instr] = {}
        self._bools: set[int] = set()

    def register(self) -> int:
        """A new register."""
        self.num_registers += 1
        return self.num_registers - 1

    def label(self) -> int:
        """A new label, to be placed."""
        self._labels += 1
        return self._labels - 1

    def place(self, label: int) -> None:
        """Marks this place of the code."""
        self.code.append(Instr("LABEL", detail=(label,)))

    def add(
        self,
        form: str,
        writes: Sequence[int] = (),
        reads: Sequence[int] = (),
        detail: Sequence[Any] = (),
        targets: Sequence[int] = (),
    ) -> None:
        """Appends an instruction, after those that load the constants it reads."""
        instr = Instr(form, tuple(writes), self.loaded(reads), tuple(detail), tuple(targets))
        for register in writes:
            self._made[register] = instr
        self.code.append(instr)

    def loaded(self, registers: Iterable[int]) -> tuple[int, ...]:
        """Registers that hold the same, behind the instructions that load what is constant."""
        return tuple(map(self._loaded, registers))

    def move(self, target: int, source: int, start: int) -> None:
        """Appends a copy to the register of a merge, at the end of a branch.

        Args:
            target: the register of the merge.
            source: the one that is copied.
            start: how many registers there were where the branch begins. What is computed before
                may be copied in another branch too.
        """
        source = self._loaded(source)
        self.add("MOVE", (target,), (source,), (source >= start,))

    def copy_all(self, copies: Mapping[int, int], start: int) -> None:
        """Appends copies to registers that a loop carries, as if all were made at once.

        Args:
            copies: for each register that is filled, the one that is copied.
            start: where the code of the turn begins.
        """
        for target, source in copies.items():
            if source in copies and source != target:
                temporary = self.register()
                self.add("MOVE", (temporary,), (source,), (False,))
                copies = {**copies, target: temporary}
        for target, source in copies.items():
            if source != target:
                own = self._may_fill(target, source, start)
                self.add("MOVE", (target,), (source,), (own,))

    def _may_fill(self, target: int, source: int, start: int) -> bool:
        """Whether what a turn computes could be put at once where the next turn finds it."""
        for instr in reversed(self.code[start:]):
            if source in instr.writes:
                return True
            is_passed = instr.form != "LABEL" and not instr.targets
            if not is_passed or target in (*instr.reads, *instr.writes):
                return False
        return False

    def constant(self, value: Any, dtype: Any) -> int:
        """A register that holds a constant."""
        register = self.register()
        dtype = np.dtype(dtype)
        self._constants[register] = (dtype, np.asarray(value).astype(dtype))
        return register

    def known(self, register: int) -> Any:
        """The value of a constant, or None."""
        return self._constants[register][1] if register in self._constants else None

    def mark_bool(self, register: int) -> None:
        """Notes that a register holds 0 or 1."""
        self._bools.add(register)

    def emit(self, opcode: str, dtype: Any, *operands: int) -> int:
        """Appends an operation and returns the register of its result."""
        dtype = np.dtype(dtype)
        if opcode == "CONVERT":
            return self._convert(dtype, np.dtype(_NAMES[operands[0]]), operands[1])
        if opcode == "SELECT":
            return self._select(dtype, *operands)
        if all(operand in self._constants for operand in operands):
            return self._evaluated(opcode, dtype, operands)
        if len(operands) == 1:
            return self._result("UNARY", opcode, dtype, operands, ())
        return self._binary(opcode, dtype, *operands)

    def load(self, array: Value, number: int, where: Sequence[int]) -> int:
        """Appends a read of an element of an array and returns the register that it fills."""
        target = self.register()
        self.add("LOAD", (target,), where, (number,))
        if array.aval.dtype == np.dtype(bool):
            self.mark_bool(target)
        return target

    def branch(self, index: int, target: int) -> bool:
        """Jumps if a register holds more than 0; returns whether the sense is reversed."""
        made = self._made.get(index)
        if made is not None and made.form == "UNARY" and made.detail == ("NOT", np.dtype(bool)):
            return not self.branch(made.reads[0], target)
        if made is not None and made.form in ("BINARY", "BINARY_IMM"):
            opcode, dtype, *immediate = made.detail
            if opcode in _COMPARISONS and self._fits_branch(dtype, immediate):
                form = "COMPARE_IMM" if immediate else "COMPARE"
                self.add(form, (), made.reads, made.detail, (target,))
                return False
        if index in self._bools:
            self.add("BRANCH", (), (index,), (), (target,))
        else:
            self.add("COMPARE_IMM", (), (index,), ("GT", np.dtype(np.int64), 0), (target,))
        return False

    @staticmethod
    def _fits_branch(dtype: np.dtype[Any], immediate: Sequence[Any]) -> bool:
        if dtype.name not in _HOT:
            return False
        if not immediate or dtype == np.float32:
            return True
        value = immediate[0]
        if dtype == np.float64:  # kept as a float32, of which the machine has no denormal ones
            with np.errstate(over="ignore", under="ignore"):
                narrow = np.float32(value)
            is_normal = abs(narrow) >= np.finfo(np.float32).tiny or value == 0
            return bool(narrow == value and is_normal)
        return -(2**31) <= int(value) < 2**31

    def _loaded(self, register: int) -> int:
        if register not in self._constants:
            return register
        target = self.register()
        self.code.append(Instr("CONST", (target,), (), self._constants[register]))
        return target

    def _result(
        self,
        form: str,
        opcode: str,
        dtype: np.dtype[Any],
        reads: Sequence[int],
        immediate: Sequence[Any],
    ) -> int:
        target = self.register()
        self.add(form, (target,), reads, (opcode, dtype, *immediate))
        if opcode in _COMPARISONS or opcode == "IS_FINITE" or dtype == np.dtype(bool):
            self._bools.add(target)
        return target

    def _evaluated(self, opcode: str, dtype: np.dtype[Any], operands: Sequence[int]) -> int:
        """The constant that an operation makes of constants."""
        words = [bits(self.known(operand), dtype) for operand in operands]
        word = _core.evaluate(OPCODES[opcode], DTYPES[dtype.name], *words)
        is_bool = opcode in _COMPARISONS or opcode == "IS_FINITE"
        made = np.dtype(bool) if is_bool else dtype
        return self.constant(value_of(word, made), made)

    def _convert(self, to: np.dtype[Any], source: np.dtype[Any], register: int) -> int:
        value = self.known(register)
        if value is not None:
            word = _core.convert(DTYPES[to.name], DTYPES[source.name], bits(value, source))
            return self.constant(value_of(word, to), to)
        if _holds(to, source):
            return register
        target = self.register()
        self.add("CONVERT", (target,), (register,), (to, source))
        if to == np.dtype(bool):
            self._bools.add(target)
        return target

    def _select(self, dtype: np.dtype[Any], which: int, a: int, b: int) -> int:
        if which in self._constants:
            return b if self.known(which) else a
        size = self._wraps(dtype, which, a, b)
        target = self.register()
        if size is not None:
            self.add("WRAP", (target,), (a,), (dtype, size))
        else:
            self.add("SELECT", (target,), (which, a, b))
        if dtype == np.dtype(bool):
            self._bools.add(target)
        return target

    def _wraps(self, dtype: np.dtype[Any], which: int, a: int, b: int) -> Any:
        """The size of the axis, if this chooses `a + size` for an index `a` below 0.

        A register is also read as of another integer type, where it is the same as it stands.
        """
        test, moved = self._made.get(which), self._made.get(b)
        if test is None or moved is None or {test.form, moved.form} != {"BINARY_IMM"}:
            return None
        (below, tested, zero), (add, added, size) = test.detail, moved.detail
        is_index = dtype.name in ("int32", "int64") and test.reads == moved.reads == (a,)
        is_index = is_index and tested == added == dtype
        return size if is_index and (below, add, int(zero)) == ("LT", "ADD", 0) else None

    def _binary(self, opcode: str, dtype: np.dtype[Any], a: int, b: int) -> int:
        left, right = self.known(a), self.known(b)
        if left is not None and right is None:
            if opcode == "MUL" and left == 1:
                return b
            if opcode in _COMMUTATIVE or opcode in _COMPARISONS:
                return self._binary(_COMPARISONS.get(opcode, opcode), dtype, b, a)
        if right is not None and left is None:
            if opcode in ("MUL", "DIV") and right == 1:
                return a
            if dtype == np.dtype(bool) and (opcode, bool(right)) in _SAME:
                return a
            if opcode in _HOT.get(dtype.name, ()):
                return self._result("BINARY_IMM", opcode, dtype, (a,), (right,))
        return self._result("BINARY", opcode, dtype, (a, b), ())


def _holds(to: np.dtype[Any], source: np.dtype[Any]) -> bool:
    """Whether a register of one integer type is one of another as it stands: see arith.h."""
    if to == source:
        return True
    if "f" in (to.kind, source.kind) or to.kind == "b":
        return False
    if source.kind == "i":
        return to.itemsize == 8 or (to.kind == "i" and to.itemsize > source.itemsize)
    return to.itemsize > source.itemsize or to.itemsize == 8
