"""A random key of its own for every call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec._errors import SignatureError
from jaxrec.trace import _context
from jaxrec.trace._call import call_path
from jaxrec.trace._paths import ROOT, fold_path


def call_key(key: Any) -> Any:
    """A random key for this call: `key` folded with the call path.

    Inside the body of a `rec_fn`, two calls of one invocation get different keys, since they are
    reached through different call sites; so do two iterations of a loop. The key is a function of
    `key` and the path alone: it is the same on every executor, eagerly and under `jit`, for
    every schedule, and in every lane of a `jax.vmap` of the whole function (give the lanes
    different keys to have them differ). Two uses in one call get the same key; split it to draw
    more than once. A change of the body that adds or removes call sites changes the keys. With
    calls of equal arguments shared (`memo`), calls with different paths are different calls.

    That one key gives one number wherever it is used holds of JAX's default generator, threefry. Of
    `rbg` and `unsafe_rbg` JAX promises it neither under `vmap` nor, so, in calls that run as one
    batch: there the numbers depend on the schedule and the executor.

    Args:
        key: a key of `jax.random`: a typed key, or an array `uint32[2]`.

    Returns:
        A key of the same type. Outside a `rec_fn` it is that of the root call.

    Raises:
        SignatureError: `key` is no key.

    Example:
        >>> import jax
        >>> import jaxrec as jr
        >>> @jr.rec_fn(max_calls=64)
        ... def branching(key, n):
        ...     noise = jax.random.normal(jr.call_key(key))
        ...     def split():
        ...         return noise + branching(key, n - 1) + branching(key, n - 1)
        ...     return jr.cond(n == 0, lambda: noise, split)
        >>> key = jax.random.key(0)
        >>> bool(branching(key, 3) == jax.jit(branching)(key, 3))
        True

    Source: splitting a generator along the tree of calls follows Claessen & Palka, "Splittable
    pseudorandom number generators using cryptographic hashing" (Haskell 2013).
    """
    _check(key)
    running = _context.current()
    path = ROOT if running is None or running.probing else call_path()
    return fold_path(key, tuple(path))


def _check(key: Any) -> None:
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", ())
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    if not ((typed and shape == ()) or (dtype == np.uint32 and len(shape) == 1)):
        got = repr(key) if dtype is None else f"an array {dtype}{list(shape)}"
        raise SignatureError(
            f"jaxrec.call_key got {got}, expected one random key, such as jax.random.key(0). Pass "
            "the key as an argument of the recursive function."
        )
