"""The C++ handlers that compiled programs call on CPU."""

from typing import Any

import jax

from jaxrec import _core


def register_handlers() -> None:
    """Makes the handlers known to XLA; registering them again is harmless."""
    # XLA takes a handler after the types of its state. JAX would keep that order only where its
    # devices are there: what is registered before, it hands over with the handlers first.
    jax.devices()
    for name, described in _core.ffi_types().items():
        jax.ffi.register_ffi_type(name, described, platform="cpu")
    for name, handler in _core.ffi_handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform="cpu")


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
