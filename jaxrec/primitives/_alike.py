"""`vmap` of an invocation whose control is the same in every example: one schedule, longer rows.

The lanes stay what they are, and each value in tapes gets the axis of examples
(`jaxrec/split/_examples.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from jax import lax

from jaxrec import _compat
from jaxrec.invocation._params import Params
from jaxrec.primitives._batching import Batch, at_front, axis_size, example, with_axis_at
from jaxrec.schedule._plan import LanePattern
from jaxrec.split._examples import with_examples


class Alike:
    """As `Batch`, for examples that make the same calls.

    Attributes:
        params: parameters of the batched invocation.
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
        self._mapped = frozenset(mapped)
        outers = frozenset(k for k in self._mapped if k < params.num_outers)
        program = with_examples(params.program, size, outers)
        self.params = dataclasses.replace(params, program=program)
        pairs = zip(operands, dims, strict=True)
        self.operands = [self.operand(k, x, d) for k, (x, d) in enumerate(pairs)]

    def operand(self, k: int, x: Any, dim: Any) -> Any:
        """Lays out a value of the type of operand `k` for the batched invocation."""
        if k < self.single.num_outers and k not in self._mapped:
            return x
        if self.single.num_outers <= k < self.single.first_data:
            return _with_lane(x) if self._bare else x
        x = at_front(x, dim, self.size)
        is_root = k >= self.single.first_data
        return _with_lane(x) if is_root and self._bare else with_axis_at(x, 0, self._axis(k))

    def _axis(self, k: int, lanes: LanePattern | None = None) -> int:
        """Where operand `k`, or its cotangent, has the new axis: behind that of lanes."""
        if k >= self.single.num_outers:
            return 1
        return 0 if (self.single.patterns[k] or lanes) is None else 1

    def split_operand(self, k: int, x: Any, lanes: LanePattern | None) -> Any:
        """Takes a cotangent of operand `k` apart by example; `lanes` as before batching."""
        return with_axis_at(x, self._axis(k, lanes), 0)

    def cotangent_lanes(self, k: int, lanes: LanePattern | None) -> LanePattern | None:
        """How lanes index the cotangent of outer value `k`: as without examples."""
        del k
        return lanes

    def split_outcome(self, outs: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The outcome of the batched invocation, and where it has the new axis."""
        return list(outs), [1] * len(outs)

    def split_example(self, outs: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The outcome where one example's lane has no axis, and where it has the new axis."""
        return [lax.squeeze(x, [0]) for x in outs], [0] * len(outs)

    def split_linear(self, outs: Sequence[Any], reports: Any) -> tuple[list[Any], list[int]]:
        """The differentiable part of an outcome with the new axis in front."""
        assert reports is None
        return [with_axis_at(x, 1, 0) for x in outs], [0] * len(outs)

    def like_results(self, values: Sequence[Any], dims: Sequence[Any], reports: Any) -> list[Any]:
        """Lays out cotangents of the differentiable part of an outcome."""
        assert reports is None
        pairs = zip(values, dims, strict=True)
        return [with_axis_at(at_front(x, d, self.size), 0, 1) for x, d in pairs]


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
    mapped = {*_mapped(dims), *apart, *asked}
    if _is_alike(params, mapped, size):
        return Alike(params, operands, dims, size, mapped, bare)
    return Batch(params, operands, dims, size, apart, bare)


def _is_alike(params: Params, mapped: set[int], size: int) -> bool:
    """Whether one schedule does for all examples."""
    program = params.program
    if program.is_stepped or program.graph.shows or params.collect or not size:
        return False
    # A derivative of the native machine's is none of a cell's: see `jaxrec/split/_tangents.py`.
    if params.executor == "reference" or program.tangents:
        return False
    if params.host is not None and params.host.domains > 1:  # workers have lanes of their own
        return False
    return mapped.isdisjoint(params.controlling)


def _mapped(dims: Sequence[Any]) -> set[int]:
    return {k for k, d in enumerate(dims) if d is not _compat.not_mapped}


def _with_lane(x: Any) -> Any:
    if _compat.is_known(x):
        return _compat.on_known(lambda x: x[None], x)
    return lax.expand_dims(x, [0])
