"""Every program of the zoo against plain Python, on both executors: the quick part."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
import zoo_all
from zoo import JAXREC, PYTHON, Program, assert_close, loss

import jaxrec as jr


@pytest.fixture(params=zoo_all.PROGRAMS.values(), ids=zoo_all.PROGRAMS)
def example(request):
    return request.param


@pytest.fixture(params=["graph", "reference"])
def executor(request):
    return request.param


def test_value_equals_plain_python(example: Program, executor: str):
    with example.precision(), jr.executor(executor):
        got = example.build(JAXREC)(*example.args)
        want = example.build(PYTHON)(*example.args)
        assert_close(got, want, example.rtol)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            assert a.dtype == b.dtype if hasattr(b, "dtype") else not a.shape


def batched_loss(example: Program, batch):
    run = jax.vmap(example.build(JAXREC), example.in_axes)

    def of(*changed):
        args = list(batch)
        for k, x in zip(example.argnums, changed, strict=True):
            args[k] = x
        outs = run(*args)
        return jax.vmap(loss)(outs).sum(), outs

    return of


def plain_loss(example: Program, lane):
    run = example.build(PYTHON)

    def of(*changed):
        args = list(lane)
        for k, x in zip(example.argnums, changed, strict=True):
            args[k] = x
        outs = run(*args)
        return loss(outs), outs

    return of
