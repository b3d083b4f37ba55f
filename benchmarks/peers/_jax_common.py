"""What the two JAX peers share: padding to buckets, and Adagrad that updates words by row."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks._models import EPSILON, LEARNING_RATE, Params

Arrays = dict[str, Array]
Step = tuple[Arrays, Arrays, Array]
"""New parameters, new Adagrad sums, and the loss."""


class Weights:
    """Parameters and Adagrad sums, replaced by every step."""

    def __init__(self, params: Params) -> None:
        self.params: Arrays = {name: jnp.array(value) for name, value in params.items()}
        self.totals: Arrays = jax.tree.map(jnp.zeros_like, self.params)


def bucket(size: int) -> int:
    """Rounds up to an eighth of the next power of two, so that few shapes occur."""
    step = max(1, 2 ** (size - 1).bit_length() // 8)
    return -(-size // step) * step


def padded(values: np.ndarray, size: int, fill: int) -> np.ndarray:
    """`values` as int32 with `fill` behind, shape [size]."""
    out = np.full(size, fill, np.int32)
    out[: len(values)] = values
    return out


def word_rows(table: Array, words: Array) -> Array:
    """The rows of `words`, each word once; padding names the row past the table's end."""
    return table.at[words].get(mode="clip", indices_are_sorted=True)


def full_table(table: Array, words: Array, rows: Array) -> Array:
    """The gradient of the whole table from that of the rows of `words`."""
    return jnp.zeros_like(table).at[words].add(rows, mode="drop")


def adagrad(params: Arrays, totals: Arrays, grads: Arrays, words: Array) -> tuple[Arrays, Arrays]:
    """One step; `grads["embed"]` holds the rows of `words`, which alone are updated."""
    dense = params | {"embed": word_rows(params["embed"], words)}
    sums = totals | {"embed": word_rows(totals["embed"], words)}
    sums = {name: sums[name] + grads[name] ** 2 for name in params}
    new = {n: dense[n] - LEARNING_RATE * grads[n] / (jnp.sqrt(sums[n]) + EPSILON) for n in params}
    new["embed"] = _write_rows(params["embed"], words, new["embed"])
    sums["embed"] = _write_rows(totals["embed"], words, sums["embed"])
    return new, sums


def _write_rows(table: Array, words: Array, rows: Array) -> Array:
    return table.at[words].set(rows, mode="drop", unique_indices=True, indices_are_sorted=True)
