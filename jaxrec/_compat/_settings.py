"""Settings of JAX and contexts, as they hold in this thread."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import api as _api
from jax._src import config as _config
from jax._src import core as _core

_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))

_trace_context: Any = _config.trace_context


def setting(name: str) -> Any:
    """A setting of JAX as it holds in this thread; `jax.config.values` would copy them all."""
    return getattr(jax.config, name)


def context() -> Any:
    """The settings of JAX and the user contexts that hold in this thread; hashable."""
    return _trace_context()


def settings(without: type) -> tuple[Any, ...]:
    """The same less the named axes around and user contexts whose values are of one type."""
    left_out = _core.AxisEnv, without
    return tuple(x for x in _trace_context() if not isinstance(x, left_out))


def is_wide(value: Any) -> bool:
    """Whether a value, or one of a type, has 64-bit elements."""
    return getattr(value, "dtype", None) in _WIDE


def with_types_of(values: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """A context that has 64-bit types if some value has one.

    A pullback may be called outside of the `jax.enable_x64` that it was made in.
    """
    are_wide = any(is_wide(x) and not _is_numpy(x) for x in values)
    return jax.enable_x64(True) if are_wide else contextlib.nullcontext()


def _is_numpy(value: Any) -> bool:
    """Whether a value is of NumPy, whose types are of 64 bits where nobody asks for them."""
    return isinstance(value, np.ndarray | np.generic)


@contextlib.contextmanager
def unguarded() -> Iterator[None]:
    """A context in which keys may be used twice, and values of the host be put on a device."""
    with contextlib.ExitStack() as stack:
        if setting("jax_debug_key_reuse"):
            stack.enter_context(jax.debug_key_reuse(False))
        if setting("jax_transfer_guard_host_to_device"):
            stack.enter_context(jax.transfer_guard_host_to_device("allow"))
        yield


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """A context in which results are not searched for NaN and infinity, in this thread.

    Where `jax_debug_nans` is set for the whole process, JAX would not check the results of compiled
    functions in this thread ever again after `with jax.debug_nans(False)`.
    """
    hook = vars(_api)["_post_hook_state"]
    before = hook.get_local()
    try:
        with jax.debug_nans(False), jax.debug_infs(False):
            yield
    finally:
        hook.set_local(before)


def compiled_count(fun: Any) -> int:
    """The programs compiled for a function that `jax.jit` made; 0 for anything else."""
    return fun._cache_size() if hasattr(fun, "_cache_size") else 0
