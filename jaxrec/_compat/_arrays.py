"""Arrays that are known, and putting them on a device."""

from typing import Any

import jax
import jaxlib.version
import numpy as np
from jax._src import array as _array
from jax._src import lib as _lib
from jax._src.lax.lax import _convert_element_type
from jax.core import ShapedArray, Tracer

_device_put: Any = vars(_lib)["xla_client"].batched_device_put
_knows_host_value = hasattr(_array.ArrayImpl, "_npy_value")

sums_shared_products = jaxlib.version.__version__ != "0.10.2"
"""Whether XLA sums products rightly on CPU that have one factor for many: JAX's issue 39103."""


def is_uncommitted(value: Any) -> bool:
    """Whether a value is an array of JAX that was not put on a device by name."""
    return type(value) is _array.ArrayImpl and not value.committed


class Put:
    """Puts NumPy arrays on a device, not committed to it.

    As `jax.device_put`, which takes longer than a short recursion does.
    """

    def __init__(self, device: Any) -> None:
        self._sharding, self._devices = jax.sharding.SingleDeviceSharding(device), [device]

    def __call__(self, value: np.ndarray[Any, Any], aval: ShapedArray) -> jax.Array:
        """An array of JAX; `value` is never written to again, and is what reading it gives."""
        try:
            array = _device_put(aval, self._sharding, [value], self._devices, False)
        except jax.errors.JaxRuntimeError:  # a guard of transfers lets through what it is told of
            return jax.device_put(value)
        value.flags.writeable = False
        if _knows_host_value:  # else reading makes it, which takes longer
            array._npy_value = value
        return array


def is_concrete(value: Any) -> bool:
    """Whether the elements of a value can be read now."""
    return not isinstance(value, Tracer)


aval_of = jax.typeof


def weak(value: Any) -> Any:
    """A value with the mark of a number of Python, whose type gives way to those of arrays."""
    return _convert_element_type(value, value.dtype, weak_type=True)


def typed(value: Any) -> Any:
    """A value as JAX takes it: `vmap` maps over arrays of NumPy of 64 bits, which it calls 32."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    return np.asarray(value, aval_of(value).dtype)
