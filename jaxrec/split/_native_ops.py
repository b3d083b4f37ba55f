"""The language of native programs: that of the control machine, and what only they may contain.

That is what does not equal XLA's result to the last bit, functions of the C library and sums in
another order, and the operations of `_native_arrays.py`. A schedule has none of the first, for what
it decides must be what cells compute, and no use for the others: cells move rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrec.graph._ir import Const, Prim
from jaxrec.split import _native_arrays, _scalar
from jaxrec.split._scalar import Emitter, Registers, each_register, fits, selected

_UNARY = {
    "exp": "EXP",
    "exp2": "EXP2",
    "expm1": "EXPM1",
    "log": "LOG",
    "log1p": "LOG1P",
    "rsqrt": "RSQRT",
    "cbrt": "CBRT",
    "sin": "SIN",
    "cos": "COS",
    "tan": "TAN",
    "asin": "ASIN",
    "acos": "ACOS",
    "atan": "ATAN",
    "sinh": "SINH",
    "cosh": "COSH",
    "tanh": "TANH",
    "asinh": "ASINH",
    "acosh": "ACOSH",
    "atanh": "ATANH",
    "logistic": "LOGISTIC",
    "erf": "ERF",
    "erfc": "ERFC",
}
_BINARY = {"pow": "POW", "atan2": "ATAN2"}
_CUMULATIVE = {"cumsum": "ADD", "cumprod": "MUL", "cummax": "MAX", "cummin": "MIN"}

_MOST_OF_LIBRARY = 16
"""Elements of which the machine computes a function of the C library; waves take more at once."""
_MOST_FACTORS = 16
"""Elements of two vectors that are multiplied."""


def is_known(op: Prim) -> bool:
    """Whether the native machine can compute an operation on register arrays."""
    if _scalar.is_known(op):
        return True
    if not all(fits(v.aval) for v in op.outputs):
        return False
    return op.name in _OPERATIONS and _OPERATIONS[op.name][0](op)


def compile_op(
    op: Prim, args: Sequence[Registers], tangents: Sequence[bool], to: Emitter
) -> Sequence[Registers]:
    """Emits the instructions of an operation and returns the registers of its results.

    Args:
        op: the operation.
        args: the registers of its operands.
        tangents: which operands are tangents: of zero a multiple is zero.
        to: the code that grows.
    """
    if any(tangents) and op.name in _MULTIPLE:
        return [_MULTIPLE[op.name](op, args, tangents, to)]
    if _scalar.is_known(op):
        return [_scalar.compile_op(op, args, to)]
    return _OPERATIONS[op.name][1](op, args, to)


# Functions of the C library, and what rounds in another order.


def _is_short(op: Prim) -> bool:
    return op.outputs[0].aval.size <= _MOST_OF_LIBRARY


def _library(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    dtype = op.outputs[0].aval.dtype
    if op.name in _UNARY:
        return [each_register(lambda r: to.emit(_UNARY[op.name], dtype, r), args[0])]
    x, y = args
    y = _scalar.converted(y, op.inputs[1].aval.dtype, dtype, to)
    return [each_register(lambda a, b: to.emit(_BINARY[op.name], dtype, a, b), x, y)]


def _binary_logarithm(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    dtype = op.outputs[0].aval.dtype
    per_octave = to.constant(1 / np.log(2), dtype)
    logarithm = lambda r: to.emit("LOG", dtype, r)  # noqa: E731
    return [each_register(lambda r: to.emit("MUL", dtype, logarithm(r), per_octave), args[0])]


def _is_product_of_vectors(op: Prim) -> bool:
    a, b = (atom.aval for atom in op.inputs)
    is_number = op.outputs[0].aval.size == 1 and a.size == b.size <= _MOST_FACTORS
    return is_number and a.size > 0 and a.dtype == b.dtype == op.outputs[0].aval.dtype != bool


def _product(
    op: Prim, args: Sequence[Registers], tangents: Sequence[bool], to: Emitter
) -> Registers:
    dtype = op.outputs[0].aval.dtype
    if any(isinstance(x, Const) and x.value != 0 and np.isfinite(x.value) for x in op.inputs):
        tangents = (False, False)  # zero it stays
    return _multiple("MUL" if op.name == "mul" else "DIV", args, tangents, dtype, to)


def _multiple(
    opcode: str, args: Sequence[Registers], tangents: Sequence[bool], dtype: Any, to: Emitter
) -> Registers:
    """A product or quotient; zero if a tangent in it is."""
    (x, y), (first, second) = args, tangents
    if opcode == "MUL" and second and not first:
        (x, y), (first, second) = (y, x), (second, first)
    if first:
        opcode = _OF_A_TANGENT[opcode]
    result = each_register(lambda a, b: to.emit(opcode, dtype, a, b), x, y)
    if second:
        zero = to.constant(0, dtype)
        is_zero = each_register(lambda r: to.emit("EQ", dtype, r, zero), y)
        result = selected(is_zero, result, y, dtype, to)
    return result


def _product_of_vectors(
    op: Prim, args: Sequence[Registers], tangents: Sequence[bool], to: Emitter
) -> Registers:
    (left, right), _ = op.eqn.params["dimension_numbers"]
    out = op.outputs[0].aval
    flat = [
        x.transpose([*(k for k in range(x.ndim) if k not in axes), *axes]).ravel()
        for x, axes in zip(args, (left, right), strict=True)
    ]
    first, *rest = _multiple("MUL", flat, tangents, out.dtype, to)
    for register in rest:
        first = to.emit("ADD", out.dtype, first, register)
    return np.full(out.shape, first, dtype=object)


def _cumulative(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    dtype, axis = op.outputs[0].aval.dtype, op.eqn.params["axis"]
    result = args[0].copy()
    rows = np.moveaxis(result, axis, 0)  # a view
    rows = rows[::-1] if op.eqn.params["reverse"] else rows
    combine = lambda a, b: to.emit(_CUMULATIVE[op.name], dtype, a, b)  # noqa: E731
    for k in range(1, len(rows)):
        rows[k, ...] = each_register(combine, rows[k - 1], rows[k])
    return [result]


def _always(op: Prim) -> bool:
    return True


_Compiler = Callable[[Prim, Sequence[Registers], Emitter], Sequence[Registers]]
_Test = Callable[[Prim], bool]
_OPERATIONS: dict[str, tuple[_Test, _Compiler]] = {
    **dict.fromkeys((*_UNARY, *_BINARY), (_is_short, _library)),
    **dict.fromkeys(_CUMULATIVE, (_always, _cumulative)),
    "dot_general": (
        _is_product_of_vectors,
        lambda op, args, to: [_product_of_vectors(op, args, (False, False), to)],
    ),
    "log2": (_is_short, _binary_logarithm),
    "pad": (_always, _native_arrays.pad),
    "split": (_always, _native_arrays.split),
    "argmax": (_native_arrays.is_of_one_axis, _native_arrays.place_of_best),
    "argmin": (_native_arrays.is_of_one_axis, _native_arrays.place_of_best),
    "gather": (_native_arrays.takes_whole_or_one, _native_arrays.gather),
    "dynamic_update_slice": (
        _native_arrays.updates_whole_or_one,
        _native_arrays.dynamic_update_slice,
    ),
    **dict.fromkeys(
        _native_arrays.SCATTERS, (_native_arrays.writes_whole_or_one, _native_arrays.scatter)
    ),
}
"""For each operation which of its forms the machine has, and what emits it."""

_OF_A_TANGENT = {"MUL": "MULTIPLE", "DIV": "PORTION"}

_MULTIPLE = {"mul": _product, "div": _product, "dot_general": _product_of_vectors}
"""Operations whose result is a multiple of a tangent among their operands."""
