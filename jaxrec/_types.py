"""Kinds of types of values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np


def has_derivative(typed: Any) -> bool:
    """Whether values of a type, or a value, are differentiable: floating or complex numbers."""
    return jnp.issubdtype(typed.dtype, jnp.inexact)


def is_whole(typed: Any) -> bool:
    """Whether values of a type, or a value, are integer or boolean scalars."""
    return not typed.shape and isinstance(typed.dtype, np.dtype) and typed.dtype.kind in "iub"
