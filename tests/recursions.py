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
