"""What a recursive function has traced: programs, by signature, with what they close over."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._host_options import default_device
from jaxrec.graph._ir import Graph
from jaxrec.primitives._primitives import compiled_programs
from jaxrec.split._program import Program
from jaxrec.trace._closure import Closure
from jaxrec.trace._paths import ROOT
from jaxrec.trace._signature import Signature


@dataclasses.dataclass(frozen=True)
class Traced:
    """A traced and split program with what it closes over.

    Attributes:
        graph: the graph, as it was traced.
        program: the program.
        args: the types of its arguments.
        captured: what it closes over.
        out: the type of its result; weak where it follows from numbers of Python alone.
        has_path: whether it takes its call path as arguments.
        lasts: whether it serves other calls of the same types: it depends on nothing outside, which
            is a traced value that it closes over or the size of an axis of `shard_map`.
        closure: what the functions close over, to see whether it changes.
        others: the static arguments, as text, with which the function is called besides its own.
    """

    graph: Graph
    program: Program
    args: Signature
    captured: tuple[Any, ...]
    out: Signature
    has_path: bool
    lasts: bool
    closure: Closure
    others: tuple[str, ...]

    @functools.cached_property
    def hidden(self) -> tuple[Any, ...]:
        """Arguments that follow the user's: the path of the root, and that nobody has told it."""
        return (*(ROOT if self.has_path else ()), *self.program.root_told)

    @functools.cached_property
    def dtypes(self) -> tuple[Any, ...]:
        """The element types of the user's arguments."""
        return tuple(a.dtype for a in self.args.avals)

    @functools.cached_property
    def outers(self) -> tuple[int, ...]:
        """The arguments that are outer values, by position."""
        entry, captured = self.program.graph.entry, self.program.graph.captured
        return tuple(entry.params.index(v) for v in self.program.outers if v not in captured)

    @functools.cached_property
    def results(self) -> tuple[ShapedArray, ...]:
        """The types of the result's leaves."""
        avals = zip(self.program.result_avals, self.out.avals, strict=True)
        return tuple(
            ShapedArray(a.shape, a.dtype, weak_type=traced.weak_type) for a, traced in avals
        )

    def result(self, leaves: Sequence[Any]) -> Any:
        """The result of a lane from its leaves."""
        weak = [aval.weak_type for aval in self.out.avals]
        return self.out.tree.unflatten(
            [_compat.weak(x) if w else x for x, w in zip(leaves, weak, strict=True)]
        )

    def first_result(self, leaves: Sequence[Any]) -> Any:
        """The result of the first lane, from leaves with the lanes in front.

        Those of the native machine are NumPy's; they are put on JAX's default device.
        """
        if leaves and isinstance(leaves[0], np.ndarray):
            of_lane = [x.reshape(x.shape[1:]) for x in leaves]
            return self.on_device(of_lane, _compat.Put(default_device()))
        return self.result(_first(leaves))

    def let_go(self) -> None:
        """Forgets what is compiled, and that it stands for the function as it is now."""
        self.closure.let_go()
        self.program.let_go()

    def on_device(self, leaves: Sequence[np.ndarray[Any, Any]], put: _compat.Put) -> Any:
        """The result from NumPy arrays."""
        return self.out.tree.unflatten(list(map(put, leaves, self.results)))


_PASSING = 8
"""Programs of a function that serve one call each and may still be in use."""


class CacheInfo(NamedTuple):
    """Counts of work done once a signature, and again where what a function closes over changes.

    Attributes:
        traces: how often the function was traced.
        compilations: XLA programs compiled for eager calls. Those that `jax.jit` compiles around
            recursive calls are its own, and scalar recursion takes none.
    """

    traces: int
    compilations: int


class Traces(dict[Any, Traced]):
    """What a recursive function has traced, by signature.

    JAX keeps what is compiled for as long as its program, which the program is kept by. Whoever
    lets go of the traces lets go of that too, such as a function that is defined anew.
    """

    def __init__(self) -> None:
        super().__init__()
        self._passing: collections.deque[Program] = collections.deque()
        self._gone = CacheInfo(0, 0)  # what was dropped since

    def info(self) -> CacheInfo:
        """What was traced and compiled since everything was forgotten."""
        kept = {traced.program for traced in list(self.values())}.union(self._passing)
        compiled = sum(map(compiled_programs, kept))
        return CacheInfo(self._gone.traces + len(kept), self._gone.compilations + compiled)

    def current(self, key: Any) -> Traced | None:
        """What was traced for a key, unless what it closes over has changed since."""
        found = self.get(key)
        return found if found is None or found.closure.holds() else None

    def put(self, keys: Sequence[Any], traced: Traced) -> None:
        """Keeps a trace under some keys, in the place of those that are there."""
        for key in keys:
            before = self.get(key)
            if before is not None and before is not traced:
                self.drop(before)
            self[key] = traced

    def keep_for_now(self, traced: Traced) -> None:
        """Keeps what serves one call, such as a step of training, until some more of it follows."""
        self._passing.append(traced.program)
        if len(self._passing) > _PASSING:
            before = self._passing.popleft()
            self._count(before)
            before.let_go()

    def drop(self, traced: Traced) -> None:
        """Forgets one trace."""
        found = [self.pop(k, None) for k, other in list(self.items()) if other is traced]
        if found:
            self._count(traced.program)
        traced.let_go()

    def _count(self, program: Program) -> None:
        traces, compilations = self._gone
        self._gone = CacheInfo(traces + 1, compilations + compiled_programs(program))

    def let_go(self) -> None:
        """Forgets everything."""
        made = list(self.values())
        self.clear()
        self._gone = CacheInfo(0, 0)
        for traced in made:
            traced.let_go()
        while self._passing:
            self._passing.popleft().let_go()

    def __del__(self) -> None:
        self.let_go()


@functools.partial(jax.jit, inline=True)
def _first(arrays: Sequence[Any]) -> list[Any]:
    return [x[0] for x in arrays]
