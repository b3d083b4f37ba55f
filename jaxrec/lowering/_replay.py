"""A replay of a schedule that JAX differentiates to any order.

The waves run in a `lax.scan` of fixed length, those past the last one skipped, and every cell is
ordinary JAX code in a `lax.switch`. Slower than the loops of the forward program, whose tapes are
updated in place, but it has a derivative of every order in both modes. Third derivatives use it,
second ones where operations have rules of the user's, and the reference executor under `jit`, with
waves of one call.

Rows past a wave's count repeat its last call, so that no derivative is taken at a point that the
user's function does not reach.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxrec import _compat
from jaxrec._order import MAX_ORDER
from jaxrec._types import has_derivative
from jaxrec.lowering import _outers, _tapes
from jaxrec.lowering._cell import wave_function
from jaxrec.lowering._forward import (
    Scheduled,
    operands_at,
    plain_cell,
    results,
    with_roots,
)
from jaxrec.lowering._repeatable import is_repeatable
from jaxrec.lowering._rows import gather, numbers, row_mask
from jaxrec.schedule._tables import BLOCKS, COUNT, FIRST, KIND
from jaxrec.split._program import CellSpec, Program

_LITTLE_WIDER = 8
"""How many times wider a wave may be computed than it is scheduled."""


def replay(at: Scheduled) -> list[Any]:
    """Runs a schedule: the results as `results` of the forward program gives them."""
    widths = {kind: (spec, _branch_width(at, spec, width)) for kind, spec, width in at.waves_of}
    branches = list(dict.fromkeys(widths.values()))
    kinds = [_kind(at, spec, width) for spec, width in branches]
    numbered = np.zeros(len(at.program.cells) * len(at.layout.widths), np.int32)
    for kind, branch in widths.items():
        numbered[kind] = branches.index(branch)
    is_wave = numbers(at.layout.max_waves) < at.tables.num_waves  # the rest is never written
    kind_of = jnp.where(is_wave, at.tables.waves[:, KIND], 0)
    branch_of = gather(jnp.asarray(numbered), kind_of)

    def step(tapes: list[Any], number: Any) -> tuple[list[Any], None]:
        wave = at.tables.waves[number]
        branches = [functools.partial(run, wave) for run in kinds]
        runs = (number < at.tables.num_waves) & (wave[COUNT] > 0)
        branch = jnp.where(runs, branch_of[number], len(kinds))
        return lax.switch(branch, [*branches, lambda tapes: tapes], tapes), None

    blank = _tapes.blank_tapes(at.layout.value_rows, at.program.classes)
    given = jax.tree.leaves((at.tables, at.outers, at.roots))
    vma = _compat.common_vma([_compat.aval_of(x) for x in given])
    tapes = [_compat.vary_over(tape, vma) for tape in blank]
    tapes, _ = lax.scan(step, with_roots(at, tapes), numbers(at.layout.max_waves))
    return results(at, tapes)


def _branch_width(at: Scheduled, spec: CellSpec, width: int) -> int:
    """The width that a wave is computed at: a wider one if it is little wider.

    Each width is a branch, whose derivatives are traced several times.
    """
    kept = list[int]()
    for own in reversed(at.layout.widths_of(spec.cell.index)):
        if not kept or own * _LITTLE_WIDER < kept[-1]:
            kept.append(own)
    return min(own for own in kept if own >= width)


def _kind(at: Scheduled, spec: CellSpec, width: int) -> Callable[[Any, list[Any]], list[Any]]:
    linear = all(is_repeatable(program, spec) for program in _orders(at.program))
    compute = plain_cell(at, spec, width).run if linear else _cell_by_row(at, spec, width)

    def without_padding(valid: Any, outers: Any, exports: Any, inputs: Any) -> Any:
        wide = _outers.outers_with_rows(spec, at.patterns, outers, width)
        return [_moving(valid, x) for x in wide], exports, [_moving(valid, x) for x in inputs]

    def run(wave: Any, tapes: list[Any]) -> list[Any]:
        number = numbers(width)
        rows = wave[FIRST] + jnp.minimum(number, wave[COUNT] - 1)
        given = operands_at(at, spec, tapes, rows, gather)
        outs, _ = compute(*(given if linear else without_padding(number < wave[COUNT], *given)))
        tapes = list(tapes)
        for k, (c, made) in enumerate(zip(spec.outputs, outs, strict=True)):
            tapes[c] = _tapes.put(tapes[c], made, wave[BLOCKS + k])
        return tapes

    return run


def _orders(program: Program) -> list[Program]:
    """The programs whose derivatives are taken where a replay is differentiated."""
    found = [program]
    for _ in range(MAX_ORDER):
        found.append(found[-1].differentiated())
    return found


def _cell_by_row(at: Scheduled, spec: CellSpec, width: int) -> Callable[..., Any]:
    """A cell whose outer values all have a row axis."""
    fun = wave_function(at.program, spec, [True] * len(spec.outers), width)
    return lambda *read: (fun(*read), [])


def _moving(valid: Any, rows: Any) -> Any:
    """Rows that have derivatives where they are valid, and none elsewhere."""
    if not has_derivative(rows):
        return rows
    return jnp.where(row_mask(valid, rows), rows, lax.stop_gradient(rows))
