"""A cell that computes the value of every example; see `jaxrec/split/_examples.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from jaxrec.lowering._dual_cell import PartsFunction
from jaxrec.split._axes import Examples
from jaxrec.split._program import CellSpec, Program

EXAMPLES = "examples of a row"
"""The name of the axis of the examples that a row has values of."""


def example_function(
    program: Program, spec: CellSpec, run: PartsFunction, axis: Examples
) -> PartsFunction:
    """The cell for some examples of one call.

    Args:
        program: the program.
        spec: its cell.
        run: the cell for one example.
        axis: of the examples.
    """
    del program

    def of_examples(
        outers: Sequence[Any], exports: Sequence[Any], rows: Sequence[Any]
    ) -> list[list[Any]]:
        mapped = [0 if k in axis.mapped else None for k in spec.outers[: len(outers)]]
        each = jax.vmap(run, in_axes=(mapped, None, 0), axis_size=axis.size, axis_name=EXAMPLES)
        return each(list(outers), list(exports), list(map(list, rows)))

    return of_examples
