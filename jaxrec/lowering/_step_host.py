"""A stepped invocation run from Python, a wave at a time: for reports of its schedule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec import _core
from jaxrec._errors import from_message
from jaxrec.lowering import _wave
from jaxrec.lowering._forward import Bound, plain_cell, with_roots, write
from jaxrec.lowering._rows import gather
from jaxrec.schedule._limits import Limits
from jaxrec.schedule._plan import PlanInputs, lane_numbers
from jaxrec.split._program import CellSpec


def step_on_host(bound: Bound, inputs: PlanInputs, limits: Limits, max_calls: int | None) -> Any:
    """Runs a stepped invocation now.

    Args:
        bound: the invocation; of its tables only the types are looked at.
        inputs: what the scheduler starts from.
        limits: what is taken to be without end.
        max_calls: the calls that there is room for; None: as many as are made.

    Returns:
        The core's schedule.

    Raises:
        JaxRecError: as the scheduler reports it, in its own class.
    """
    try:
        return _run(bound, inputs, limits, -1 if max_calls is None else max_calls)
    except _core.PlanError as error:
        raise from_message(error.args[1]) from None


def _run(bound: Bound, inputs: PlanInputs, limits: Limits, max_calls: int) -> Any:
    program, layout = bound.program, bound.layout
    stepper = _core.start_stepper(
        program.words,
        [np.asarray(x, order="C") for x in inputs.roots],
        [np.asarray(x, order="C") for x in inputs.outers],
        lane_numbers(inputs.patterns),
        layout.lanes,
        list(layout.widths),
        list(layout.costs),
        program.names,
        max_calls,
        limits.calls,
        layout.collect,
        limits.depth,
    )
    kinds = {kind: _Kind(bound, spec, width) for kind, spec, width in bound.waves_of}
    tapes = with_roots(bound, _wave.blank_tapes(layout.value_rows, program.classes))
    while True:
        wave = stepper.step([np.asarray(tapes[c]) for c in program.imports])
        if wave[0] < 0:
            return stepper.finish()
        tapes = kinds[int(wave[0])].run(stepper, wave, tapes)


class _Kind:
    """A cell at one width, compiled."""

    def __init__(self, bound: Bound, spec: CellSpec, width: int) -> None:
        self._spec, self._width = spec, width
        fun = plain_cell(bound, spec, width)

        def fire(wave: Any, tapes: list[Any], reads: Any, exports: Any, lanes: Any) -> list[Any]:
            inputs = [gather(tapes[c], rows) for c, rows in zip(spec.inputs, reads, strict=True)]
            outers = _wave.cell_outers(spec, bound.outers, bound.patterns, lanes)
            outs, _ = fun(outers, exports, inputs)
            return write(spec, outs, [], wave, (tapes, [[] for _ in bound.program.cells]))[0]

        self._fire = jax.jit(fire, donate_argnums=1)

    def run(self, stepper: Any, wave: Any, tapes: Sequence[Any]) -> list[Any]:
        """Runs a wave; returns the tapes."""
        reads = [np.zeros(self._width, np.int32) for _ in self._spec.inputs]
        exports = [np.zeros(self._width, v.aval.dtype) for v in self._spec.cell.exports]
        lanes = np.zeros(self._width, np.int32)
        stepper.operands([*reads, *exports, lanes])
        return self._fire(jnp.asarray(wave), list(tapes), reads, exports, lanes)
