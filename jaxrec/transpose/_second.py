"""The backward pass of the program that computes tangents, for second derivatives.

The derivative by x of c . f'(x) v, for a result f(x), a cotangent c and a tangent v, is the
cotangent of x where the tangent of the result has the cotangent c, and the result itself has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxrec.lowering._forward import Scheduled, run_forward
from jaxrec.transpose._backward import Want, run_backward, settle_residuals
from jaxrec.transpose._cells import Backward, residual_cell, residual_tapes
from jaxrec.transpose._unread import without_unread


def run_second(
    at: Scheduled,
    backward: Backward,
    cotangents: Sequence[Any],
    want: Want,
    without: Sequence[int],
) -> tuple[list[Any], list[Any]]:
    """Runs the waves forward and in reverse.

    Args:
        at: the invocation of the program with tangents, see `jaxrec/split/_dual.py`.
        backward: its differentiated cells.
        cotangents: of the differentiable results, as `run_backward` takes them.
        want: what to return.
        without: numbers of the cotangents that stand for none.

    Returns:
        Cotangents of outer values and of data arguments of the roots.
    """
    tapes, kept = run_forward(at, residual_cell(backward), residual_tapes(backward))
    backward, kept = without_unread(backward, without, settle_residuals(at, kept))
    of_tangents = [jnp.stack([jnp.zeros_like(ct), ct], axis=1) for ct in cotangents]
    outer_cts, root_cts = run_backward(at, backward, tapes, kept, of_tangents, want)
    return outer_cts, [both[:, 0] for both in root_cts]
