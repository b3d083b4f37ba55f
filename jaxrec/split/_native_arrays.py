"""Operations on small arrays of registers that move elements, also to places that are computed.

The machine has no memory beside registers: an index is compared with every place that it may name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from jaxrec.graph._ir import Prim
from jaxrec.split._scalar import Emitter, Registers, clamped, each_register, selected, taken

_MOST_CHOICES = 256
"""Elements that are chosen or left, one after the other."""

_SCATTER = {
    "scatter": "",
    "scatter-add": "ADD",
    "scatter-sub": "SUB",
    "scatter-mul": "MUL",
    "scatter-min": "MIN",
    "scatter-max": "MAX",
}
SCATTERS = frozenset(_SCATTER)
"""The names of operations that write at computed places."""


# Elements that move to places known beforehand.


def pad(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    x, value = args
    result = np.full(op.outputs[0].aval.shape, value[()], dtype=object)
    config = op.eqn.params["padding_config"]
    for index in np.ndindex(*x.shape):
        at = tuple(low + k * (1 + inner) for k, (low, _, inner) in zip(index, config, strict=True))
        if all(0 <= k < size for k, size in zip(at, result.shape, strict=True)):
            result[at] = x[index]
    return [result]


def split(op: Prim, args: Sequence[Registers], to: Emitter) -> Sequence[Registers]:
    ends = np.cumsum(op.eqn.params["sizes"])[:-1]
    return np.split(args[0], ends, axis=op.eqn.params["axis"])


# Places that are computed.


def is_of_one_axis(op: Prim) -> bool:
    return len(op.eqn.params["axes"]) == 1 and op.inputs[0].aval.size > 0


def place_of_best(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    """The first place of the largest or smallest number, or of the first NaN."""
    dtype, place = op.inputs[0].aval.dtype, op.outputs[0].aval.dtype
    better = "GT" if op.name == "argmax" else "LT"

    def is_better(new: int, best: int) -> int:
        pick = to.emit(better, dtype, new, best)
        if dtype.kind != "f":
            return pick
        is_nan, was_none = to.emit("NE", dtype, new, new), to.emit("EQ", dtype, best, best)
        return to.emit("OR", np.bool_, pick, to.emit("AND", np.bool_, is_nan, was_none))

    first, *rest = np.moveaxis(args[0], op.eqn.params["axes"][0], 0)
    at = each_register(lambda _: to.constant(0, place), first)
    for k, row in enumerate(rest, start=1):
        pick = each_register(is_better, row, first)
        first = selected(pick, first, row, dtype, to)
        at = selected(pick, at, _constants(k, place, at.shape, to), place, to)
    return [at]


def takes_whole_or_one(op: Prim) -> bool:
    """Whether a gather takes one element along the axes that are indexed, and whole others."""
    numbers, sizes = op.eqn.params["dimension_numbers"], op.eqn.params["slice_sizes"]
    x = op.inputs[0].aval
    wanted = [1 if k in numbers.start_index_map else n for k, n in enumerate(x.shape)]
    choices = op.outputs[0].aval.size * math.prod(x.shape[k] for k in numbers.start_index_map)
    is_plain = not numbers.operand_batching_dims and list(sizes) == wanted
    return is_plain and x.size > 0 and choices <= _MOST_CHOICES


def gather(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    x, indices = args
    params, out = op.eqn.params, op.outputs[0].aval
    numbers, index_type = params["dimension_numbers"], op.inputs[1].aval.dtype
    drops = params["mode"] == GatherScatterMode.FILL_OR_DROP
    lost = _constants(params["fill_value"], out.dtype, (), to) if drops else None
    blocks = np.empty(indices.shape[:-1], dtype=object)
    for where in np.ndindex(*blocks.shape):
        block = x
        for axis, index in zip(numbers.start_index_map, indices[where], strict=True):
            block = taken(block, axis, 1, index, index_type, out.dtype, to)
            if lost is not None:
                inside = _is_inside(index, index_type, x.shape[axis], to)
                block = selected(inside, lost, block, out.dtype, to)
        blocks[where] = np.squeeze(block, axis=tuple(numbers.collapsed_slice_dims))
    rows = [blocks[where] for where in np.ndindex(*blocks.shape)]
    offset = numbers.offset_dims
    shape = [out.shape[k] for k in offset]
    stacked = np.stack(rows) if rows else np.empty((0, *shape), dtype=object)
    stacked = stacked.reshape((*blocks.shape, *shape))
    return [np.moveaxis(stacked, range(blocks.ndim, stacked.ndim), offset)]


def _is_inside(index: int, dtype: Any, size: int, to: Emitter) -> int:
    inside = to.emit("GE", dtype, index, to.constant(0, dtype))
    if size > np.iinfo(dtype).max:
        return inside
    below = to.emit("LT", dtype, index, to.constant(size, dtype))
    return to.emit("AND", np.bool_, inside, below)


def writes_whole_or_one(op: Prim) -> bool:
    """Whether a scatter writes one element along the axes that are indexed, and whole others."""
    params = op.eqn.params
    numbers, x = params["dimension_numbers"], op.inputs[0].aval
    indices, updates = op.inputs[1].aval, op.inputs[2].aval
    if numbers.operand_batching_dims or (op.name == "scatter") != (params["update_jaxpr"] is None):
        return False
    window = iter(updates.shape[k] for k in numbers.update_window_dims)
    sizes = [1 if k in numbers.inserted_window_dims else next(window) for k in range(x.ndim)]
    indexed = numbers.scatter_dims_to_operand_dims
    is_plain = sizes == [1 if k in indexed else n for k, n in enumerate(x.shape)]
    adds = op.name != "scatter" and x.dtype == bool
    return is_plain and not adds and x.size * math.prod(indices.shape[:-1]) <= _MOST_CHOICES


def scatter(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    x, indices, updates = args
    params, opcode = op.eqn.params, _SCATTER[op.name]
    numbers, index_type = params["dimension_numbers"], op.inputs[1].aval.dtype
    axes, window = numbers.scatter_dims_to_operand_dims, numbers.update_window_dims
    updates = np.moveaxis(updates, window, range(updates.ndim - len(window), updates.ndim))
    for where in np.ndindex(*indices.shape[:-1]):
        index = list(indices[where])
        if params["mode"] == GatherScatterMode.CLIP:
            pairs = zip(index, axes, strict=True)
            index = [clamped(r, index_type, x.shape[k] - 1, to) for r, k in pairs]
        update = np.expand_dims(updates[where], tuple(numbers.inserted_window_dims))
        x = _written(x, axes, index, index_type, update, opcode, op.outputs[0].aval.dtype, to)
    return [x]


def updates_whole_or_one(op: Prim) -> bool:
    x, update = (atom.aval for atom in op.inputs[:2])
    sizes = zip(update.shape, x.shape, strict=True)
    return x.size <= _MOST_CHOICES and all(size in (1, n) for size, n in sizes)


def dynamic_update_slice(op: Prim, args: Sequence[Registers], to: Emitter) -> list[Registers]:
    x, update, *starts = args
    axes = [k for k in range(x.ndim) if update.shape[k] != x.shape[k]]
    types = [atom.aval.dtype for atom in op.inputs[2:]]
    index = [clamped(int(starts[k][()]), types[k], x.shape[k] - 1, to) for k in axes]
    index_type = types[0] if types else np.int32
    return [_written(x, axes, index, index_type, update, "", op.outputs[0].aval.dtype, to)]


def _written(
    x: Registers,
    axes: Sequence[int],
    index: Sequence[int],
    index_type: Any,
    update: Registers,
    opcode: str,
    dtype: Any,
    to: Emitter,
) -> Registers:
    """An array with an element replaced along some axes; it stays as it is if there is none."""
    update = np.broadcast_to(update, x.shape)
    if opcode:
        update = each_register(lambda a, b: to.emit(opcode, dtype, a, b), x, update)
    here = None
    for axis, register in zip(axes, index, strict=True):
        found = _compared(register, index_type, x.shape, axis, to)
        both = lambda a, b: to.emit("AND", np.bool_, a, b)  # noqa: E731
        here = found if here is None else each_register(both, here, found)
    return update if here is None else selected(here, x, update, dtype, to)


def _compared(
    register: int, dtype: Any, shape: tuple[int, ...], axis: int, to: Emitter
) -> Registers:
    """Whether an index is each place along an axis, to be broadcast along the others."""
    found = np.empty([n if k == axis else 1 for k, n in enumerate(shape)], dtype=object)
    for k in range(shape[axis]):
        found.flat[k] = to.emit("EQ", dtype, register, to.constant(k, dtype))
    return found


def _constants(value: Any, dtype: Any, shape: tuple[int, ...], to: Emitter) -> Registers:
    return np.full(shape, to.constant(value, dtype), dtype=object)
