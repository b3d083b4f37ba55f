"""Sharing: calls of a `memo` function with equal control arguments are one call.

Two calls give the same result if all their arguments are the same. Control arguments can be
compared before anything is computed, and outer values are the same by definition; an array that
differs from call to call is neither.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    raise SignatureError(
        f"calls of {function.name} are shared (memo=True), but these arguments differ from call to "
        f"call and are not integers that the scheduler computes:\n  {lines}\n"
        "Calls can be shared if every argument is an index or a counter, by which they are "
        "compared, or the same array in all calls. Pass such an array on unchanged, look it up by "
        "an index, or leave out memo=True."
    )
