"""Which executor runs the calls inside a `with` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from jaxrec._errors import UnsupportedError

EXECUTORS = ("graph", "reference")

_context: Any = jax.make_user_context("graph")


@contextlib.contextmanager
def executor(name: str) -> Iterator[None]:
    """Chooses the executor of the recursive calls inside a `with` block.

    Args:
        name: `"graph"`, the default: the whole invocation is one XLA program that runs calls in
            batches. `"reference"`: one call at a time, in the order of plain Python recursion;
            slow, and the oracle that everything else is tested against.

    Raises:
        UnsupportedError: there is no executor of this name.

    Example:
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def factorial(n):
        ...     return jr.cond(n == 0, lambda: 1, lambda: n * factorial(n - 1))
        >>> with jr.executor("reference"):
        ...     print(int(factorial(5)))
        120
    """
    if name not in EXECUTORS:
        known = ", ".join(map(repr, EXECUTORS))
        raise UnsupportedError(f"executor {name!r}: expected one of {known}")
    with _context(name):
        yield


def current_executor() -> str:
    """The name of the executor that is chosen here."""
    return _context.value
