"""The loop over the waves of a schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxrec.lowering._tapes import row
from jaxrec.schedule._layout import Layout
from jaxrec.schedule._tables import COUNT, KIND, Tables
from jaxrec.split._program import Program

Body = Callable[[Any, Any], tuple[Any, Any]]
"""Runs a wave: from its number and the state to its numbers, which are known once it has read all,
and the state."""


def run_waves(
    program: Program,
    layout: Layout,
    tables: Tables,
    bodies: dict[int, Body | None],
    state: Any,
    *,
    backward: bool = False,
) -> Any:
    """Runs the waves of a schedule in order, or in reverse.

    There is one inner loop for each kind of wave (cell and width), which runs while the next wave
    is of its kind. A `switch` over the kinds would be simpler, but XLA copies whole tapes where
    they enter and leave a branch; in a loop they are updated in place. Waves that come in sweeps
    need neither: the kind of each is known.

    Args:
        program: the program.
        layout: its sizes.
        tables: its schedule.
        bodies: for each kind of wave that there can be; None for one that is skipped.
        state: tapes.
        backward: whether to start from the last wave.
    """
    total = tables.num_waves
    busy = {kind: body for kind, body in bodies.items() if body is not None}
    if layout.sweeps:
        return _run_sweeps(len(program.cells), total, busy, state, backward=backward)
    step = -1 if backward else 1
    kinds = len(program.cells) * len(layout.widths)
    idle = jnp.asarray([kind not in busy for kind in range(kinds)])

    def running(wave: Any) -> Any:
        return (wave >= 0) if backward else (wave < total)

    def kind_of(wave: Any) -> Any:
        return row(tables.waves, wave)[KIND]

    def loop(matches: Callable[[Any], Any], body: Body, carry: Any) -> Any:
        def one(carry: Any) -> Any:
            wave, state = carry
            return wave + step, body(wave, state)[1]

        return lax.while_loop(lambda c: running(c[0]) & matches(kind_of(c[0])), one, carry)

    def sweep(carry: Any) -> Any:
        for kind in sorted(busy, reverse=backward):
            carry = loop(lambda k, kind=kind: k == kind, busy[kind], carry)
        if len(busy) < len(bodies):
            carry = loop(lambda k: row(idle, k), lambda wave, state: (wave, state), carry)
        return carry

    first = total - 1 if backward else jnp.zeros_like(total)
    return lax.while_loop(lambda c: running(c[0]), sweep, (first, state))[1]


def _run_sweeps(
    cells: int, total: Any, bodies: dict[int, Body], state: Any, *, backward: bool
) -> Any:
    """Runs waves that come in sweeps, the one of a cell always at the same place of a sweep."""

    def running(carry: Any) -> Any:
        return (carry[0] >= 0) if backward else (carry[0] < total)

    def sweep(carry: Any) -> Any:
        first, state = carry
        at = first
        for kind, body in sorted(bodies.items(), reverse=backward):
            wave, state = body(at + kind, state)
            at = first + after(wave)
        return first + (-cells if backward else cells), state

    first = total - cells if backward else jnp.zeros_like(total)
    return lax.while_loop(running, sweep, (first, state))[1]


def after(wave: Any) -> Any:
    """Zero, which XLA knows once a wave has read.

    Waves of a sweep follow each other in one program, so the next one must not overwrite what this
    one has not read: XLA would copy the tape.

    Args:
        wave: the numbers of the wave.
    """
    return jnp.minimum(wave[COUNT], 0)
