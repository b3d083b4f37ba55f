"""Every call of a recursion, not only the root's: for losses on every node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxrec._errors import SignatureError
from jaxrec._rec_fn import RecFn


def collect(f: Any, in_axes: Any = None) -> Callable[..., Any]:
    """Makes a function that also returns every call that `f` makes.

    Args:
        f: a `rec_fn`.
        in_axes: as for `jax.vmap`: which axes of the arguments are lanes; None for one call.

    Returns:
        A function of the arguments of `f` that returns `(result, calls)`: the result of `f` (or of
        `jax.vmap(f, in_axes)`; arguments by keyword are not mapped), and the calls of all lanes
        together, in depth-first order, each field with a leading axis `[max_calls]`: `calls.args`,
        structured as the arguments by position with None for every leaf that is not a control
        scalar of a call, or for an argument of a class that takes no None; `calls.results`;
        `calls.lane`; `calls.valid`. Calls of other functions of a mutually recursive group are not
        reported. Differentiable in the results.

    Raises:
        SignatureError: `f` is not a `rec_fn`, or `in_axes` does not fit the arguments.
        CapacityError: as for `f`.
        UnsupportedError: `f` calls itself with other static arguments, or in a derivative rule.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def tree_sum(tree, i):
        ...     def node():
        ...         return tree_sum(tree, tree["left"][i]) + tree_sum(tree, tree["right"][i])
        ...     return jr.cond(tree["left"][i] < 0, lambda: tree["value"][i], node)
        >>> tree = dict(left=jnp.array([1, -1, -1]), right=jnp.array([2, -1, -1]),
        ...             value=jnp.array([0.0, 3.0, 4.0]))
        >>> total, calls = jr.collect(tree_sum)(tree, 0)
        >>> calls.results.tolist(), calls.args[1].tolist()
        ([7.0, 3.0, 4.0], [0, 1, 2])
    """
    if not isinstance(f, RecFn):
        raise SignatureError(
            f"collect takes a rec_fn, got {f!r} of type {type(f).__name__}; to map over examples "
            "pass in_axes to collect itself instead of wrapping the function in jax.vmap"
        )

    def collected(*args: Any, **kwargs: Any) -> Any:
        return f.collect(args, kwargs, in_axes)

    collected.__name__ = f"collect_{getattr(f, '__name__', 'rec_fn')}"
    return collected
