"""Which recursive program is being traced now, if any.

The context is a JAX user context: its value is part of the cache key of `jit`, so a jitted helper
that is called inside a recursive body is traced anew there instead of being found in the cache
with a body that belongs to another program. JAX keeps what it has met as such a value, so it is a
token, which leads to nothing once the body has been traced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from jaxrec.trace._pass import Pass

_context: Any = jax.make_user_context(None)


class _Token:
    """Stands for a pass while it runs."""

    def __init__(self, running: Pass | None) -> None:
        self.running = running


def current() -> Pass | None:
    """The pass over a recursive body that is running in this thread, or None."""
    token = _context.value
    return None if token is None else token.running


@contextlib.contextmanager
def entered(value: Pass | None) -> Iterator[None]:
    """A context manager inside which `current()` is `value`."""
    token = _Token(value)
    try:
        with _context(token):
            yield
    finally:
        token.running = None
