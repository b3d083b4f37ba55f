"""Helpers: recursive functions that stand for the loops of a body.

JAX traces a loop as one equation. Where its body makes recursive calls the loop has to become part
of the recursion: the equations of the body are evaluated once more, and such a loop is replaced by
a call of a *helper*, a synthetic recursive function that runs it. One mechanism then serves
iteration and recursion: the iterations of a loop are frames like other calls.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec.trace import _context
from jaxrec.trace._instance import Definition
from jaxrec.trace._pass import Pass

MAX_PACKED = 64
"""The largest array of indices, in elements, that is handed to a helper as scalars."""

Shape = tuple[int, ...]


@dataclasses.dataclass(eq=False)
class Scope:
    """The frame in which equations are evaluated.

    Attributes:
        running: the pass over the function.
        arguments: arguments of the function, which calls can pass on as they are.
        rules: how many derivative rules of this frame the equations are inside of.
        within: the loops of this frame that the equations are inside of, and the iteration of each.
        loops: numbers for the loops of this frame.
    """

    running: Pass
    arguments: Sequence[Any]
    rules: int = 0
    within: tuple[int, ...] = ()
    loops: Iterator[int] = dataclasses.field(default_factory=itertools.count)

    @property
    def order(self) -> int:
        """How many derivative rules the equations are inside of, those of callers included."""
        return self.running.instance.definition.order + self.rules

    def is_argument(self, value: Any) -> bool:
        """Whether a value is an argument or a constant: perhaps the same in all calls."""
        return _compat.is_concrete(value) or any(value is x for x in self.arguments)

    def packed_shape(self, value: Any) -> Shape | None:
        """How `value` is handed to a helper: its shape if as scalars, None if as one array."""
        return None if self.is_argument(value) else packed_shape(_compat.aval_of(value))


def packed_shape(aval: ShapedArray) -> Shape | None:
    """The shape of a small array of indices, None for other arrays.

    The control plane consists of scalars. So that a row of children read from a tree stays in it,
    its elements are passed on one by one.
    """
    index = jnp.issubdtype(aval.dtype, jnp.integer) or aval.dtype == bool
    return aval.shape if index and aval.ndim and 0 < aval.size <= MAX_PACKED else None


def _firm(value: Any) -> Any:
    """A value whose type is not weak: what an iteration hands to the next one is not."""
    aval = _compat.aval_of(value)
    return jax.lax.convert_element_type(value, aval.dtype) if aval.weak_type else value


def _pack(value: Any, shape: Shape | None) -> Any:
    if shape is None:
        return value
    flat = jax.lax.reshape(value, (int(np.prod(shape)),))
    return [jax.lax.index_in_dim(flat, k, keepdims=False) for k in range(flat.shape[0])]


def _unpack(value: Any, shape: Shape | None) -> Any:
    return value if shape is None else jax.lax.reshape(jnp.stack(value), shape)


@dataclasses.dataclass(eq=False)
class Helper:
    """A recursive function that stands for a loop.

    Attributes:
        name: as errors and the graph name it.
        body: what a call runs: from the frame and the arguments to the results.
        names: names of the arguments.
        shapes: how each argument is passed, see `Scope.packed_shape`.
        out: the types of the results.
        trips: see `Definition`.
    """

    name: str
    body: Callable[[Scope, list[Any]], list[Any]]
    names: Sequence[str]
    shapes: Sequence[Shape | None]
    out: Sequence[ShapedArray]
    trips: int | None = None

    def __post_init__(self) -> None:
        out = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.out]
        self._definition = Definition(
            self.name, self._run, object(), out, tuple(self.names), helper=True, trips=self.trips
        )

    def _run(self, *args: Any) -> list[Any]:
        running = _context.current()
        assert running is not None
        whole = [x for x, shape in zip(args, self.shapes, strict=True) if shape is None]
        return self.body(Scope(running, whole), list(map(_unpack, args, self.shapes)))

    def call(self, scope: Scope, values: Sequence[Any]) -> list[Any]:
        """Stages a call of the helper, all values of its loop in the types of later iterations."""
        args = list(map(_pack, map(_firm, values), self.shapes))
        return scope.running.call(self._definition, args, scope.rules)
