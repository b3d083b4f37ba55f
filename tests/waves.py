"""Functions that only XLA computes: a program with one of them runs in waves, never natively."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def in_waves(x: Any) -> Any:
    """The same value, by an operation that the native machine does not have."""
    x = jnp.asarray(x)
    exact = jnp.finfo(x.dtype)
    return jax.lax.reduce_precision(x, exact.nexp, exact.nmant)


def sine(x: Any) -> Any:
    return jnp.sin(in_waves(x))


def tanh(x: Any) -> Any:
    return jnp.tanh(in_waves(x))
