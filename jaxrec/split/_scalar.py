"""The language of the control machine: which JAX operations it runs, and as what instructions.

A small array of the control plane is a NumPy object array with a register number in each element,
so that structural operations (reshape, slice, concatenate) move registers at compile time and cost
nothing at run time. Arithmetic becomes one instruction an element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from jax.core import ShapedArray

from jaxrec import _core
from jaxrec._jaxprs import MOVES
from jaxrec.graph._ir import Prim, Value

MAX_ELEMENTS = 64
"""The largest control array, in elements; larger ones belong to the data plane."""

DTYPES: dict[str, int] = _core.dtypes()
"""Codes of the types of registers."""

OPCODES: dict[str, int] = _core.opcodes()
"""Codes of instructions."""

Registers = np.ndarray[Any, np.dtype[np.object_]]


class Emitter(Protocol):
    """What compiling an operation needs: fresh registers and a place for instructions."""

    def emit(self, opcode: str, dtype: Any, *operands: int) -> int:
        """Appends an instruction and returns the register that it fills."""
        ...

    def constant(self, value: Any, dtype: Any) -> int:
        """A register that holds a constant."""
        ...


_UNARY = {
    "neg": "NEG",
    "not": "NOT",
    "abs": "ABS",
    "sign": "SIGN",
    "sqrt": "SQRT",
    "floor": "FLOOR",
    "ceil": "CEIL",
    "is_finite": "IS_FINITE",
    "population_count": "POPCNT",
    "clz": "CLZ",
}
_BINARY = {
    "add": "ADD",
    "add_any": "ADD",
    "sub": "SUB",
    "mul": "MUL",
    "div": "DIV",
    "rem": "REM",
    "min": "MIN",
    "max": "MAX",
    "and": "AND",
    "or": "OR",
    "xor": "XOR",
    "shift_left": "SHL",
    "shift_right_arithmetic": "SHRA",
    "shift_right_logical": "SHRL",
    "eq": "EQ",
    "ne": "NE",
    "lt": "LT",
    "le": "LE",
    "gt": "GT",
    "ge": "GE",
}
_REDUCE = {
    "reduce_sum": "ADD",
    "reduce_prod": "MUL",
    "reduce_max": "MAX",
    "reduce_min": "MIN",
    "reduce_and": "AND",
    "reduce_or": "OR",
    "reduce_xor": "XOR",
}
_STRUCTURAL = MOVES | {"stack", "iota", "stop_gradient", "optimization_barrier"}
_SPECIAL = {
    "select_n",
    "convert_element_type",
    "integer_pow",
    "square",
    "one_minus_square",
    "polynomial",
    "clamp",
    "round",
    "dynamic_slice",
}
_IN_ORDER = 32
"""Elements that XLA's program for CPU reduces in their order."""

_KNOWN = {*_UNARY, *_BINARY, *_REDUCE, *_STRUCTURAL, *_SPECIAL}


def fits(aval: ShapedArray) -> bool:
    """Whether a value of this type can live in registers of the control machine."""
    return aval.dtype.name in DTYPES and aval.size <= MAX_ELEMENTS


def is_known(op: Prim) -> bool:
    """Whether the control machine can compute an operation on register arrays."""
    if op.name in _REDUCE and not _is_reduced_in_order(op):
        return False
    return op.name in _KNOWN and len(op.outputs) == 1 and fits(op.outputs[0].aval)


def _is_reduced_in_order(op: Prim) -> bool:
    """Whether XLA reduces one element after the other: where numbers round, only if they are few.

    It adds the elements of a longer row in several sums.
    """
    operand, result = op.inputs[0].aval, op.outputs[0].aval
    rounds = op.name in ("reduce_sum", "reduce_prod")
    if rounds and operand.dtype.kind == "f":
        return 0 < operand.size <= _IN_ORDER * max(result.size, 1)
    return operand.size > 0


def compile_op(op: Prim, args: Sequence[Registers], to: Emitter) -> Registers:
    """Emits the instructions of an operation and returns the registers of its result."""
    if op.name in _STRUCTURAL:
        return _structural(op, args, to)
    if op.name in _SPECIAL:
        return _special(op, args, to)
    dtype = op.inputs[0].aval.dtype
    if op.name in _REDUCE:
        return _reduce(op, args[0], dtype, to)
    opcode = _UNARY.get(op.name) or _BINARY[op.name]
    return each_register(lambda *regs: to.emit(opcode, dtype, *regs), *args)


def each_register(fun: Callable[..., int], *args: Registers) -> Registers:
    """The registers that a function gives for those of each element."""
    return np.asarray(np.frompyfunc(fun, len(args), 1)(*args), dtype=object)


def _structural(op: Prim, args: Sequence[Registers], to: Emitter) -> Registers:
    params, out = op.eqn.params, op.outputs[0].aval
    if op.name == "iota":
        index = np.broadcast_to(
            np.arange(out.shape[params["dimension"]]).reshape(
                [-1 if k == params["dimension"] else 1 for k in range(out.ndim)]
            ),
            out.shape,
        )
        return each_register(lambda k: to.constant(k, out.dtype), index.astype(object))
    if op.name == "concatenate":
        return np.concatenate(list(args), axis=params["dimension"])
    if op.name == "stack":
        return np.stack(list(args), axis=params["axis"])
    (x,) = args
    if op.name == "broadcast_in_dim":
        kept = [1] * out.ndim
        for axis, to_axis in enumerate(params["broadcast_dimensions"]):
            kept[to_axis] = x.shape[axis]
        return np.broadcast_to(x.reshape(kept), out.shape)
    if op.name == "transpose":
        return x.transpose(params["permutation"])
    if op.name == "rev":
        return np.flip(x, params["dimensions"])
    if op.name == "slice":
        steps = params["strides"] or (1,) * x.ndim
        bounds = zip(params["start_indices"], params["limit_indices"], steps, strict=True)
        return x[tuple(slice(*bound) for bound in bounds)]
    if op.name == "reshape" and params["dimensions"] is not None:
        x = x.transpose(params["dimensions"])
    return x.reshape(out.shape)


def _special(op: Prim, args: Sequence[Registers], to: Emitter) -> Registers:
    params, dtype = op.eqn.params, op.outputs[0].aval.dtype
    if op.name == "select_n":
        return _select(args, dtype, to)
    if op.name == "convert_element_type":
        return converted(args[0], op.inputs[0].aval.dtype, dtype, to)
    if op.name == "clamp":
        low, x, high = args
        return each_register(
            lambda lo, r, hi: to.emit("MIN", dtype, to.emit("MAX", dtype, lo, r), hi), low, x, high
        )
    if op.name == "round":
        opcode = "ROUND" if int(params["rounding_method"]) == 0 else "ROUND_EVEN"
        return each_register(lambda r: to.emit(opcode, dtype, r), args[0])
    if op.name == "dynamic_slice":
        return _dynamic_slice(op, args, to)
    if op.name == "one_minus_square":
        return each_register(lambda r: _one_minus_square(r, dtype, to), args[0])
    if op.name == "polynomial":
        return _polynomial([np.broadcast_to(x, op.outputs[0].aval.shape) for x in args], dtype, to)
    power = 2 if op.name == "square" else params["y"]
    return each_register(lambda r: _power(r, power, dtype, to), args[0])


def _one_minus_square(x: int, dtype: Any, to: Emitter) -> int:
    """As JAX factors it, which loses fewer digits near one."""
    one = to.constant(1, dtype)
    return to.emit("MUL", dtype, to.emit("ADD", dtype, one, x), to.emit("SUB", dtype, one, x))


def _polynomial(args: Sequence[Registers], dtype: Any, to: Emitter) -> Registers:
    """The rule of Horner: the argument, then the coefficients from that of degree zero on."""
    x, *coefficients, result = args
    for c in reversed(coefficients):
        product = each_register(lambda a, b: to.emit("MUL", dtype, a, b), result, x)
        result = each_register(lambda a, b: to.emit("ADD", dtype, a, b), product, c)
    return result


def converted(x: Registers, source: Any, dtype: Any, to: Emitter) -> Registers:
    """Numbers of one element type as those of another."""
    if source == dtype:
        return x
    return each_register(lambda r: to.emit("CONVERT", dtype, DTYPES[source.name], r), x)


def _select(args: Sequence[Registers], dtype: Any, to: Emitter) -> Registers:
    which, *cases = args
    result = cases[0]
    for k, case in enumerate(cases[1:], start=1):
        if len(cases) == 2:
            chosen = which
        else:
            chosen = each_register(
                lambda w, k=k: to.emit("EQ", np.int32, w, to.constant(k, np.int32)), which
            )
        result = selected(chosen, result, case, dtype, to)
    return result


def selected(which: Any, no: Registers, yes: Registers, dtype: Any, to: Emitter) -> Registers:
    """The elements of one of two arrays, as registers of booleans say or one for all."""
    return each_register(lambda w, a, b: to.emit("SELECT", dtype, w, a, b), which, no, yes)


def _dynamic_slice(op: Prim, args: Sequence[Registers], to: Emitter) -> Registers:
    """A block of a register array; an index out of range is clamped."""
    x, dtype = args[0], op.outputs[0].aval.dtype
    for axis, (start, size) in enumerate(
        zip(op.inputs[1:], op.eqn.params["slice_sizes"], strict=True)
    ):
        x = taken(x, axis, size, int(args[axis + 1][()]), start.aval.dtype, dtype, to)
    return x


def taken(
    x: Registers, axis: int, size: int, start: int, index_type: Any, dtype: Any, to: Emitter
) -> Registers:
    """A block along an axis: that with the largest start not above the index, or the first."""
    result = x.take(range(size), axis)
    for first in range(1, x.shape[axis] - size + 1):
        reached = to.emit("GE", index_type, start, to.constant(first, index_type))
        block = x.take(range(first, first + size), axis)
        result = selected(reached, result, block, dtype, to)
    return result


def starts_of(
    op: Prim, args: Sequence[Registers], deciding: frozenset[Value], to: Emitter
) -> list[int]:
    """Where a `dynamic_slice` of an outer array begins, from the registers of its indices.

    An index that decides no call is clamped, as JAX does; one that does is left to be checked.
    """
    starts = [int(index[()]) for index in args]
    if op.outputs[0] in deciding:
        return starts
    sizes = zip(op.inputs[0].aval.shape, op.eqn.params["slice_sizes"], strict=True)
    places = zip(starts, op.inputs[1:], sizes, strict=True)
    return [clamped(start, index.aval.dtype, n - size, to) for start, index, (n, size) in places]


def clamped(register: int, dtype: Any, most: int, to: Emitter) -> int:
    """A number, or the nearest to it from 0 to `most`."""
    if most == 0:
        return to.constant(0, dtype)
    register = to.emit("MAX", dtype, register, to.constant(0, dtype))
    if most >= np.iinfo(dtype).max:
        return register
    return to.emit("MIN", dtype, register, to.constant(most, dtype))


def _power(register: int, power: int, dtype: Any, to: Emitter) -> int:
    """By repeated squaring, in the order of XLA's products, which round."""
    result, rest, one = None, abs(power), to.constant(1, dtype)
    while rest:
        if rest & 1:
            result = register if result is None else to.emit("MUL", dtype, result, register)
        rest >>= 1
        if rest:
            register = to.emit("MUL", dtype, register, register)
    result = one if result is None else result
    return to.emit("DIV", dtype, one, result) if power < 0 else result


def _reduce(op: Prim, x: Registers, dtype: Any, to: Emitter) -> Registers:
    axes = tuple(op.eqn.params["axes"])
    kept = [k for k in range(x.ndim) if k not in axes]
    size = math.prod(x.shape[k] for k in axes)
    rows = x.transpose([*kept, *axes]).reshape(*(x.shape[k] for k in kept), size)
    result = np.empty(rows.shape[:-1], dtype=object)
    for index in np.ndindex(*result.shape):
        first, *rest = rows[index]
        if rest and op.name == "reduce_sum" and dtype.kind == "f":  # -0.0 and -0.0 are 0.0 to XLA
            first, rest = to.constant(0, dtype), rows[index]
        for register in rest:
            first = to.emit(_REDUCE[op.name], dtype, first, register)
        result[index] = first
    return result


def bits(value: Any, dtype: np.dtype[Any]) -> int:
    """A constant as the word that stands for it: an integer, or the bits of a floating number."""
    exact = np.asarray(value).astype(dtype)
    if dtype.kind == "f":
        return int(exact.view(np.int32 if dtype.itemsize == 4 else np.int64))
    return int(exact.astype(np.int64))


def value_of(word: int, dtype: np.dtype[Any]) -> Any:
    """The constant that a word stands for: the other way round."""
    whole = np.array(word, np.int64)
    if dtype.kind == "f":  # the low bytes, as hosts are little-endian
        return whole.reshape(1).view(dtype)[0]
    return whole.astype(dtype)[()]
