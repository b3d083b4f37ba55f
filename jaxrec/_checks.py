"""What `jax_debug_nans` and `jax_debug_infs` look for, in the results of an invocation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxrec import _compat


def checks() -> tuple[bool, bool]:
    """Whether results are searched for NaN, and for infinities."""
    return bool(_compat.setting("jax_debug_nans")), bool(_compat.setting("jax_debug_infs"))


def check_results(function: str, made: Sequence[Any]) -> None:
    """Searches results.

    Args:
        function: whose they are.
        made: the results, arrays.

    Raises:
        FloatingPointError: one is what is looked for.
    """
    kinds = zip(("nan", "inf"), (jnp.isnan, jnp.isinf), checks(), strict=True)
    for name, is_bad, is_looked_for in kinds:
        if is_looked_for and any(bool(is_bad(x).any()) for x in made if _may_be_bad(x)):
            raise FloatingPointError(
                f"invalid value ({name}) in the result of {function}. "
                'jr.executor("reference") tells which operation makes it.'
            )


def _may_be_bad(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)
