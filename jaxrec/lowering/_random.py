"""Random words in the waves of a program for CPU.

`jax.random` computes an element of an array from its index and the key, by a block cipher. XLA
takes 0.2 to 0.5 s to compile it for CPU, for each draw at each width of a wave. On other platforms,
and for arrays that are large, it computes them as `jax.random` has it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import JaxprEqn

from jaxrec import _compat
from jaxrec.schedule._handlers import call_handler

_THREEFRY = "threefry2x32"
_MOST_WORDS = 1 << 16
"""The most blocks of a wave: XLA computes more of them on all cores."""


def is_random(eqn: JaxprEqn) -> bool:
    """Whether an equation makes bits or keys of some keys, and few enough of them."""
    if eqn.primitive.name not in _MAKERS or not _compat.setting("jax_threefry_partitionable"):
        return False
    types: list[Any] = [atom.aval for atom in eqn.invars]
    made: Any = eqn.outvars[0].aval
    each = made.shape[: made.ndim - len(eqn.params.get("shape", ()))]
    return (
        types[0].dtype == _key_type()
        and all(x.shape in ((), each) for x in types)
        and made.size <= _MOST_WORDS
    )


def random_words(eqn: JaxprEqn, keys: Any, *words: Any) -> Any:
    """What an equation makes for which `is_random` holds."""
    make, is_bits = _MAKERS[eqn.primitive.name], eqn.primitive.name == "random_bits"

    def on_cpu(data: Any, *words: Any) -> Any:
        return make(data, *words, **eqn.params)

    def elsewhere(data: Any, *words: Any) -> Any:
        keys = jax.random.wrap_key_data(data, impl=_THREEFRY)
        out = eqn.primitive.bind(keys, *words, **eqn.params)
        return out if is_bits else jax.random.key_data(out)

    operands = jax.random.key_data(keys), *words
    out = lax.platform_dependent(*operands, cpu=on_cpu, default=elsewhere)
    return out if is_bits else jax.random.wrap_key_data(out, impl=_THREEFRY)


@functools.cache
def _key_type() -> Any:
    return jax.eval_shape(lambda: jax.random.key(0, impl=_THREEFRY)).dtype


def _blocks(data: Any, first: Any, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Both words of blocks, an array of the shape for each key."""
    batch = data.shape[:-1]
    made = jax.ShapeDtypeStruct((math.prod(batch), math.prod(shape)), jnp.uint32)
    operands = data.reshape(-1, 2), first.reshape(-1)
    high, low = call_handler("jaxrec_random", [made, made], *operands)
    return high.reshape(*batch, *shape), low.reshape(*batch, *shape)


def _bits(data: Any, *, shape: tuple[int, ...], bit_width: int) -> Any:
    high, low = _blocks(data, jnp.zeros_like(data[..., 0]), shape)
    dtype = jnp.dtype(f"uint{bit_width}")
    if bit_width == 64:
        return (high.astype(dtype) << 32) | low.astype(dtype)
    return (high ^ low).astype(dtype)


def _split(data: Any, *, shape: tuple[int, ...]) -> Any:
    return jnp.stack(_blocks(data, jnp.zeros_like(data[..., 0]), shape), axis=-1)


def _folded(data: Any, word: Any) -> Any:
    each = np.broadcast_shapes(data.shape[:-1], word.shape)
    first = jnp.broadcast_to(word.astype(jnp.uint32), each)
    return jnp.stack(_blocks(jnp.broadcast_to(data, (*each, 2)), first, ()), axis=-1)


_MAKERS: dict[str, Callable[..., Any]] = {
    "random_bits": _bits,
    "random_split": _split,
    "random_fold_in": _folded,
}
