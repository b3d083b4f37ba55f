"""Every program of the zoo against plain Python: derivatives, and values of batches."""

from __future__ import annotations

import pytest
import zoo_all
import zoo_modes
from cases import spread
from zoo import Program, assert_close

differentiable = {name: p for name, p in zoo_all.PROGRAMS.items() if p.argnums}

# Of these types few other tests that are not exhaustive take derivatives.
TYPED = [f"{dtype}_arguments" for dtype in ("float64", "bfloat16", "complex64")]
STEPS = spread(((name,) for name in differentiable if name not in TYPED), 4, 3)
STEPS += [pytest.param(name, id=name, marks=pytest.mark.slow) for name in TYPED]


@pytest.mark.parametrize("name", STEPS)
def test_training_step(name: str):
    """The compiled gradient of a batch: what users run, and the most parts of jaxrec at once."""
    example = differentiable[name]
    with example.precision():
        got, want = zoo_modes.jit_grad_vmap(example)
    assert_close(got, want, 10 * example.rtol)


def derivatives_of(example: Program) -> list[str]:
    return [mode for mode in zoo_modes.DERIVATIVES if mode != "jvp" or example.forward]


CROSS = spread(
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
