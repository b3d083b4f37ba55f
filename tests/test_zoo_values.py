"""Every program of the zoo against plain Python: values and types."""

from __future__ import annotations

import jax
import pytest
import zoo_all
import zoo_modes
from cases import spread
from zoo import Program, assert_close

examples = pytest.mark.parametrize("example", zoo_all.PROGRAMS.values(), ids=zoo_all.PROGRAMS)


def check_value(example: Program, executor: str) -> None:
    with example.precision(), zoo_modes.on(executor):
        got, want = zoo_modes.value(example)
    assert_close(got, want, example.rtol)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if isinstance(b, jax.Array):  # plain Python returns plain numbers too
            assert a.dtype == b.dtype


# Executors change fastest: what plain Python returns is there for the second of them.
@pytest.mark.parametrize("executor", ["graph", "reference"])
@examples
def test_value_is_that_of_plain_python(example: Program, executor: str):
    check_value(example, executor)


ON_HOST = spread(((name, host) for name in zoo_all.PROGRAMS for host in zoo_modes.HOSTS), fast=6)


@pytest.mark.parametrize(("name", "executor"), ON_HOST)
def test_value_on_host(name: str, executor: str):
    check_value(zoo_all.PROGRAMS[name], executor)


CROSS = spread(
    (name, mode, executor)
    for name in zoo_all.PROGRAMS
    for mode in ("jit", "vmap", "jit_vmap")
    for executor in zoo_modes.EXECUTORS
    if zoo_modes.runs(mode, executor)
)


@pytest.mark.parametrize(("name", "mode", "executor"), CROSS)
def test_value_under_transformations(name: str, mode: str, executor: str):
    example = zoo_all.PROGRAMS[name]
    with example.precision(), zoo_modes.on(executor):
        got, want = zoo_modes.VALUES[mode](example)
    assert_close(got, want, example.rtol)
