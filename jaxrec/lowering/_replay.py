"""A replay of a schedule that JAX differentiates to any order.

The waves run in a `lax.scan` of fixed length, those past the last one skipped, and every cell is
ordinary JAX code in a `lax.switch`. Slower than the loops of the forward program, whose tapes are
updated in place, but it has a derivative of every order in both modes. Derivatives of derivatives
use it, and the reference executor under `jit`, with waves of one call.

Rows past a wave's count repeat its last call, so that no derivative is taken at a point that the
user's function does not reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxrec.lowering import _wave
from jaxrec.lowering._forward import Bound, operands_at, plain_cell, results, with_roots
from jaxrec.lowering._rows import gather
from jaxrec.split._program import CellSpec


def replay(bound: Bound) -> list[Any]:
    """Runs a schedule: the results as `results` of the forward program gives them."""
    kinds = [_kind(bound, spec, width) for _, spec, width in bound.waves_of]

    def step(tapes: list[Any], number: Any) -> tuple[list[Any], None]:
        wave = bound.tables.waves[number]
        branches = [lambda tapes: tapes, *(lambda t, run=run: run(wave, t) for run in kinds)]
        return lax.switch(jnp.clip(wave[0] + 1, 0, len(kinds)), branches, tapes), None

    tapes = _wave.blank_tapes(bound.layout.value_rows, bound.program.classes)
    tapes, _ = lax.scan(step, with_roots(bound, tapes), jnp.arange(bound.layout.max_waves))
    return results(bound, tapes)


def _kind(bound: Bound, spec: CellSpec, width: int) -> Callable[[Any, list[Any]], list[Any]]:
    fun = plain_cell(bound, spec, width)

    def run(wave: Any, tapes: list[Any]) -> list[Any]:
        rows = wave[2] + jnp.minimum(jnp.arange(width), wave[1] - 1)
        outs, _ = fun(*operands_at(bound, spec, tapes, rows, gather))
        tapes = list(tapes)
        for k, (c, made) in enumerate(zip(spec.outputs, outs, strict=True)):
            tapes[c] = _wave.put(tapes[c], made, wave[3 + k])
        return tapes

    return run
