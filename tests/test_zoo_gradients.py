"""Every program of the zoo against plain Python: derivatives, and values of batches."""

from __future__ import annotations

import pytest
import zoo_all
import zoo_modes
from zoo import Program, assert_close

differentiable = {name: p for name, p in zoo_all.PROGRAMS.items() if p.argnums}


@pytest.mark.parametrize("name", zoo_modes.spread(((name,) for name in differentiable), 4, 8))
def test_training_step(name: str):
    """The compiled gradient of a batch: what users run, and the most parts of jaxrec at once."""
    example = differentiable[name]
    with example.precision():
        got, want = zoo_modes.jit_grad_vmap(example)
    assert_close(got, want, 10 * example.rtol)


def derivatives_of(example: Program) -> list[str]:
    return [mode for mode in zoo_modes.DERIVATIVES if mode != "jvp" or example.forward]


CROSS = zoo_modes.spread(
    (
        (name, mode, executor)
        for name, p in differentiable.items()
        for mode in derivatives_of(p)
        for executor in zoo_modes.EXECUTORS
        if zoo_modes.runs(mode, executor)
    ),
    of=293,
)


@pytest.mark.parametrize(("name", "mode", "executor"), CROSS)
def test_derivatives_under_transformations(name: str, mode: str, executor: str):
    example = differentiable[name]
    with example.precision(), zoo_modes.on(executor):
        got, want = zoo_modes.DERIVATIVES[mode](example)
    assert_close(got, want, 10 * example.rtol)
