"""Calling the native machine: inside a compiled program, and on the host.

On CPU and on NVIDIA's GPUs the XLA program calls it as an FFI handler. On other platforms it calls
back to the host, where the same core runs on NumPy arrays; neither re-enters JAX.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray

from jaxrec import _core
from jaxrec._errors import ErrorsOfTheCore
from jaxrec.schedule._handlers import by_handler, call_handler
from jaxrec.schedule._limits import limits_for
from jaxrec.schedule._plan import LanePattern, lane_numbers
from jaxrec.split._native import NativeProgram

_TARGET = "jaxrec_native"


@dataclasses.dataclass(frozen=True)
class NativeCall:
    """An invocation of a native program without its arrays.

    Attributes:
        program: what is invoked.
        lanes: number of roots.
        patterns: for each outer array how lanes index its leading axis; None if all lanes share it.
        max_calls: the calls that the user allows, times `rows`; None: any number.
        rows: how many invocations that make the same calls are run at once; messages speak of one.
        workers: threads; 0: as many as there are cores, at most 8.
        types: of the results, the lanes in front.
    """

    program: NativeProgram
    lanes: int
    patterns: tuple[LanePattern | None, ...]
    max_calls: int | None
    rows: int
    workers: int
    types: tuple[ShapedArray, ...]

    @functools.cached_property
    def settings(self) -> dict[str, Any]:
        """What the machine is told beside arrays."""
        limits = limits_for(self.max_calls)
        return {
            "lanes": self.lanes,
            "max_calls": -1 if self.max_calls is None else self.max_calls,
            "rows": self.rows,
            "depth_limit": limits.depth,
            # Who declares no bound may mean a run of any length, which costs time but no memory.
            "call_limit": -1 if self.max_calls is None else limits.calls,
            "workers": self.workers,
        }

    @functools.cached_property
    def outer_lanes(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Two numbers for each outer array."""
        return lane_numbers(self.patterns)

    @functools.cached_property
    def function(self) -> _core.NativeFunction:
        """What the machine keeps of all that, the program decoded."""
        program = self.program
        return _core.NativeFunction(program.words, program.names, self.outer_lanes, **self.settings)

    def run(self, roots: list[Any], outers: Sequence[Any], results: Sequence[Any]) -> None:
        """Runs the machine on NumPy arrays; for one lane roots may be numbers of Python.

        Raises:
            JaxRecError: as the machine reports it, in its own class.
            OverflowError: a number does not fit the type of its root.
        """
        with ErrorsOfTheCore():
            self.function.run(roots, outers, results)


def run_in_program(call: NativeCall, roots: Sequence[Any], outers: Sequence[Any]) -> list[Any]:
    """Stages the machine into the program that is being traced.

    Args:
        call: what is invoked.
        roots: arguments of the roots, each with the lanes in front.
        outers: the arrays that all calls read.
    """
    shapes = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in call.types]

    def inside(*arrays: Any) -> list[Any]:
        fixed = {name: np.int64(x) for name, x in call.settings.items()}
        fixed |= {"names": call.program.names, "outer_lanes": call.outer_lanes}
        return list(call_handler(_TARGET, shapes, *arrays, **fixed))

    first = 1 + len(roots)

    def elsewhere(*arrays: Any) -> list[Any]:
        # JAX keeps this function: it must not hold tracers.
        def on_host(*given: Any) -> list[Any]:
            return run_on_host(call, given[1:first], given[first:])

        return jax.pure_callback(on_host, shapes, *arrays, vmap_method="sequential")

    # As halves: without x64 JAX has no 64-bit integers.
    operands = (call.program.words.view(np.int32), *roots, *outers)
    return list(by_handler(inside, elsewhere, operands))


def run_on_host(call: NativeCall, roots: Sequence[Any], outers: Sequence[Any]) -> list[Any]:
    """Runs the machine now; arguments as for `run_in_program`.

    Returns:
        The results, as NumPy arrays.

    Raises:
        JaxRecError: as the machine reports it, in its own class.
    """
    results = [np.empty(t.shape, t.dtype) for t in call.types]
    call.run(on_host(roots), on_host(outers), results)
    return results


def on_host(arrays: Sequence[Any]) -> list[Any]:
    """Arrays as the machine reads them."""
    return [np.asarray(x, order="C") for x in arrays]
