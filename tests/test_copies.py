"""Tapes are updated in place: the compiled program copies none."""

import re

import jax
import jax.numpy as jnp
import pytest
from recursions import swapped
from zoo import JAXREC, forest, normal, roots
from zoo_trees import tree_rnn

from jaxrec.primitives import _invoke
from jaxrec.schedule._platform import CPU

ROWS, WIDTH, MOST = 53, 37, 3000


def test_of_a_tree():
    w = {
        "embed": normal(1, 6, WIDTH),
        "kernel": normal(2, 2 * WIDTH, WIDTH),
        "bias": normal(3, WIDTH),
    }
    run = jax.vmap(tree_rnn(JAXREC).with_options(max_calls=ROWS), (None, None, 0))
    step = jax.value_and_grad(lambda w, tree, roots: (run(w, tree, roots) ** 2).sum())
    text = jax.jit(step).lower(w, forest(), roots()).compile().as_text() or ""
    large = {n for n in re.findall(rf"f32\[(\d+),{WIDTH}\]", text) if int(n) > ROWS}
    assert large, "the program has tapes of rows of this width"
    assert not large.intersection(re.findall(rf"= f32\[(\d+),{WIDTH}\]\S* copy\(", text))


@pytest.mark.parametrize("derivative", [False, True])
@pytest.mark.parametrize("stepped", [False, True])
@pytest.mark.parametrize("sweeps", [False, True])
def test_where_a_wave_writes_one_by_what_it_reads_from_another(
    sweeps, stepped, derivative, monkeypatch
):
    if sweeps:
        swept = CPU._replace(sweep_flops=2e9)
        monkeypatch.setattr(_invoke, "platform_named", lambda _: swept)
    run = swapped(MOST, stepped=stepped)
    run = jax.value_and_grad(run) if derivative else run
    text = jax.jit(run).lower(jnp.eye(9), 5).compile().as_text() or ""
    assert {n for n in re.findall(r"= f32\[(\d+),", text) if int(n) > MOST}
    assert not [n for n in re.findall(r"= f32\[(\d+)\S* copy\(", text) if int(n) > MOST]
