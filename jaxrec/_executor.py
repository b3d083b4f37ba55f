"""Which executor runs the calls inside a `with` block."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec._host_options import Device, HostOptions, host_options
from jaxrec.trace._context import current

EXECUTORS = ("graph", "host", "reference")


class Choice(NamedTuple):
    """An executor and its options, if it has any."""

    name: str
    host: HostOptions | None = None


_context: Any = jax.make_user_context(Choice("graph"))


class Executor(contextlib.ContextDecorator, threading.local):
    """Chooses an executor inside a `with` block, or for a function that it decorates.

    The same object may be entered again, also inside of itself and, since every thread has
    attributes of its own, by several threads.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice, self._entered = choice, list[Any]()

    def __enter__(self) -> None:
        running = current()
        if running is not None and not _compat.is_folded(()):
            raise UnsupportedError(
                f'executor("{self._choice.name}") inside the body of {running.name}: all calls '
                "of a recursion run where its outermost one does. Choose an executor there."
            )
        self._entered.append(_context(self._choice))
        self._entered[-1].__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._entered.pop().__exit__(*raised)


def executor(
    name: str,
    *,
    workers: int | None = None,
    devices: Sequence[Device] | None = None,
    place: Callable[[str], Device] | Mapping[str, Device] | None = None,
    policy: str = "adaptive",
) -> Executor:
    """Chooses the executor of the recursive calls inside a `with` block.

    The choice is the thread's, as those of `jax.default_device` and JAX's other contexts are: tasks
    of asyncio share it, so nothing is awaited inside of the block.

    Args:
        name: `"graph"`, the default: the whole invocation is one XLA program that runs calls in
            batches. `"host"`: the same batches, each launched from the host by worker threads that
            steal work from one another. It is for eager calls: `grad`, `vmap` and what is made of
            them may stand around a call, but not `jit`, which is an `UnsupportedError` when it is
            traced. There is no bound on calls but `max_calls=` and the limits on recursion without
            end; memory grows with the calls under way, and under a gradient with all calls.
            `"reference"`: one call at a time, in the order of plain Python recursion; slow, and the
            oracle that everything else is tested against. It takes 4,096 nested calls,
            fewer if their bodies are long or their values large, for a recursion without end, or
            twice as many as `max_calls=` or the arguments allow.
        workers: of executor `"host"`: how many threads launch, or run a recursion over scalars
            for which `rec_fn(workers=)` does not say it; by default one a core.
        devices: of executor `"host"`: the devices that cells may run on. Arguments and results are
            on the first; by default there is only JAX's default device.
        place: of executor `"host"`: the device of each cell, by its name (`f.schedule(...)` and
            `f.profile(...)` show the names); a mapping may leave out cells of the first device. For
            another function JAX compiles anew: pass a mapping, or the same function each time.
        policy: of executor `"host"`: `"adaptive"` decides by measured costs whether ready calls run
            as one wave, are split among the workers, or run alone; `"batch"`, `"split"` and
            `"alone"` always do that.

    Raises:
        UnsupportedError: there is no executor of this name, or it does not have such an option; on
            entering it, that a recursive body does so.

    Example:
        >>> import jax
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def factorial(n):
        ...     return jr.cond(n == 0, lambda: 1, lambda: n * factorial(n - 1))
        >>> with jr.executor("reference"):
        ...     print(int(factorial(5)))
        120
        >>> @jr.rec_fn
        ... def power(x, n):
        ...     return jr.cond(n == 0, lambda: 0 * x + 1, lambda: x * power(x, n - 1))
        >>> with jr.executor("host", workers=2):
        ...     print(int(factorial(6)), float(jax.grad(power)(2.0, 3)))
        720 12.0
    """
    if name not in EXECUTORS:
        known = ", ".join(map(repr, EXECUTORS))
        raise UnsupportedError(f"executor {name!r}: expected one of {known}")
    given = (workers, devices, place, policy)
    if name != "host" and given != (None, None, None, "adaptive"):
        raise UnsupportedError(f'executor {name!r} has no options; those given are for "host"')
    options = host_options(workers, devices, place, policy) if name == "host" else None
    return Executor(Choice(name, options))


def inside_a_body() -> contextlib.AbstractContextManager[Any]:
    """Where a recursion becomes a part of the body of another one, which all executors share."""
    return _context(Choice("graph"))


@contextlib.contextmanager
def inside_a_cell() -> Iterator[None]:
    """Where the rule of a derivative may call a function: it becomes a part of a compiled cell."""
    chosen = current_executor()
    with _context(Choice("graph") if chosen.name == "host" else chosen):
        yield


def current_executor() -> Choice:
    """The executor that is chosen here."""
    chosen = _context.value
    return chosen if chosen.host is None else Choice(chosen.name, chosen.host.here())
