"""The C++ handlers that compiled programs call on CPU."""

import jax

from jaxrec import _core


def register_handlers() -> None:
    """Makes the handlers known to XLA; registering them again is harmless."""
    for name, handler in _core.ffi_handlers().items():
        jax.ffi.register_ffi_target(name, handler, platform="cpu")
