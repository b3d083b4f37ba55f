"""Sharing: calls of a `memo` function with equal control arguments are one call.

Two calls give the same result if all their arguments are the same. Control arguments can be
compared before anything is computed, and outer values are the same by definition; an array that
differs from call to call is neither. Nor is a floating scalar, although its bits could be compared:
calls with equal numbers that were computed differently, such as x and x * x at 1, have equal
results but pass their cotangents on to different places, and one shared result has but the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp

from jaxrec._errors import SignatureError
from jaxrec.graph._ir import Function, Value


def check_shared(function: Function, data: Sequence[Value]) -> None:
    """Checks a function whose parameters `data` travel in tapes.

    Raises:
        SignatureError: it is to be shared, and there are some.
    """
    if not function.memo or not data:
        return
    names = dict(zip(function.params, function.param_names, strict=True))
    lines = "\n  ".join(f"{names[v]} is {v.aval.str_short()}" for v in data)
    floats = [
        names[v] for v in data if not v.aval.shape and jnp.issubdtype(v.aval.dtype, jnp.inexact)
    ]
    why = (
        f"Equal numbers do not make calls equal: {' and '.join(floats)} may depend differently on "
        "what is differentiated. "
        if floats
        else ""
    )
    raise SignatureError(
        f"calls of {function.name} are shared (memo=True), but these arguments differ from call to "
        f"call and are not integers that the scheduler computes:\n  {lines}\n{why}"
        "Calls can be shared if every argument is an index or a counter, by which they are "
        "compared, or the same array in all calls. Pass such an array on unchanged, compute what "
        "differs from an index or look it up by one, or leave out memo=True."
    )
