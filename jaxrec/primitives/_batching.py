"""`vmap` of an invocation: the lanes of the new axis become more roots of the same schedule.

Lane `b * lanes + l` of the batched invocation is lane `l` of example `b`. An outer value that has
the new axis becomes one that is indexed by lane; what the examples share stays shared.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec import _compat
from jaxrec.invocation._params import Params
from jaxrec.lowering._rows import numbers, select_rows
from jaxrec.schedule._plan import LanePattern


class Batch:
    """A batched invocation, and how its values are laid out.

    Attributes:
        params: parameters of the batched invocation, its capacity undecided unless declared.
        operands: its operands.
        size: size of the new axis.
        single: parameters of the invocation of one example.
        examples: the types of its operands.
    """

    def __init__(
        self,
        params: Params,
        operands: Sequence[Any],
        dims: Sequence[Any],
        size: int | None = None,
        apart: Iterable[int] = (),
        bare: bool = False,
    ) -> None:
        """Batches operands.

        Args:
            params: parameters of the invocation of one example.
            operands: its operands, some with an axis more.
            dims: where that axis is.
            size: its size, if no operand has it.
            apart: outer values that get the axis although they do not have it.
            bare: whether the roots' arguments have no axis of lanes, as there is one lane.
        """
        self.single, self._bare = params, bare
        self.size = axis_size(operands, dims) if size is None else size
        self.examples = [example(x, d) for x, d in zip(operands, dims, strict=True)]
        self._mapped = [d is not _compat.not_mapped for d in dims]
        for k in apart:
            self._mapped[k] = True
        combined = [
            _combined(p, params.lanes, self.size, m)
            for p, m in zip(params.patterns, self._mapped[: params.num_outers], strict=True)
        ]
        self._repeats = [r for _, r in combined]
        self.operands = [
            self.operand(k, x, d) for k, (x, d) in enumerate(zip(operands, dims, strict=True))
        ]
        alike = not any(self._mapped[k] for k in params.controlling)
        self.params = dataclasses.replace(
            params,
            lanes=params.lanes * self.size,
            patterns=tuple(p for p, _ in combined),
            max_calls=None,
            copies=params.copies * (self.size if alike else 1),
        )

    def operand(self, k: int, x: Any, dim: Any) -> Any:
        """Lays out a value of the type of operand `k` for the batched invocation."""
        if k < self.single.num_outers and not self._mapped[k]:
            return x
        if k >= self.single.num_outers:
            if k < self.single.first_data and _compat.is_known(x):  # and stays so inside of jit
                return _compat.on_known(lambda x: self._root(x, dim), x)
            return self._root(x, dim)
        x = at_front(x, dim, self.size)
        if self.single.patterns[k] is None:
            return x
        if self._repeats[k] > 1:
            x = jnp.tile(x, (1, self._repeats[k], *(1,) * (x.ndim - 2)))
        return jax.lax.collapse(x, 0, 2)

    def _root(self, x: Any, dim: Any) -> Any:
        """An argument of the roots, of one example each, for the lanes of all."""
        x = at_front(x, dim, self.size)
        return x if self._bare else x.reshape(self.size * self.single.lanes, *x.shape[2:])

    def split_operand(self, k: int, x: Any, lanes: LanePattern | None) -> Any:
        """Takes a cotangent of operand `k` apart by example; `lanes` as before batching."""
        if k >= self.single.num_outers:
            return x.reshape(self.size, self.single.lanes, *x.shape[1:])
        pattern = self.single.patterns[k] or lanes
        if pattern is None:
            return x
        if self.single.patterns[k] is None:
            return x.reshape(self.size, pattern[1], *x.shape[1:])
        apart = x.reshape(self.size, self._repeats[k], pattern[1], *x.shape[1:])
        return apart.sum(1)

    def cotangent_lanes(self, k: int, lanes: LanePattern | None) -> LanePattern | None:
        """How lanes index the cotangent of outer value `k`, kept apart by example."""
        if k >= self.single.num_outers or self.params.patterns[k] is not None:
            return None
        if lanes is None:
            return (self.single.lanes, self.size)
        return (lanes[0], self.size * lanes[1])

    def split_outcome(self, outs: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The outcome of the batched invocation with the new axis in front."""
        count = len(self.single.program.result_avals)
        split = _apart(outs[:count], self.size, self.single.lanes)
        if self.single.collect:
            lane, valid = outs[-2], outs[-1]
            groups = _Groups(self, lane, valid.sum(dtype=jnp.int32))
            split += [groups.split(x) for x in outs[count:-2]]
            split += [groups.split(lane) % self.single.lanes, groups.valid]
        return split, [0] * len(split)

    def split_example(self, outs: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The outcome where one example's lane has no axis, and where it has the new axis."""
        return list(outs), [0] * len(outs)

    def split_linear(
        self, outs: Sequence[Any], reports: tuple[Any, Any] | None
    ) -> tuple[list[Any], list[int]]:
        """The differentiable part of an outcome with the new axis in front."""
        count = len(outs) // 2 if reports else len(outs)
        split = _apart(outs[:count], self.size, self.single.lanes)
        if reports:
            groups = _Groups(self, *reports)
            split += [groups.split(x) for x in outs[count:]]
        return split, [0] * len(split)

    def like_results(
        self, values: Sequence[Any], dims: Sequence[Any], reports: tuple[Any, Any] | None
    ) -> list[Any]:
        """Lays out cotangents of the differentiable part of an outcome."""
        fronted = [at_front(x, d, self.size) for x, d in zip(values, dims, strict=True)]
        count = len(fronted) // 2 if reports else len(fronted)
        laid = [jax.lax.collapse(x, 0, 2) for x in fronted[:count]]
        if reports:
            groups = _Groups(self, *reports)
            laid += [groups.join(x) for x in fronted[count:]]
        return laid


class _Groups:
    """Reported calls by example: they come in the order of lanes, so each example's are a run."""

    def __init__(self, batch: Batch, lane: Any, count: Any) -> None:
        old_calls = batch.single.max_calls or batch.params.max_calls
        assert old_calls is not None
        row = numbers(lane.shape[0])
        example = jnp.where(row < count, lane // batch.single.lanes, batch.size)
        examples = numbers(batch.size)
        first = jnp.searchsorted(example, examples)
        size = jnp.searchsorted(example, examples, side="right") - first
        own = numbers(old_calls)[None, :]
        self.valid = own < size[:, None]
        self._rows = jnp.minimum(first[:, None] + own, lane.shape[0] - 1)
        self._example = jnp.clip(example, 0, max(batch.size - 1, 0))
        self._within = jnp.clip(row - _some(first)[self._example], 0, old_calls - 1)
        self._is_call = row < count

    def split(self, x: Any) -> Any:
        """`[calls, ...]` of all examples to `[examples, calls of one, ...]`."""
        return select_rows(self.valid, x[self._rows])

    def join(self, x: Any) -> Any:
        """The inverse of `split`."""
        return select_rows(self._is_call, _some(x)[self._example, self._within])


def _some(x: Any) -> Any:
    """An array that can be indexed: one of no examples has nothing to read."""
    return x if x.shape[0] else jnp.zeros((1, *x.shape[1:]), x.dtype)


@functools.partial(jax.jit, static_argnames=("size", "lanes"), inline=True)
def _apart(arrays: Sequence[Any], size: int, lanes: int) -> list[Any]:
    """Arrays of the lanes of all examples, an axis of examples in front."""
    return [x.reshape(size, lanes, *x.shape[1:]) for x in arrays]


def axis_size(operands: Sequence[Any], dims: Sequence[Any]) -> int:
    """The size of the axis that `vmap` maps."""
    return next(
        x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not _compat.not_mapped
    )


def at_front(x: Any, dim: Any, size: int) -> Any:
    """An operand with the axis that `vmap` maps in front; one that is not mapped is repeated."""
    if dim is _compat.not_mapped:
        broadcast = np.broadcast_to if isinstance(x, np.ndarray) else jnp.broadcast_to
        return broadcast(x, (size, *np.shape(x)))
    return with_axis_at(x, dim, 0)


def with_axis_at(x: Any, source: int, target: int) -> Any:
    """An array with an axis in another place; `jnp.moveaxis` takes longer, it is a program."""
    if source == target:
        return x
    order = [k for k in range(np.ndim(x)) if k != source]
    order.insert(target, source)
    return np.transpose(x, order) if isinstance(x, np.ndarray) else jax.lax.transpose(x, order)


def example(x: Any, dim: Any) -> Any:
    """The type of one example of a value."""
    shape = list(jnp.shape(x))
    if dim is not _compat.not_mapped:
        del shape[dim]
    return jax.ShapeDtypeStruct(tuple(shape), x.dtype)


def _combined(
    pattern: LanePattern | None, lanes: int, batch: int, is_batched: bool
) -> tuple[LanePattern | None, int]:
    """How lanes index an outer value once a batch axis is put in front of the lanes.

    Args:
        pattern: how the old lanes index it.
        lanes: number of old lanes.
        batch: size of the new axis.
        is_batched: whether the value has the new axis too.

    Returns:
        The new pattern, and how often the value's own axis must be repeated first.
    """
    if not is_batched:
        return pattern, 1
    if pattern is None:
        return (lanes, batch), 1
    stride, size = pattern
    repeats = math.ceil(lanes / (stride * size)) if stride * size else 1
    return (stride, batch * size * repeats), repeats
