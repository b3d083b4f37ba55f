"""Lists of tasks: kernels compiled ahead, and the slots that they read and write."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec import _compat, _core
from jaxrec._checks import checks
from jaxrec.split._cache import Cache

AHEAD = 8
"""Launches of a worker that may be under way: enough to keep XLA busy, few enough to steal from."""

_MOST_TASKS, _MOST_WORDS = 1 << 12, 1 << 22
"""What a list holds before it is run: tasks, and words of their constants."""

KernelFunction = Callable[..., Sequence[Any]]
"""`(constant, *slots) -> [token, *slots written]`, traced."""


@dataclasses.dataclass(frozen=True)
class Label:
    """What a task is, for reports and errors.

    Attributes:
        name: of the cell, or what else it does.
        domain: in which it runs.
        wave: the number of its wave in the schedule, or -1.
        calls: how many calls are in the wave.
        width: rows computed.
        first: of the rows computed, the first one that is a call.
    """

    name: str
    domain: int = 0
    wave: int = -1
    calls: int = 0
    width: int = 0
    first: int = 0


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiled task: where it runs follows from what it was compiled for."""

    run: Callable[..., Any]
    written: tuple[Any, ...]


class TaskList:
    """Tasks in an order in which they could run one after the other.

    Args:
        cache: of the program, for kernels.
        one_thread: whether a kernel computes in one thread, since others keep all cores busy.

    Attributes:
        labels: what each task is.
        values: the slots.
        checks: whether results are searched for NaN, and for infinity.
    """

    def __init__(self, cache: Cache, one_thread: bool = False) -> None:
        self._cache = cache
        self._one_thread = one_thread
        self.checks = checks()
        self._types: list[Any] = []
        self._tasks: list[tuple[Any, ...]] = []
        self._words = 0
        self.labels: list[Label] = []
        self.values: list[Any] = []

    def value(self, value: Any) -> int:
        """A slot that holds an array."""
        return self._slot(jax.ShapeDtypeStruct(value.shape, value.dtype), value)

    def _slot(self, aval: Any, value: Any = None) -> int:
        self._types.append(aval)
        self.values.append(value)
        return len(self.values) - 1

    def add(
        self,
        label: Label,
        key: Any,
        fun: KernelFunction,
        constant: Any,
        reads: Sequence[int],
        updates: Sequence[int] = (),
        device: Any = None,
        cost: float = 1.0,
        frees: Sequence[int] = (),
    ) -> list[int]:
        """Adds a task.

        Args:
            label: what it is.
            key: identifies `fun` among the functions of the program.
            fun: the task; gets the constant, then what it reads, then what it updates.
            constant: an array of the host, or None.
            reads: slots that it reads.
            updates: slots that it reads and writes in place; they are what it returns first.
            device: where it runs.
            cost: an estimate of its time.
            frees: slots that nothing reads afterwards.

        Returns:
            The slots of what it returns besides those it updates.
        """
        slots = [*reads, *updates]
        kernel = self._kernel(key, fun, constant, slots, len(reads), device)
        new = [self._slot(t) for t in kernel.written[len(updates) :]]
        self._tasks.append((kernel.run, constant, slots, [*updates, *new], cost, frees))
        self._words += 0 if constant is None else constant.size
        self.labels.append(label)
        return new

    def launch(
        self,
        key: Any,
        fun: KernelFunction,
        constant: Any,
        reads: Sequence[int],
        updates: Sequence[int],
        device: Any = None,
    ) -> list[Any]:
        """Runs what would be a task at once: its token, and what it returns besides `updates`."""
        slots = [*reads, *updates]
        kernel = self._kernel(key, fun, constant, slots, len(reads), device)
        given = [] if constant is None else [constant]
        with self._scope():
            token, *made = kernel.run(*given, *(self.values[slot] for slot in slots))
        for slot, value in zip(updates, made, strict=False):
            self.values[slot] = value
        return [token, *made[len(updates) :]]

    def replace(self, slot: int, value: Any) -> None:
        """Puts an array of another type into a slot, while there are no tasks."""
        self._types[slot] = jax.ShapeDtypeStruct(value.shape, value.dtype)
        self.values[slot] = value

    def move(self, label: Label, slot: int, device: Any) -> int:
        """Adds a transfer to a device, the last reader of a slot; the slot of the value there."""

        def transfer(value: Any) -> list[Any]:
            moved = jax.device_put(value, device)
            return [moved, moved]

        new = self._slot(self._types[slot])
        self._tasks.append((transfer, None, [slot], [new], 1.0, [slot]))
        self.labels.append(label)
        return new

    def _kernel(
        self,
        key: Any,
        fun: KernelFunction,
        constant: Any,
        slots: Sequence[int],
        reads: int,
        device: Any,
    ) -> Kernel:
        types = [self._types[slot] for slot in slots]
        avals = tuple((t.shape, t.dtype) for t in types)
        size = None if constant is None else constant.shape
        full = ("host", key, avals, size, device, self.checks, self._one_thread)

        def make() -> Kernel:
            options = compiler_options(self._one_thread)
            return _compiled(fun, constant, types, reads, device, options)

        return self._cache.once(full, make)

    @property
    def is_long(self) -> bool:
        """Whether the tasks should run before more are added: a list takes memory."""
        return len(self._tasks) >= _MOST_TASKS or self._words >= _MOST_WORDS

    def run(self, workers: int, ahead: int, check: Any) -> Any:
        """Runs all tasks; the core's report, which has the error if there was one.

        The list is empty afterwards.
        """
        tasks, self._tasks, self.labels, self._words = self._tasks, [], [], 0
        return _core.run_tasks(tasks, self.values, workers, ahead, check, self._scope)

    @property
    def _scope(self) -> Callable[[], Any]:
        """Launches are made with JAX's settings, less the checks of every result.

        Those would look at rows of tapes that nothing has written. And what is compiled ahead runs
        compiled; who wants to see every operation has executor "reference".
        """
        if _compat.setting("jax_disable_jit"):
            return lambda: jax.disable_jit(False)
        return _compat.without_checks if any(self.checks) else contextlib.nullcontext


def compiler_options(one_thread: bool) -> dict[str, Any]:
    """How kernels are compiled: XLA need not divide the work of one among threads of its own.

    Where every core has a kernel to run, those threads would take the cores from each other.
    """
    if not one_thread:
        return {}
    passes = "cpu-parallel-task-assigner"
    return {"xla_cpu_multi_thread_eigen": False, "xla_disable_hlo_passes": passes}


def _compiled(
    fun: KernelFunction,
    constant: Any,
    types: Sequence[Any],
    reads: int,
    device: Any,
    options: dict[str, Any],
) -> Kernel:
    sharding = None if device is None else jax.sharding.SingleDeviceSharding(device)
    first = int(constant is not None)
    args = [jax.ShapeDtypeStruct(t.shape, t.dtype, sharding=sharding) for t in types]
    if first:
        args.insert(0, jax.ShapeDtypeStruct(constant.shape, constant.dtype))
    donated = tuple(range(first + reads, first + len(types)))
    with jax.disable_jit(False):
        lowered = jax.jit(fun, donate_argnums=donated, keep_unused=True).lower(*args)
        written = tuple(lowered.out_info)[1:]
        return Kernel(lowered.compile(compiler_options=options), written)


def token_of(words: Any) -> Any:
    """A scalar that is there when its launch is done."""
    return words[0]


def bad_rows(outs: Sequence[Any], width: int, checks: tuple[bool, bool]) -> Any:
    """For each row of a wave, whether an output has what the checks look for."""
    nans, infs = checks
    bad = jnp.zeros(width, bool)
    for rows in outs:
        if jnp.issubdtype(rows.dtype, jnp.inexact):
            found = jnp.zeros(rows.shape, bool)
            found = found | jnp.isnan(rows) if nans else found
            found = found | jnp.isinf(rows) if infs else found
            bad = bad | found.reshape(width, -1).any(1)
    return bad


def words(*parts: Any) -> Any:
    """Numbers and arrays of words as one constant."""
    return np.concatenate([np.asarray(p, np.int32).reshape(-1) for p in parts])
