"""Searching: indices and predicates that follow from what was compared.

Source: Hoare, "Algorithm 65: Find" (CACM 4(7), 1961), for the selection by partition.
"""

import jax
import jax.numpy as jnp

import jaxrec as jr


@jr.rec_fn
def lower_bound(values: jax.Array, wanted: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """The first position from `low` to `high` where a sorted array is at least `wanted`."""

    def halve() -> jax.Array:
        middle = (low + high) // 2
        above = values[middle] >= wanted
        return lower_bound(
            values, wanted, jnp.where(above, low, middle + 1), jnp.where(above, middle, high)
        )

    return jr.cond(low >= high, lambda: low, halve)


@jr.rec_fn
def smallest(values: jax.Array, among: jax.Array, k: jax.Array) -> jax.Array:
    """The k-th smallest of the values ``[n]`` that are `among` (bool ``[n]``), counted from 0.

    The values are parted by the first of them; only the part with the k-th is looked at again.
    """
    pivot = values[jnp.argmax(among)]
    below, above = among & (values < pivot), among & (values > pivot)
    smaller, size = jnp.sum(below), jnp.sum(among)
    not_above = size - jnp.sum(above)

    def upper() -> jax.Array:
        return jr.cond(k < not_above, lambda: pivot, lambda: smallest(values, above, k - not_above))

    return jr.cond(k < smaller, lambda: smallest(values, below, k), upper)
