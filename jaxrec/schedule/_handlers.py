"""The C++ handlers that compiled programs call, on CPU and on NVIDIA's GPUs.

On a GPU they copy the control values that they read to the host, and what they make to the device;
those that only move rows are for CPU alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.backend import backends

from jaxrec import _core

PLATFORMS = tuple(_core.ffi_handlers())
"""The platforms whose programs can call the scheduler, by the names of `jax.lax`."""

_OF_XLA = {"cpu": "cpu", "cuda": "CUDA"}


def handler_names() -> list[str]:
    """The names of all handlers."""
    return sorted({name for handlers in _core.ffi_handlers().values() for name in handlers})


def register_handlers() -> None:
    """Makes the scheduler known to the programs of this process; again, it is harmless.

    Recursive functions do so themselves. A process that runs nothing but programs which another one
    has exported calls it before: `jaxrec.register_handlers()`, then
    `jax.export.deserialize(...).call(...)`.

    Example:
        >>> import jaxrec as jr
        >>> jr.register_handlers()
    """
    # XLA takes a handler after the types of its state. JAX would keep that order only where its
    # devices are there: what is registered before, it hands over with the handlers first.
    for platform in set(PLATFORMS) & set(backends()):
        for name, described in _core.ffi_types()[platform].items():
            jax.ffi.register_ffi_type(name, described, platform=_OF_XLA[platform])
        for name, handler in _core.ffi_handlers()[platform].items():
            jax.ffi.register_ffi_target(name, handler, platform=_OF_XLA[platform])


def by_handler(
    run: Callable[..., Any], otherwise: Callable[..., Any], operands: Sequence[Any]
) -> Any:
    """Calls a function of arrays where programs can call the scheduler, another one elsewhere."""
    return jax.lax.platform_dependent(*operands, default=otherwise, **dict.fromkeys(PLATFORMS, run))


def call_handler(name: str, types: Any, *operands: Any, **attributes: Any) -> Any:
    """Calls a handler from the program that is traced; under `vmap` once an example.

    Args:
        name: the handler.
        types: the type of its result, or a list of types for a list of results.
        operands: the arrays that it takes.
        attributes: what it takes besides, fixed in the program.
    """
    register_handlers()
    return jax.ffi.ffi_call(name, types, vmap_method="sequential")(*operands, **attributes)
