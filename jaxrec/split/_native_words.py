"""From instructions of a native program to words: what is needless left out, registers, encoding.

Only loops jump back, so code order is an order of time: a register lives from the first instruction
that writes it to the last that reads it, or to the end of a loop around that. So linear scan
allocation is exact enough.

Source: Poletto & Sarkar, "Linear scan register allocation", TOPLAS 21(5), 1999.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Sequence

from jaxrec import _core
from jaxrec.split._native_code import Instr
from jaxrec.split._scalar import DTYPES, OPCODES, bits

_FORMS: dict[str, int] = _core.native_forms()


def finish(code: Sequence[Instr], num_params: int) -> tuple[list[int], int]:
    """Improves, allocates and encodes a function.

    Returns:
        Its words, and the number of registers that it needs.
    """
    kept = _without_moves(_without_dead(code))
    kept = _without_empty_jumps(kept)
    numbers, size = _allocate(kept, num_params)
    return _encode(kept, numbers), size


def _without_dead(code: Sequence[Instr]) -> list[Instr]:
    """Leaves out instructions that only fill registers that nobody reads."""
    read: set[int] = set()
    kept: list[Instr] = []
    for instr in reversed(code):
        lives = not instr.writes or instr.form == "CALL"
        if lives or not read.isdisjoint(instr.writes):
            kept.append(instr)
            read.update(instr.reads)
    return kept[::-1]


def _without_moves(code: Sequence[Instr]) -> list[Instr]:
    """Fills the register of a merge at once where a branch computes a value only to move it."""
    reads = collections.Counter(register for instr in code for register in instr.reads)
    renamed: dict[int, int] = {}
    kept = []
    for instr in code:
        if instr.form == "MOVE":
            (source,), (is_own,) = instr.reads, instr.detail
            if is_own and reads[source] == 1:
                renamed[source] = instr.writes[0]
                continue
        kept.append(instr)

    def final(register: int) -> int:
        while register in renamed:
            register = renamed[register]
        return register

    for instr in kept:
        instr.writes = tuple(map(final, instr.writes))
        instr.reads = tuple(map(final, instr.reads))
    return kept


def _without_empty_jumps(code: Sequence[Instr]) -> list[Instr]:
    """Leaves out jumps to what comes next anyway."""
    kept: list[Instr] = []
    next_labels: set[int] = set()
    for instr in reversed(code):
        if instr.form == "JUMP" and instr.targets[0] in next_labels:
            continue
        next_labels = next_labels | {instr.detail[0]} if instr.form == "LABEL" else set()
        kept.append(instr)
    return kept[::-1]


def _allocate(code: Sequence[Instr], num_params: int) -> tuple[dict[int, int], int]:
    last = _last_uses(code, num_params)
    numbers = {k: k for k in range(num_params)}
    free: list[int] = []
    size = num_params
    ends: dict[int, list[int]] = {}
    for register, at in last.items():
        ends.setdefault(at, []).append(register)
    for k in range(num_params):
        if k not in last:
            heapq.heappush(free, k)
    for at, instr in enumerate(code):
        ending = ends.get(at, ())
        # What is read here for the last time makes room for what is written here.
        for register in ending:
            if register in instr.reads and register not in instr.writes:
                heapq.heappush(free, numbers[register])
        for register in instr.writes:
            if register not in numbers:
                if not free:
                    free.append(size)
                    size += 1
                numbers[register] = heapq.heappop(free)
        for register in ending:
            if register in instr.writes:
                heapq.heappush(free, numbers[register])
    return numbers, size


def _last_uses(code: Sequence[Instr], num_params: int) -> dict[int, int]:
    """Where each register is used for the last time."""
    first = dict.fromkeys(range(num_params), -1)
    last: dict[int, int] = {}
    places: dict[int, int] = {}
    for at, instr in enumerate(code):
        for register in (*instr.writes, *instr.reads):
            first.setdefault(register, at)
            last[register] = at
        if instr.form == "LABEL":
            places[instr.detail[0]] = at
        if instr.form == "LOOP":  # what was there before is read again in the next turn
            begin = places[instr.targets[0]]
            again = [r for r, end in last.items() if first[r] < begin < end]
            last.update(dict.fromkeys(again, at))
    return last


def _encode(code: Sequence[Instr], numbers: dict[int, int]) -> list[int]:
    words: list[int] = []
    places: dict[int, int] = {}
    patches: list[tuple[int, int]] = []
    for instr in code:
        if instr.form == "LABEL":
            places[instr.detail[0]] = len(words)
            continue
        words.append(_FORMS[instr.form])
        words += _operands(instr, numbers)
        if instr.form == "SWITCH":
            words.append(len(instr.targets))
        for target in instr.targets:
            patches.append((len(words), target))
            words.append(0)
    for at, target in patches:
        words[at] = places[target]
    return words


def _operands(instr: Instr, numbers: dict[int, int]) -> list[int]:
    """The words between an instruction's form and its targets."""
    writes = [numbers[r] for r in instr.writes]
    reads = [numbers[r] for r in instr.reads]
    detail = instr.detail
    match instr.form:
        case "CONST":
            return [*writes, DTYPES[detail[0].name], bits(detail[1], detail[0])]
        case "CONVERT":
            return [*writes, *(DTYPES[d.name] for d in detail), *reads]
        case "UNARY" | "BINARY" | "COMPARE":
            return [OPCODES[detail[0]], *writes, DTYPES[detail[1].name], *reads]
        case "BINARY_IMM" | "COMPARE_IMM":
            opcode, dtype, value = detail
            return [OPCODES[opcode], *writes, DTYPES[dtype.name], *reads, bits(value, dtype)]
        case "WRAP":
            return [*writes, DTYPES[detail[0].name], *reads, bits(detail[1], detail[0])]
        case "LOAD":
            return [*writes, detail[0], len(reads), *reads]
        case "CALL":
            return [*detail, len(reads), *reads, len(writes), *writes]
        case "RETURN":
            return [len(reads), *reads]
        case "LOOP":
            return []
        case "RETURN_IMM":
            return [DTYPES[detail[0].name], bits(detail[1], detail[0])]
    return [*writes, *reads]
