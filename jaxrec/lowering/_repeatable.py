"""Whether rows that no call stands for may take part in the backward pass of a cell.

They repeat a row that a call stands for, with cotangents of zero. That adds nothing to a sum over
rows if derivatives are linear; else such rows must be left out.
"""

from __future__ import annotations

from typing import Any

from jaxrec import _linear
from jaxrec.graph._ir import names_of
from jaxrec.lowering._cell import row_function
from jaxrec.split._axes import outer_type
from jaxrec.split._program import CellSpec, Program


def is_repeatable(program: Program, spec: CellSpec) -> bool:
    """Whether the backward pass of a cell is known to be linear."""
    if not any(_linear.has_backward_rule(names_of(op)) for op in spec.cell.ops):
        return True
    return program.cache.once(("is linear", spec.cell.index), lambda: _analyse(program, spec))


def _analyse(program: Program, spec: CellSpec) -> bool:
    outers = [outer_type(program.outers[k].aval, k, program.axes) for k in spec.outers]
    exports = [v.aval for v in spec.cell.exports]
    types = [*outers, *exports, *(program.classes[c] for c in spec.inputs)]
    ends = len(outers), len(outers) + len(exports)
    row = row_function(program, spec)

    def run(*given: Any) -> list[Any]:
        return row(given[: ends[0]], given[ends[0] : ends[1]], given[ends[1] :])

    return _linear.is_linear(run, types)
