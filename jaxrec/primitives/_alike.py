"""`vmap` of an invocation whose control is the same in every example: one schedule, longer rows.

The lanes stay what they are, and each value in tapes gets the axis of examples
(`jaxrec/split/_examples.py`). Where rows would become so long that a few that are no call, as waves
compute and tapes end with, take much, the examples are divided: shard `s` of the examples of lane
`l` is lane `s * lanes + l`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrec import _compat
from jaxrec.invocation._params import Params
from jaxrec.primitives._batching import Batch, at_front, axis_size, example, with_axis_at
from jaxrec.schedule._plan import LanePattern
from jaxrec.split._examples import with_examples
from jaxrec.trace._signature import refuse_symbolic

_ROW_BYTES, _ROW_FLOPS = 1 << 17, 1e6
"""What a call puts on tapes, and computes in its most expensive cell, for examples enough."""

_MOST_SHARDS = 64
"""So that making the schedule for all of them takes little."""


class Alike:
    """As `Batch`, for examples that make the same calls.

    Attributes:
        params: parameters of the batched invocation.
        operands: its operands.
        size: size of the new axis.
        shards: how many lanes its examples are divided among, for each lane of one example.
        single: parameters of the invocation of one example.
        examples: the types of its operands.
    """

    def __init__(
        self,
        params: Params,
        operands: Sequence[Any],
        dims: Sequence[Any],
        size: int,
        mapped: Iterable[int],
        bare: bool,
    ) -> None:
        """Batches operands.

        Args:
            params: parameters of the invocation of one example.
            operands: its operands, some with an axis more.
            dims: where that axis is.
            size: its size.
            mapped: those that differ by example.
            bare: whether the roots' arguments have no axis of lanes, as there is one lane.
        """
        self.single, self.size, self._bare = params, size, bare
        self.examples = [example(x, d) for x, d in zip(operands, dims, strict=True)]
        self._outers = frozenset(k for k in mapped if k < params.num_outers)
        self.shards = self._num_shards(_mapped(dims))
        program = with_examples(params.program, size // self.shards, self._outers)
        calls = params.max_calls
        self.params = dataclasses.replace(
            params.of_rows(self.shards),
            program=program,
            lanes=params.lanes * self.shards,
            patterns=tuple(self._pattern(k) for k in range(params.num_outers)),
            copies=params.copies * self.shards,
            max_calls=None if calls is None else calls * self.shards,
        )
        pairs = zip(operands, dims, strict=True)
        self.operands = [self.operand(k, x, d) for k, (x, d) in enumerate(pairs)]

    def _num_shards(self, own: set[int]) -> int:
        """How many shards there are, of one size; `own`: the operands that have the axis."""
        single, program = self.single, self.single.program
        sizes = [self.examples[k].size * self.examples[k].dtype.itemsize for k in self._outers]
        by_lane = single.lanes > 1 or any(single.patterns[k] is not None for k in self._outers)
        # A wave reads an outer value that lanes index once for each of its rows.
        if sum(sizes) > program.call_bytes or (self._outers and by_lane) or self._outers - own:
            return 1
        row = max(program.call_bytes / _ROW_BYTES, program.row_flops / _ROW_FLOPS)
        most = min(int(row * self.size), _MOST_SHARDS, self.size)
        return next((n for n in range(most, 1, -1) if self.size % n == 0), 1)

    def _pattern(self, k: int) -> LanePattern | None:
        """How lanes index outer value `k`."""
        is_divided = self.shards > 1 and k in self._outers
        return (1, self.shards) if is_divided else self.single.patterns[k]

    def operand(self, k: int, x: Any, dim: Any) -> Any:
        """Lays out a value of the type of operand `k` for the batched invocation."""
        if k < self.single.num_outers:
            if k not in self._outers:
                return x
            x = at_front(x, dim, self.size)
            if self.shards > 1:
                return x.reshape(self.shards, self.size // self.shards, *x.shape[1:])
            return with_axis_at(x, 0, self._axis(k))
        if k < self.single.first_data:  # known values stay so inside of jit
            return _compat.on_known(self._control, x) if _compat.is_known(x) else self._control(x)
        x = at_front(x, dim, self.size)
        return self._together(lax.expand_dims(x, [1]) if self._bare else x)

    def _control(self, x: Any) -> Any:
        """A control argument of the roots, which all examples have."""
        x = x.reshape(1) if self._bare else x
        if self.shards == 1:
            return x
        tile = np.tile if isinstance(x, np.ndarray) else jnp.tile
        return tile(x, self.shards)

    def _axis(self, k: int, lanes: LanePattern | None = None) -> int:
        """Where outer value `k`, or its cotangent, has the new axis: behind that of lanes."""
        return 0 if (self.single.patterns[k] or lanes) is None else 1

    def _together(self, x: Any) -> Any:
        """A value of each example and lane, `[size, lanes, ...]`, by the lanes of all shards."""
        each, lanes = self.size // self.shards, self.single.lanes
        x = with_axis_at(x.reshape(self.shards, each, lanes, *x.shape[2:]), 1, 2)
        return x.reshape(self.shards * lanes, each, *x.shape[3:])

    def _apart(self, x: Any) -> Any:
        """The inverse of `_together`."""
        each, lanes = self.size // self.shards, self.single.lanes
        x = with_axis_at(x.reshape(self.shards, lanes, each, *x.shape[2:]), 2, 1)
        return x.reshape(self.size, lanes, *x.shape[3:])

    def split_operand(self, k: int, x: Any, lanes: LanePattern | None) -> Any:
        """Takes a cotangent of operand `k` apart by example; `lanes` as before batching."""
        if k >= self.single.num_outers:
            return self._apart(x)
        if self.shards > 1:
            return lax.collapse(x, 0, 2)
        return with_axis_at(x, self._axis(k, lanes), 0)

    def cotangent_lanes(self, k: int, lanes: LanePattern | None) -> LanePattern | None:
        """How lanes index the cotangent of outer value `k`: as without examples."""
        del k
        return lanes

    def split_outcome(self, outs: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The outcome of the batched invocation with the new axis in front."""
        return list(map(self._apart, outs)), [0] * len(outs)

    def split_example(self, outs: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The outcome where one example's lane has no axis, with the new axis in front."""
        return [lax.collapse(x, 0, 2) for x in outs], [0] * len(outs)

    def split_linear(self, outs: Sequence[Any], reports: Any) -> tuple[list[Any], list[int]]:
        """The differentiable part of an outcome with the new axis in front."""
        assert reports is None
        return self.split_outcome(outs)

    def like_results(self, values: Sequence[Any], dims: Sequence[Any], reports: Any) -> list[Any]:
        """Lays out cotangents of the differentiable part of an outcome."""
        assert reports is None
        pairs = zip(values, dims, strict=True)
        return [self._together(at_front(x, d, self.size)) for x, d in pairs]


Batched = Batch | Alike


def batched(
    params: Params,
    operands: Sequence[Any],
    dims: Sequence[Any],
    size: int | None = None,
    apart: Iterable[int] = (),
    asked: Iterable[int] = (),
    bare: bool = False,
) -> Batched:
    """Batches an invocation.

    Args:
        params: of the invocation of one example.
        operands: its operands, some with an axis more.
        dims: where that axis is.
        size: its size, if no operand has it.
        apart: outer values that get the axis although they do not have it.
        asked: outer values that each example has a cotangent of.
        bare: whether the roots' arguments have no axis of lanes, as there is one lane.
    """
    size = axis_size(operands, dims) if size is None else size
    refuse_symbolic(f"an axis that vmap maps {params.program.name} over", [size])
    mapped = {*_mapped(dims), *apart, *asked}
    if _makes_same_calls(params, mapped, size):
        if _has_one_schedule(params):
            return Alike(params, operands, dims, size, mapped, bare)
        params = params.of_rows(size)
    return Batch(params, operands, dims, size, apart, bare)


def _makes_same_calls(params: Params, mapped: set[int], size: int) -> bool:
    """Whether all examples make the same calls, which count once."""
    program = params.program
    if program.is_stepped or params.collect or not size:
        return False
    return mapped.isdisjoint(params.controlling)


def _has_one_schedule(params: Params) -> bool:
    """Whether one schedule does for all examples that make the same calls."""
    # A derivative of the native machine's is none of a cell's: see `jaxrec/split/_tangents.py`.
    if params.executor == "reference" or params.program.tangents:
        return False
    return params.host is None or params.host.domains == 1  # else workers have lanes of their own


def _mapped(dims: Sequence[Any]) -> set[int]:
    return {k for k, d in enumerate(dims) if d is not _compat.not_mapped}
