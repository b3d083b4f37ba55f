"""Derivatives of invocations that the native machine runs, by a few numbers.

The derivative in one direction is a recursion over scalars too (`jaxrec/graph/_jvp.py`), which the
machine runs as it runs values: no schedule, no tapes and no bound on calls. In the direction of
each number that moves it gives a column of the Jacobian. Tangents times columns are linear, so JAX
transposes them for reverse mode. With many numbers the backward pass of a schedule takes less.

Source: Griewank & Walther, "Evaluating Derivatives" (2008), section 3.2, for the cost of each mode.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrec import _compat
from jaxrec._order import zero_tangent
from jaxrec.graph._ir import Value
from jaxrec.graph._jvp import jvp_graph
from jaxrec.invocation._params import Params
from jaxrec.primitives._batching import Batch
from jaxrec.primitives._multiple import multiple
from jaxrec.primitives._native import on_device
from jaxrec.primitives._primitives import rec_p
from jaxrec.schedule._plan import LanePattern, element_of
from jaxrec.split._program import Program
from jaxrec.split._split import split

MOST_DIRECTIONS = 8
"""Numbers that move, in each lane. In more directions the machine takes longer than tapes do."""


def native_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    positions: Sequence[int],
    params: Params,
    most: int,
) -> tuple[list[Any], list[Any]] | None:
    """Results and their tangents; None where the machine does not run the derivative.

    Args:
        primals: the operands of `rec`.
        tangents: theirs.
        positions: the operands that have one.
        params: of an invocation that the native machine runs.
        most: the numbers that may move in each lane.
    """
    sizes = {k: _size(primals[k], _pattern(params, k)) for k in positions}
    if sum(sizes.values()) > most:
        return None
    if len(positions) > 1 and any(_compat.is_on_explicit_mesh(primals[k]) for k in positions):
        return None  # JAX does not concatenate what is divided in different ways
    derivative = _derivative(params.program, tuple(positions))
    if derivative is None:
        return None
    read = [k for k in positions if sizes[k] and derivative.reads(params.program.operands[k])]
    if not read:
        run = params.differentiated(tuple(positions))
        outs = on_device(rec_p.bind(*primals, params=run))
        return outs, list(map(zero_tangent, outs))
    operands = [primals[k] for k in read]
    patterns = tuple(_pattern(params, k) for k in read)
    directions = _directions(operands, patterns)
    results, columns = derivative.run(primals, read, directions, params)
    outs = on_device([_first(x) for x in results])
    weights = [tangents[k] for k in read]
    if params.host is not None:
        weights = jax.device_put(weights, params.host.devices[0])
    dots = iter(_combined(weights, columns, patterns))
    moves = zip(outs, derivative.moves, strict=True)
    return outs, [next(dots) if has_one else zero_tangent(x) for x, has_one in moves]


@dataclasses.dataclass(frozen=True)
class _Derivative:
    """A program that gives its results and their tangents in one direction.

    Attributes:
        program: what the machine runs.
        tangents: of its parameters and captured values that move, what their tangents are.
        moves: for each result whether it has a tangent.
    """

    program: Program
    tangents: dict[Value, Value]
    moves: tuple[bool, ...]

    def reads(self, value: Value) -> bool:
        """Whether the results move where a parameter or captured value does."""
        return self.tangents[value] in self.program.operands

    def run(
        self,
        primals: Sequence[Any],
        positions: Sequence[int],
        directions: Sequence[Any],
        params: Params,
    ) -> tuple[list[Any], list[Any]]:
        """The results, and of each that moves the columns of its Jacobian.

        All are `[directions, lanes, ...]`.
        """
        own = self._params(params, len(directions[0]))
        values, wanted = params.program.operands, self.program.operands
        known = dict(zip(values, primals, strict=True))
        moved = [self.tangents[values[k]] for k in positions]

        dots = dict(zip(moved, directions, strict=True))
        rest = {v: self._zeros(v, known, params.lanes) for v in wanted if v not in known | dots}
        operands = [(known | dots | rest)[v] for v in wanted]
        dims = [0 if v in dots else _compat.not_mapped for v in wanted]
        batch = Batch(own, operands, dims)
        outs = rec_p.bind(*batch.operands, params=batch.params)
        made = batch.split_outcome(outs)[0]
        return made[: len(self.moves)], made[len(self.moves) :]

    def _params(self, params: Params, directions: int) -> Params:
        patterns = dict(zip(params.program.outers, params.patterns, strict=True))
        outers = [self._origins.get(v, v) for v in self.program.outers]
        return dataclasses.replace(
            params.of_rows(directions),
            program=self.program,
            # All calls may have one tangent where they have arguments of their own.
            patterns=tuple(patterns.get(v, (1, params.lanes)) for v in outers),
            max_calls=None,
        )

    @functools.cached_property
    def _origins(self) -> dict[Value, Value]:
        return {tangent: value for value, tangent in self.tangents.items()}

    def _zeros(self, value: Value, known: dict[Value, Any], lanes: int) -> Any:
        """A tangent of what does not move at the root, or an argument that nobody reads."""
        like = known.get(self._origins.get(value, value))
        shape = (lanes, *value.aval.shape) if like is None else np.shape(like)
        return np.zeros(shape, value.aval.dtype)


def _derivative(program: Program, positions: tuple[int, ...]) -> _Derivative | None:
    """The derivative of a program by some operands, if the native machine runs it."""
    given = [program.operands[k] for k in positions]
    with _compat.without_mesh():
        jvp = program.cache.once(
            ("jvp", positions), lambda: jvp_graph(program.graph, given, program.taken)
        )
    if jvp is None:
        return None
    made = program.cache.once(
        ("derivative", positions), lambda: split(jvp.graph, jvp.dots | program.tangents)
    )
    return _Derivative(made, jvp.tangents, jvp.moves) if made.native is not None else None


def _pattern(params: Params, position: int) -> LanePattern | None:
    """How lanes index an operand; an argument of the roots has one element for each."""
    return params.patterns[position] if position < params.num_outers else (1, params.lanes)


def _size(x: Any, pattern: LanePattern | None) -> int:
    """The numbers of an operand in each lane."""
    return math.prod(np.shape(x)[pattern is not None :])


def _directions(operands: Sequence[Any], patterns: Sequence[LanePattern | None]) -> list[Any]:
    """For each operand that moves its part of each direction, in which one number of it moves."""
    sizes = list(map(_size, operands, patterns))
    found, first = [], 0
    for size, x, pattern in zip(sizes, operands, patterns, strict=True):
        shape = np.shape(x)
        own = shape if pattern is None else (1, *shape[1:])
        parts = np.zeros((sum(sizes), size), _compat.aval_of(x).dtype)
        parts[first : first + size] = np.eye(size)
        found.append(np.broadcast_to(parts.reshape(len(parts), *own), (len(parts), *shape)))
        first += size
    return found


@functools.partial(jax.jit, static_argnames="patterns")
def _combined(
    tangents: Sequence[Any], columns: Sequence[Any], patterns: tuple[LanePattern | None, ...]
) -> list[Any]:
    """The tangents of the results: of each number that moves its tangent times its column."""

    def of_result(x: Any) -> Any:
        weights = [
            lax.convert_element_type(_by_lane(t, p, x.shape[1]), x.dtype)
            for t, p in zip(tangents, patterns, strict=True)
        ]
        each = jnp.concatenate(weights).reshape(*x.shape[:2], *(1,) * (x.ndim - 2))
        return jnp.sum(multiple(jnp.broadcast_to(each, x.shape), x), axis=0)

    return list(map(of_result, columns))


def _first(x: Any) -> Any:
    return x[0] if isinstance(x, np.ndarray) else lax.index_in_dim(x, 0, keepdims=False)


def _by_lane(tangent: Any, pattern: LanePattern | None, lanes: int) -> Any:
    """A tangent as `[numbers, lanes]`."""
    if pattern is None:
        return jnp.broadcast_to(tangent.reshape(-1, 1), (tangent.size, lanes))
    rows = tangent.reshape(len(tangent), math.prod(tangent.shape[1:]))
    return (rows if pattern == (1, lanes) else rows[element_of(np.arange(lanes), pattern)]).T
