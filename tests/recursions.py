"""Small recursions over a tree and over a counter, for tests of what goes wrong."""

from __future__ import annotations

import jax.numpy as jnp

import jaxrec as jr

TREE = {
    "left": jnp.array([1, -1, -1]),
    "right": jnp.array([2, -1, -1]),
    "x": jnp.array([1.0, 2.0, 3.0]),
}
ONE = jnp.ones(())


def fold(call):
    """A recursion over a tree whose recursive case is `call(itself, w, tree, i)`."""

    @jr.rec_fn
    def fold(w, tree, i):
        return jr.cond(
            tree["left"][i] < 0, lambda: tree["x"][i] * w, lambda: call(fold, w, tree, i)
        )

    return fold


def counting(step):
    """A recursion over a counter whose recursive case is `step(itself, x, n)`."""

    @jr.rec_fn
    def count(x, n):
        return jr.cond(n == 0, lambda: x, lambda: step(count, x, n))

    return count


@jr.rec_fn
def total(w, tree, i):
    def node():
        return total(w, tree, tree["left"][i]) + total(w, tree, tree["right"][i])

    return jr.cond(tree["left"][i] < 0, lambda: tree["x"][i] * w, node)


def swapped(most, *, stepped):
    """A recursion whose cells write tapes by what they read from others: of `(w, n)`, to a scalar.

    Args:
        most: its bound on calls.
        stepped: whether its control depends on computed values.
    """

    @jr.rec_fn(max_calls=most)
    def swapped(w, n, a, b):
        def node():
            left = swapped(w, n - 1, jnp.tanh(b @ w), jnp.tanh(a @ w))
            return jnp.tanh(left + swapped(w, n - 1, jnp.tanh(b), jnp.tanh(left)))

        last = (n == 0) | (jnp.sum(a) > 1e9) if stepped else n == 0
        return jr.cond(last, lambda: jnp.tanh(a - b), node)

    return lambda w, n: swapped(w, n, jnp.ones(9), jnp.zeros(9)).sum()
