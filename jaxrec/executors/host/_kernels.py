"""What the launches of a pass compute.

Kernels know the invocation but not the pass that launches them: a pass keeps its kernels, and would
be freed with its tapes only when Python next looks for cycles if they led back to it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp

from jaxrec._types import has_derivative
from jaxrec.executors.host._call import HostCall
from jaxrec.executors.host._plan import blank
from jaxrec.executors.host._tasks import KernelFunction, bad_rows, token_of
from jaxrec.lowering import _tapes, _waiting
from jaxrec.lowering._forward import WaveCell, operands, quick_cell, reads_of
from jaxrec.lowering._quick import quick
from jaxrec.lowering._read import Place, read_wave
from jaxrec.lowering._rows import numbers
from jaxrec.schedule._plan import LanePattern
from jaxrec.schedule._tables import Tables
from jaxrec.split._program import CellSpec, Program
from jaxrec.transpose._backward import cut_types, settle_cuts
from jaxrec.transpose._cells import Backward, Replay, residual_cell
from jaxrec.transpose._outer import After


class ForwardKernels:
    """The kernels of the waves of a forward pass.

    Args:
        call: the invocation.
        backward: the differentiated cells, if residuals are kept.
    """

    def __init__(self, call: HostCall, backward: Backward | None) -> None:
        self._call, self._backward = call, backward

    def wave(
        self,
        spec: CellSpec,
        width: int,
        read: Sequence[int],
        written: Sequence[int],
        shown: Sequence[int],
    ) -> KernelFunction:
        """A wave of a cell: of its tape classes, those only read and those written."""
        call = self._call
        rows = call.rows(spec)
        head = 2 + len(spec.outputs)

        def run(constant: Any, *slots: Any) -> list[Any]:
            values = iter(slots)
            outers = {p: next(values) for p in spec.outers}
            tapes: dict[int, Any] = {c: next(values) for c in (*read, *written)}
            residuals = list(values)
            tables = rows.unpack(call.program, constant[head:], width)
            at = call.with_tables(tables, outers)
            given = reads_of(at, spec, listed(tapes, call.program))
            several = len(spec.outputs) + len(residuals) > 1
            constant, inputs, _ = read_wave(
                Place(width), constant[None, :head], 0, given, is_ordered=several
            )
            found = self._cell(at, spec, width).run(*operands(at, spec, inputs, 0, width))
            for k, (c, made) in enumerate(zip(spec.outputs, found[0], strict=True)):
                tapes[c] = _tapes.put(tapes[c], made, constant[2 + k])
            pairs = zip(residuals, found[1], strict=True)
            residuals = [_tapes.put(tape, made, constant[1]) for tape, made in pairs]
            checks = call.checks
            token = bad_rows(found[0], width, checks) if any(checks) else token_of(constant)
            outs = [*(tapes[c] for c in written), *residuals]
            return [token, *outs, *(found[0][k] for k in shown)]

        return run

    def _cell(self, at: Any, spec: CellSpec, width: int) -> WaveCell:
        if self._backward is None:
            return quick_cell(at, spec, width)
        return residual_cell(self._backward)(at, spec, width)


class BackwardKernels:
    """The kernels of the cells of a backward pass.

    Args:
        call: the invocation.
        backward: the differentiated cells.
        lanes: for each outer value that is differentiated, how lanes index its cotangent.

    Attributes:
        carrying: the tape classes that have cotangents.
        cuts: for each cell the types of its cut.
    """

    def __init__(
        self, call: HostCall, backward: Backward, lanes: dict[int, LanePattern | None]
    ) -> None:
        self._call, self._backward, self._lanes = call, backward, lanes
        self.carrying = [c for c, aval in enumerate(call.program.classes) if has_derivative(aval)]
        self.cuts = [cut_types(backward, spec) for spec in call.program.cells]

    def inputs(self, spec: CellSpec) -> list[tuple[int, int]]:
        """The inputs of a cell that have cotangents, with their classes."""
        return [(k, c) for k, c in enumerate(spec.inputs) if c in self.carrying]

    def outputs(self, spec: CellSpec) -> list[int]:
        """The classes of the outputs of a cell that have cotangents, each once."""
        return sorted(set(spec.outputs) & set(self.carrying))

    def wave(
        self, spec: CellSpec, width: int, read: Sequence[int], written: Sequence[int]
    ) -> KernelFunction:
        """A wave of a cell in reverse: of the cotangents, those only read and those written."""
        call, vjp = self._call, self._backward.at(spec, width)
        slots = self.inputs(spec)
        head = 2 + len(slots)

        def run(constant: Any, *given: Any) -> list[Any]:
            tables = call.rows(spec, readers=True).unpack(call.program, constant[head:], width)
            at, tapes, residuals, values = self._take(spec, tables, given)
            cts: dict[int, Any] = {c: next(values) for c in (*read, *written)}
            cuts = list(values)
            start = constant[1]
            saved = [_tapes.block(t, start, width) for t in residuals]
            full = listed(cts, call.program)
            replay = Replay(at, self._backward, tapes, ())
            rows = _waiting.calls_alone(vjp.waits, numbers(width) >= width - constant[0])
            sums = replay.sums(spec, full)
            several = len(slots) + len(cuts) > 1
            constant, _, cotangents = read_wave(
                Place(width), constant[None, :head], 0, sums=sums, is_ordered=several
            )
            d_inputs, made = quick(vjp.loop)(
                replay.values(spec, 0, width, rows),
                list(map(rows, saved)),
                list(map(rows, cotangents)),
            )
            # The last block first, as the lowering does: see there.
            pairs = list(zip(slots, d_inputs, strict=True))
            for position, ((_, c), block) in reversed(list(enumerate(pairs))):
                cts[c] = _tapes.put(cts[c], block, constant[2 + position])
            cuts = [_tapes.put(t, x, start) for t, x in zip(cuts, made, strict=True)]
            checks = call.checks
            bad = bad_rows([*d_inputs, *made], width, checks) if any(checks) else None
            token = token_of(constant) if bad is None else bad
            return [token, *(cts[c] for c in written), *cuts]

        return run

    def after(self, spec: CellSpec, size: int, wanted: Sequence[int]) -> KernelFunction:
        """What the firings of a cell contribute to the cotangents of some outer values."""
        call, index = self._call, spec.cell.index

        def run(constant: Any, *given: Any) -> list[Any]:
            rows = call.rows(spec, readers=True, lanes=True)
            tables = rows.unpack(call.program, constant[1:], size)
            info = counts(call, index, constant[0]).info
            tables = dataclasses.replace(tables, info=info)
            at, tapes, residuals, values = self._take(spec, tables, given)
            cts = listed({c: next(values) for c in self.outputs(spec)}, call.program)
            cuts = [next(values) for _ in self.cuts[index]]
            totals = dict(zip(wanted, values, strict=True))
            kept = [residuals if k == index else [] for k in range(len(call.program.cells))]
            replay = Replay(at, self._backward, tapes, kept)
            settled = settle_cuts(at, self._backward, spec, cuts)
            after = After(replay, spec, cts, settled, {p: self._lanes[p] for p in wanted})
            found = after.run(totals, fresh=False)
            return [token_of(constant), *(found[p] for p in wanted)]

        return run

    def _take(
        self, spec: CellSpec, tables: Tables, given: Sequence[Any]
    ) -> tuple[Any, list[Any], list[Any], Any]:
        """Takes the arguments of a kernel apart, up to the cotangents."""
        call, values = self._call, iter(given)
        outers = {p: next(values) for p in spec.outers}
        tapes = listed({c: next(values) for c in sorted(set(spec.inputs))}, call.program)
        residuals = [next(values) for _ in self._backward.residual_types(spec)]
        readers = listed({c: next(values) for c in self.outputs(spec)}, call.program)
        tables = dataclasses.replace(tables, reader_rows=tuple(readers))
        return call.with_tables(tables, outers), tapes, residuals, values


def listed(tapes: dict[int, Any], program: Program) -> list[Any]:
    """Tapes by class, as a list with None for those that a kernel does not have."""
    return [tapes.get(c) for c in range(len(program.classes))]


def counts(call: HostCall, index: int, count: Any) -> Any:
    """Tables that know how often a cell is fired."""
    cells = len(call.program.cells)
    return blank(info=jnp.zeros(cells, jnp.int32).at[index].set(count))
