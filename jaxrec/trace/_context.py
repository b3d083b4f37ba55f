"""Which recursive program is being traced now, if any.

The context is a JAX user context: its value is part of the cache key of `jit`, so a jitted helper
that is called inside a recursive body is traced anew there instead of being found in the cache
with a body that belongs to another program. JAX keeps what it has met as such a value, so it is a
token, which leads to nothing once the body has been traced.

Most of what bodies call that is jitted, such as functions of `jax.numpy`, knows nothing of
recursion, and JAX's caches hold it for each token for ever. So a token stands for one pass after
another, until it has been asked for its pass from within such a function: what JAX keeps of that
belongs to the pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import jax

from jaxrec import _compat

if TYPE_CHECKING:
    from jaxrec.trace._pass import Pass

_context: Any = jax.make_user_context(None)


class _Token:
    """Stands for a pass while it runs.

    Attributes:
        running: the pass.
        own: the traces of its body and of the branches in it, which no cache keeps.
        is_clean: whether nothing that JAX may keep has asked for the pass.
    """

    def __init__(self) -> None:
        self.running: Pass | None = None
        self.own: list[Any] = []
        self.is_clean = True

    def asked(self) -> Pass | None:
        """The pass, asked for by what is traced now."""
        trace = _compat.current_trace()
        self.is_clean &= any(trace is own for own in self.own)
        return self.running


_free: list[_Token] = []
"""Tokens that stand for no pass now, and of which JAX keeps nothing that belongs to one.

They are of the process, as JAX's caches are, which find again what was traced under one of them.
"""


def current() -> Pass | None:
    """The pass over a recursive body that is running in this thread, or None."""
    token = _context.value
    return None if token is None else token.asked()


def own_trace() -> None:
    """Says that what is traced now is the body of the pass, or a branch: JAX keeps none of it."""
    _context.value.own.append(_compat.current_trace())


def differentiates() -> bool:
    """Whether the running body takes a derivative of what is called now."""
    return _compat.differentiates_inside(_context.value.own)


def choosing() -> Pass | None:
    """The pass whose choices are the graph's: those of what a body differentiates are JAX's."""
    running = current()
    return None if running is None or differentiates() else running


def left() -> contextlib.AbstractContextManager[Any]:
    """A context manager inside which no pass is running."""
    return _context(None)


@contextlib.contextmanager
def entered(value: Pass | None) -> Iterator[None]:
    """A context manager inside which `current()` is `value`."""
    token = _taken()
    token.running = value
    try:
        with _context(token):
            yield
    finally:
        token.running, token.own = None, []
        if token.is_clean:
            _free.append(token)


def _taken() -> _Token:
    try:
        return _free.pop()
    except IndexError:
        return _Token()
