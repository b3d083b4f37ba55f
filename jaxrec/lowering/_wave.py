"""What a wave reads and writes: blocks of table rows and of tape rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxrec import _compat
from jaxrec.lowering._rows import gather
from jaxrec.schedule._handlers import call_handler
from jaxrec.schedule._layout import KIND, Layout, Tables
from jaxrec.schedule._plan import LanePattern
from jaxrec.split._program import CellSpec, Program

Body = Callable[[Any, Any], Any]


def blank_tapes(rows: Sequence[int], avals: Sequence[Any]) -> list[Any]:
    """Tapes of zeros: for each, one row of type `aval` for each row number."""
    return [_blank(n, aval) for n, aval in zip(rows, avals, strict=True)]


def empty_tapes(rows: Sequence[int], avals: Sequence[Any]) -> list[Any]:
    """Tapes whose rows may hold anything until they are written.

    Filling tapes with zeros takes as long as a tenth of a training step. On CPU they are left as
    they are allocated. Under `jax_debug_nans` they are zeros, since rows that are never read must
    not look like a NaN that the user made.
    """
    if any(_compat.setting(name) for name in ("jax_debug_nans", "jax_debug_infs")):
        return blank_tapes(rows, avals)

    def on_cpu() -> list[Any]:
        plain = [k for k, aval in enumerate(avals) if _is_plain(aval)]
        types = [jax.ShapeDtypeStruct((rows[k], *avals[k].shape), avals[k].dtype) for k in plain]
        made = call_handler("jaxrec_allocate", types) if plain else []
        made = dict(zip(plain, made, strict=True))
        return [made[k] if k in made else _blank(rows[k], a) for k, a in enumerate(avals)]

    return jax.lax.platform_dependent(cpu=on_cpu, default=lambda: blank_tapes(rows, avals))


def _is_plain(aval: Any) -> bool:
    return not jnp.issubdtype(aval.dtype, jax.dtypes.extended)


def _blank(rows: int, aval: Any) -> Any:
    return lax.full((rows, *aval.shape), 0, aval.dtype)


def block(tape: Any, start: Any, width: int) -> Any:
    """`width` rows from `start`, which is not negative."""
    return lax.dynamic_slice_in_dim(tape, start, width, allow_negative_indices=False)


def row(table: Any, number: Any) -> Any:
    """One row; the nearest one if there is none of this number."""
    return block(table, number, 1)[0]


def put(tape: Any, rows: Any, start: Any) -> Any:
    """Overwrites rows from `start`, which is not negative."""
    return lax.dynamic_update_slice_in_dim(tape, rows, start, 0, allow_negative_indices=False)


def cell_outers(
    spec: CellSpec, outers: Sequence[Any], patterns: Sequence[LanePattern | None], lanes: Any
) -> list[Any]:
    """The outer values of a cell; those that differ by lane get a row axis."""
    found = []
    for position in spec.outers:
        value, pattern = outers[position], patterns[position]
        if pattern is not None:
            stride, size = pattern
            value = gather(value, (lanes // stride) % size)
        found.append(value)
    return found


def in_its_wave(waits: bool, fires: Any, fun: Callable[..., Any], *operands: Any) -> Any:
    """`fun(*operands)`, a cell, in the loop over the waves.

    XLA runs what only outer values go into before the loop, even if no wave of the cell comes. So
    an operation that has to wait stands in a branch.

    Args:
        waits: whether there is such an operation.
        fires: true, which XLA does not know before the wave.
        fun: the cell on a wave.
        operands: its own.
    """
    if not waits:
        return fun(*operands)

    def nothing() -> Any:
        types = jax.eval_shape(fun, *operands)
        return jax.tree.map(lambda t: lax.full(t.shape, 0, t.dtype), types)

    return lax.cond(fires, lambda: fun(*operands), nothing)


Rows = Callable[[Any], Any]
"""Of what a wave reads, an array with an axis of rows, the rows that it computes on."""


def all_rows(array: Any) -> Any:
    """Those that are read: what a wave computes on rows that are no call is never read."""
    return array


def calls_alone(waits: bool, is_call: Any) -> Rows:
    """Those that are a call; the first one's in the place of the others.

    For a cell with an operation that has to wait: a loop over all rows may not end for what stands
    in rows that are no call, and Python would see it.

    Args:
        waits: whether there is such an operation; if not, `all_rows`.
        is_call: `[width]`, which rows of the wave are a call.
    """
    if not waits:
        return all_rows
    rows = jnp.where(is_call, jnp.arange(is_call.size), jnp.argmax(is_call))
    return lambda array: array[rows]


def outer_by_row(spec: CellSpec, patterns: Sequence[LanePattern | None]) -> list[bool]:
    """For each outer value of a cell, whether a wave needs it with a row axis."""
    return [patterns[position] is not None for position in spec.outers]


def outers_with_rows(
    spec: CellSpec, patterns: Sequence[LanePattern | None], outers: Sequence[Any], width: int
) -> list[Any]:
    """The outer values of a cell, all with a row axis."""
    by_row = outer_by_row(spec, patterns)
    return [
        x if own else jnp.broadcast_to(x, (width, *x.shape))
        for x, own in zip(outers, by_row, strict=True)
    ]


def cell_lanes(spec: CellSpec, tables: Tables, start: Any, width: int) -> Any:
    """The lanes of `width` cell rows from `start`."""
    return block(tables.cells[spec.cell.index].lane, start, width)


def run_waves(
    program: Program,
    layout: Layout,
    tables: Tables,
    bodies: dict[int, Body],
    state: Any,
    *,
    backward: bool = False,
) -> Any:
    """Runs the waves of a schedule in order, or in reverse.

    There is one inner loop for each kind of wave (cell and width), which runs while the next wave
    is of its kind. A `switch` over the kinds would be simpler, but XLA copies whole tapes where
    they enter and leave a branch; in a loop they are updated in place.

    Args:
        program: the program.
        layout: its sizes.
        tables: its schedule.
        bodies: for each kind of wave, `(row of the wave table, state) -> state`; waves of other
            kinds are skipped.
        state: tapes.
        backward: whether to start from the last wave.
    """
    total = tables.num_waves
    step = -1 if backward else 1
    kinds = len(program.cells) * len(layout.widths)
    idle = jnp.asarray([kind not in bodies for kind in range(kinds)])

    def running(wave: Any) -> Any:
        return (wave >= 0) if backward else (wave < total)

    def kind_of(wave: Any) -> Any:
        return row(tables.waves, wave)[KIND]

    def loop(matches: Callable[[Any], Any], body: Body, carry: Any) -> Any:
        def one(carry: Any) -> Any:
            wave, state = carry
            return wave + step, body(row(tables.waves, wave), state)

        return lax.while_loop(lambda c: running(c[0]) & matches(kind_of(c[0])), one, carry)

    def sweep(carry: Any) -> Any:
        for kind in sorted(bodies, reverse=backward):
            carry = loop(lambda k, kind=kind: k == kind, bodies[kind], carry)
        if len(bodies) < kinds:
            carry = loop(lambda k: row(idle, k), lambda _, state: state, carry)
        return carry

    first = total - 1 if backward else jnp.zeros_like(total)
    return lax.while_loop(lambda c: running(c[0]), sweep, (first, state))[1]
