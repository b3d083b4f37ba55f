"""Every program of the zoo against plain Python: values and types."""

from __future__ import annotations

import jax
import pytest
import zoo_all
import zoo_modes
from zoo import Program, assert_close

import jaxrec as jr

examples = pytest.mark.parametrize("example", zoo_all.PROGRAMS.values(), ids=zoo_all.PROGRAMS)
executors = pytest.mark.parametrize("executor", zoo_modes.EXECUTORS)


@examples
@executors
def test_value_is_that_of_plain_python(example: Program, executor: str):
    with example.precision(), jr.executor(executor):
        got, want = zoo_modes.value(example)
    assert_close(got, want, example.rtol)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if isinstance(b, jax.Array):  # plain Python returns plain numbers too
            assert a.dtype == b.dtype


CROSS = zoo_modes.spread(
    (name, mode, executor)
    for name in zoo_all.PROGRAMS
    for mode in ("jit", "vmap", "jit_vmap")
    for executor in zoo_modes.EXECUTORS
    if zoo_modes.runs(mode, executor)
)


@pytest.mark.parametrize(("name", "mode", "executor"), CROSS)
def test_value_under_transformations(name: str, mode: str, executor: str):
    example = zoo_all.PROGRAMS[name]
    with example.precision(), jr.executor(executor):
        got, want = zoo_modes.VALUES[mode](example)
    assert_close(got, want, example.rtol)
