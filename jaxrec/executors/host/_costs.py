"""What a wave costs: of each cell, at each width, by itself and beside those of other workers."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrec._errors import RUN_TIME_ERRORS
from jaxrec.executors.host._tasks import compiler_options
from jaxrec.invocation._params import Params
from jaxrec.lowering._cell import wave_function
from jaxrec.lowering._outers import outer_by_row
from jaxrec.lowering._quick import quick
from jaxrec.lowering._rows import numbers
from jaxrec.split._cost import cell_flops
from jaxrec.split._program import CellSpec, Program

COPY_SECONDS = 60e-6
"""Carrying rows from one domain to another: two launches."""

_LAUNCH_SECONDS = 25e-6
"""A launch, during which its worker has the interpreter lock."""

_LAUNCHES_PER_WAVE = 0.25
"""As a rule, where waves that follow one another are launched together."""

_FLOPS = 4e10
"""Of one core, in operations a second, for a first guess."""

_SPLIT_FLOPS = 2e7
"""The arithmetic of a wave that XLA divides among the cores."""

_MEASURED_SECONDS = 0.01
"""Work from which on measuring costs pays."""

_WAVES = 10
"""Waves that are measured in one launch, at most: their rows take memory."""

_LAUNCH_MEASURED = 5e-3
"""Seconds that a launch that is measured should take, at most."""

_LAUNCHES, _TRIES = 4, 5
"""Launches one after the other of which the time is taken, and how often it is, at most."""

_ENOUGH = 0.1
"""Seconds after which the time is not taken once more."""


class Costs(NamedTuple):
    """Seconds of a wave of each width, cell after cell.

    Attributes:
        alone: when nothing else runs.
        together: when every worker runs one.
        worth: the time that a division takes, at most, of that without it, to be worth it.
    """

    alone: list[float]
    together: list[float]
    worth: float


def pays(params: Params, fired: Sequence[int], widths: Sequence[int]) -> bool:
    """Whether measuring pays: it is done once, and where there is little to compute not at all."""
    assert params.host is not None
    guessed = guessed_costs(params.program, widths, params.host.workers).alone
    return least_seconds(fired, widths, guessed) >= _MEASURED_SECONDS


def least_seconds(fired: Sequence[int], widths: Sequence[int], costs: Sequence[float]) -> float:
    """What cells take at least: every row in a wave of the width that suits it best.

    Args:
        fired: for each cell, its rows.
        widths: widths of waves.
        costs: of a wave of each cell at each width, cell after cell.
    """
    n = len(widths)
    each = [min(costs[k + j] / widths[j] for j in range(n)) for k in range(0, len(costs), n)]
    return sum(rows * cost for rows, cost in zip(fired, each, strict=True))


def measured_costs(
    params: Params, operands: Sequence[Any], fired: Sequence[int], widths: Sequence[int]
) -> Costs:
    """The costs of all cells, measured if they are fired and may run on zeros."""
    assert params.host is not None
    guessed = guessed_costs(params.program, widths, params.host.workers)
    alone, together = list(guessed.alone), list(guessed.together)
    waits = params.program.waits
    for k, spec in enumerate(params.program.cells):
        for j, width in enumerate(widths):
            if fired[k] and not waits[k]:
                at = k * len(widths) + j
                # A cell that cannot run tells so when it is launched, with its call path.
                with contextlib.suppress(*RUN_TIME_ERRORS):
                    found = _measured(params, operands, spec, width, guessed.together[at])
                    alone[at], together[at] = found
    return Costs(alone, together, worth=0.85)


def guessed_costs(program: Program, widths: Sequence[int], workers: int) -> Costs:
    """The costs of all cells, from their arithmetic."""
    key = ("host guess", tuple(widths), workers)
    return program.cache.once(key, lambda: _guessed(program, widths, workers))


def _guessed(program: Program, widths: Sequence[int], workers: int) -> Costs:
    alone, together = [], []
    for spec in program.cells:
        flops = cell_flops(spec.cell)
        for width in widths:
            seconds = width * flops / _FLOPS
            split = width * flops > _SPLIT_FLOPS
            alone.append(_LAUNCH_SECONDS + (seconds / workers if split else seconds))
            together.append(_LAUNCH_SECONDS + seconds)
    return Costs(alone, together, worth=0.6)


def _measured(
    params: Params, operands: Sequence[Any], spec: CellSpec, width: int, guess: float
) -> tuple[float, float]:
    host = params.host
    assert host is not None
    types = tuple((operands[p].shape, operands[p].dtype) for p in spec.outers)
    workers, device = host.workers, host.devices[host.device_of(spec.cell.name)]
    one_thread = host.fills_cores(workers)

    def measured() -> tuple[float, float]:
        waves = int(min(max(_LAUNCH_MEASURED / guess, 1), _WAVES))
        # What XLA does not divide among its threads takes as long without them.
        together = _runnable(params, operands, spec, width, waves, device, one_thread)
        divided = one_thread and width * cell_flops(spec.cell) > _SPLIT_FLOPS
        alone = _runnable(params, operands, spec, width, waves, device) if divided else together
        found = _seconds(alone, 1, waves)
        return found, found if workers == 1 else _seconds(together, workers, waves)

    key = ("host costs", spec.cell.index, width, types, workers, device, one_thread)
    return params.program.cache.once(key, measured)


def _runnable(
    params: Params,
    operands: Sequence[Any],
    spec: CellSpec,
    width: int,
    waves: int,
    device: Any,
    one_thread: bool = False,
) -> Callable[[], Any]:
    """A launch of some waves of a cell, on zeros, compiled for a device."""
    by_row = outer_by_row(spec, params.patterns)
    wave = quick(wave_function(params.program, spec, by_row, width))
    classes = params.program.classes
    outers = [
        jnp.broadcast_to(operands[p][0], (width, *operands[p].shape[1:])) if own else operands[p]
        for p, own in zip(spec.outers, by_row, strict=True)
    ]
    exports = [jnp.zeros((waves, width), v.aval.dtype) for v in spec.cell.exports]
    inputs = [_blank((waves, width), classes[c]) for c in spec.inputs]
    number = numbers(waves)  # so that there is something to map over

    def run(outers: Any, *rows: Any) -> Any:
        return jax.lax.map(lambda row: wave(outers, *row[1:]), rows)

    given = jax.device_put((outers, number, exports, inputs), device)
    # Not `jax.jit`, which would compile once more for threads without the settings of this one.
    compiled = jax.jit(run).lower(*given).compile(compiler_options=compiler_options(one_thread))
    jax.block_until_ready(compiled(*given))
    return lambda: compiled(*given)


def _blank(rows: tuple[int, ...], aval: Any) -> Any:
    if jnp.issubdtype(aval.dtype, jax.dtypes.extended):
        return jax.random.split(jax.random.key(0), (*rows, *aval.shape))
    return jnp.zeros((*rows, *aval.shape), aval.dtype)


def _seconds(run: Callable[[], Any], threads: int, waves: int) -> float:
    """The time of a wave when so many threads launch them; the least of some tries."""

    def work() -> None:
        out = None
        for _ in range(_LAUNCHES):
            out = run()
        jax.block_until_ready(out)

    times, end = [_timed(work, threads)], time.perf_counter() + _ENOUGH
    while len(times) < _TRIES and time.perf_counter() < end:
        times.append(_timed(work, threads))
    return min(times) / (_LAUNCHES * waves) + _LAUNCHES_PER_WAVE * _LAUNCH_SECONDS


def _timed(work: Callable[[], None], threads: int) -> float:
    """The time until the last of so many threads is done, which start together."""
    ready = threading.Barrier(threads)

    def timed() -> float:
        ready.wait()
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    with ThreadPoolExecutor(threads) as pool:
        try:
            return max(done.result() for done in [pool.submit(timed) for _ in range(threads)])
        except BaseException:
            # An interrupt, or no more threads to be had: those that there are wait for the others.
            ready.abort()
            raise
