"""Which recursive program is being traced now, if any.

The context is a JAX user context: its value is part of the cache key of `jit`, so a jitted helper
that is called inside a recursive body is traced anew there instead of being found in the cache
with a body that belongs to another program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from jaxrec.trace._pass import Pass

_context: Any = jax.make_user_context(None)


def current() -> Pass | None:
    """The pass over a recursive body that is running in this thread, or None."""
    return _context.value


def entered(value: Pass | None) -> Any:
    """A context manager inside which `current()` is `value`."""
    return _context(value)
