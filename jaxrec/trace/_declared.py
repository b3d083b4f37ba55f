"""The type of a result as the user declares it: `rec_fn(out=...)`."""

from __future__ import annotations

import jax
from jax.core import ShapedArray

from jaxrec._errors import SignatureError
from jaxrec.trace._instance import Instance
from jaxrec.trace._signature import Signature


def declared(instance: Instance) -> Signature | None:
    """The type that `out=` declares for a function with its arguments; None without `out=`.

    Raises:
        SignatureError: `out=` fails, or gives no type.
    """
    out = instance.definition.out
    if out is None:
        return None
    if callable(out) and not isinstance(out, jax.ShapeDtypeStruct):
        try:
            out = out(*jax.tree.unflatten(instance.args.tree, instance.args.leaves))
        except Exception as error:
            raise SignatureError(
                f"{instance.name}: out= failed: {type(error).__name__}: {error}. It is called "
                "with the arguments as jax.ShapeDtypeStruct, and gives the result as a pytree "
                "of them."
            ) from error
    leaves, tree = jax.tree.flatten(out)
    for leaf in leaves:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")):
            raise SignatureError(
                f"{instance.name}: out= gives {leaf!r} of type {type(leaf).__name__}, expected "
                "a pytree of jax.ShapeDtypeStruct"
            )
    return Signature(tree, tuple(ShapedArray(x.shape, x.dtype) for x in leaves))
