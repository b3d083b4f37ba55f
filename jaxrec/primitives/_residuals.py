"""The residuals of an invocation, as flat operands: state, schedule, value tapes, residual tapes.

The state, an int32, says which run the others are of; see `MADE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from jaxrec import _compat
from jaxrec._at_rest import counted
from jaxrec._order import hidden_zero
from jaxrec._types import has_derivative
from jaxrec._values import replaced
from jaxrec.invocation._differentiated import Wrt, backward_cells, backward_of
from jaxrec.invocation._params import Params, with_schedule
from jaxrec.lowering._replay import replay
from jaxrec.schedule._layout import make_layout
from jaxrec.schedule._tables import Tables, table_types
from jaxrec.transpose._cells import Backward

MADE, BLANK, UNTAKEN = np.int32(1), np.int32(-1), np.int32(0)
"""States: residuals of a run; of none, as `vmap` leaves them, which makes them afresh where it
needs them; of none, in a branch of JAX that an example did not take. Then the operands are zeros,
as is all that JAX keeps of such a branch, and the invocation must not run on them.
"""

_STATE = ShapedArray((), np.dtype(np.int32))


def residual_types(params: Params, wrt: Wrt, avals: Sequence[Any]) -> list[ShapedArray]:
    """The types of the residuals."""
    if params.executor == "host":
        return _opaque_types(params, wrt, avals)
    backward = backward_of(params, wrt, avals)
    layout, program = backward.layout, params.program
    tables = jax.tree.leaves(table_types(program, layout))
    types = [_STATE, *(ShapedArray(t.shape, t.dtype) for t in tables)]
    for rows, aval in zip(layout.value_rows, program.classes, strict=True):
        types.append(ShapedArray((rows, *aval.shape), aval.dtype))
    for spec in program.cells:
        rows = layout.cell_rows[spec.cell.index]
        for aval in backward.residual_types(spec):
            types.append(ShapedArray((rows, *aval.shape), aval.dtype))
    return types


def _opaque_types(params: Params, wrt: Wrt, avals: Sequence[Any]) -> list[ShapedArray]:
    """On executor "host" only the number of residuals is known before the schedule is."""
    layout = make_layout(params.program, params.lanes, 1, readers=True, platform=params.platform)
    backward = backward_cells(params, layout, wrt, avals)
    kept = sum(len(backward.residual_types(spec)) for spec in params.program.cells)
    assert params.host is not None
    count = 1 + params.host.domains * (len(params.program.classes) + kept)
    return [_STATE, *([ShapedArray((0,), np.dtype(np.uint8))] * count)]


def blank_residuals(types: Sequence[ShapedArray]) -> list[Any]:
    """Residuals of no schedule, in the place of those that `vmap` makes afresh where it needs them.

    A linear function that leaves the `vmap` that it was made in still has them: it then runs the
    invocation once more where it can see that (`state_of`), and gives NaN where it cannot.
    """
    first, *rest = map(_blank, types[1:])
    if first.dtype == np.int32:  # of a schedule of executor "graph": its number of waves
        first = jnp.asarray(first).at[:1].set(-1)
    return [BLANK, first, *rest]


def _blank(aval: ShapedArray) -> Any:
    """Zeros. Arrays of NumPy take no program, but would be constants in one that is recorded."""
    is_known = isinstance(aval.dtype, np.dtype) and not _compat.is_staged()
    return (np if is_known else jnp).zeros(aval.shape, aval.dtype)


def was_run(state: Any) -> bool:
    """Whether an invocation is known to have run."""
    return _compat.is_concrete(state) and int(state) != UNTAKEN


def state_of(residuals: Sequence[Any]) -> int | None:
    """What residuals are of, where that is known."""
    return int(residuals[0]) if _compat.is_concrete(residuals[0]) else None


def split_residuals(
    params: Params, backward: Backward, residuals: Sequence[Any]
) -> tuple[Any, list[Any], list[list[Any]]]:
    like = table_types(params.program, backward.layout)
    count = len(jax.tree.leaves(like))
    tables = jax.tree.unflatten(jax.tree.structure(like), residuals[1 : 1 + count])
    rest = iter(residuals[1 + count :])
    tapes = [next(rest) for _ in params.program.classes]
    kept = [[next(rest) for _ in backward.residual_types(s)] for s in params.program.cells]
    return tables, tapes, kept


class LinearCall:
    """The operands of `rec_linear` or `rec_backward`, taken apart."""

    def __init__(self, operands: Sequence[Any], params: Params, wrt: Wrt, given: int) -> None:
        self.params, self.wrt = params, wrt
        self.primals = list(operands[: params.num_operands])
        self.residuals = list(operands[params.num_operands : len(operands) - given])
        self.given = list(operands[len(operands) - given :])

    @property
    def state(self) -> Any:
        """What the residuals are of."""
        return self.residuals[0]

    def tables(self) -> Tables:
        """The schedule among the residuals."""
        return split_residuals(self.params, self.backward(), self.residuals)[0]

    def backward(self) -> Backward:
        return backward_of(self.params, self.wrt, [_compat.aval_of(x) for x in self.primals])

    def compiled_apart(self, key: tuple[Any, ...], run: Callable[..., Any]) -> Callable[..., Any]:
        """A function of arrays alone as one program, where it is not a part of another.

        What it computes follows from the key. JAX keeps what it makes of this program (derivatives,
        batches, code), and would make it of the operations anew for every call.
        """
        if _compat.is_staged():
            return run
        program = self.params.program
        return program.cache.once((key, self.params, self.wrt), lambda: jax.jit(run))

    @property
    def changed(self) -> list[Any]:
        return [self.primals[k] for k in self.wrt.positions]


def replayed(
    params: Params, tables: Tables, operands: Sequence[Any], positions: Sequence[int]
) -> Any:
    """A function of the operands at `positions` to the differentiable results, for JAX to derive.

    Args:
        params: of the invocation.
        tables: its schedule.
        operands: all of its operands.
        positions: of those that the function is of.
    """

    def run(*changed: Any) -> list[Any]:
        full = replaced(operands, positions, changed)
        outs = replay(with_schedule(params, params.layout(), tables, full))
        return [x for x in outs if has_derivative(x)]

    return run


def moving(params: Params, wrt: Sequence[int], avals: Sequence[Any]) -> tuple[int, ...]:
    """The operands that a derivative is taken by: those asked for, or all that have one.

    Where functions have no derivative before some have been taken, no value may hide that one is.
    """
    if not params.program.counts_orders:
        return tuple(wrt)
    rest = [k for k, aval in enumerate(avals) if params.moves(k, aval) and k not in wrt]
    return (*wrt, *rest)


Derivative = Callable[[Params, Tables, list[Any], list[Any]], list[Any]]
"""A derivative of a replay, from its invocation, schedule, operands and the values given."""


def jvp_of_replay(
    name: str,
    run: Derivative,
    call: LinearCall,
    tables: Tables,
    positions: tuple[int, ...],
    tangents: Sequence[Any],
) -> Any:
    """Differentiates a derivative; residuals are constants.

    Args:
        name: of the derivative.
        run: the derivative.
        call: what it was called with.
        tables: the schedule.
        positions: the operands that it is taken by.
        tangents: of what it was called with.
    """
    count = call.params.num_operands
    start = len(tangents) - len(call.given)
    values = [*call.primals, *call.given]
    moved = [*tangents[:count], *tangents[start:]]
    avals = list(map(_compat.aval_of, values))
    asked = [
        k for k, t in enumerate(moved) if type(t) is not _compat.Zero and has_derivative(avals[k])
    ]
    active = moving(call.params, asked, avals[:count])
    params = call.params.asked_by(positions, tuple(k for k in active if k < count))
    taken = counted if params.program is not call.params.program else lambda fun: fun

    def both(values: list[Any], given: list[Any], tables: Tables) -> Any:
        once = taken(lambda *x: run(params, tables, list(x[:count]), list(x[count:])))
        return jax.jvp(
            lambda *changed: once(*replaced(values, active, changed)),
            [values[k] for k in active],
            given,
        )

    given = [moved[k] if k in asked else hidden_zero(values[k], moved[asked[0]]) for k in active]
    return call.compiled_apart((name, positions, active), taken(both))(values, given, tables)
