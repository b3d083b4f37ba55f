"""A Tree-LSTM on random forests against plain Python recursion, in both precisions."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import EXECUTORS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo import JAXREC, PYTHON, Tree, assert_close, random_trees
from zoo_trees import H, tree_lstm

import jaxrec as jr

NODES, LANES = 64, 3
RECURSION, PLAIN = tree_lstm(JAXREC), tree_lstm(PYTHON)

forests = settings(
    max_examples=2, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
seeds = st.integers(0, 2**32 - 1)
leaf_counts = st.lists(st.integers(1, 10), min_size=LANES, max_size=LANES)


class Precision(NamedTuple):
    """A type, and how close values and gradients must come to plain recursion."""

    dtype: str
    values: float
    gradients: float


SINGLE, DOUBLE = Precision("float32", 1e-5, 1e-4), Precision("float64", 1e-10, 1e-10)


def loss(state: Any) -> jax.Array:
    h, c = state
    return jnp.sum(h * jnp.arange(1.0, H + 1)) + jnp.sum(c**2)


def losses(w: Any, tree: Any, roots: Any) -> jax.Array:
    return jax.vmap(lambda root: loss(RECURSION(w, tree, root)))(roots)


def values(w: Any, tree: Any, roots: Any) -> Any:
    return jax.vmap(RECURSION, (None, None, 0))(w, tree, roots)


def gradient_of_batch(w: Any, tree: Any, roots: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(losses(w, tree, roots)))(w)


def gradient_of_each(w: Any, tree: Any, roots: Any) -> Any:
    return jax.vmap(jax.grad(lambda w, root: loss(RECURSION(w, tree, root))), (None, 0))(w, roots)


def tangents(w: Any, tree: Any, roots: Any) -> Any:
    return jax.jvp(lambda w: losses(w, tree, roots), (w,), (jax.tree.map(jnp.cos, w),))[1]


JITTED = {f: jax.jit(f) for f in (values, gradient_of_batch, gradient_of_each, tangents)}


CASES = [
    pytest.param(executor, precision, marks=mark, id=f"{executor}-{precision.dtype}")
    for executor, precision, mark in (
        ("graph", DOUBLE, pytest.mark.slow),
        *((executor, DOUBLE, pytest.mark.exhaustive) for executor in ("host", "reference")),
        *((executor, SINGLE, pytest.mark.exhaustive) for executor in EXECUTORS),
    )
]


@pytest.mark.parametrize(("executor", "precision"), CASES)
@forests
@given(seed=seeds, leaves=leaf_counts)
def test_forest(executor: str, precision: Precision, seed: int, leaves: list[int]) -> None:
    rng = np.random.default_rng(seed)
    nodes, roots = random_trees(rng, leaves)
    with jax.enable_x64(precision is DOUBLE), jr.executor(executor):
        w = {
            "embed": jnp.asarray(rng.normal(0, 0.5, (6, H)), precision.dtype),
            "kernel": jnp.asarray(rng.normal(0, 0.5, (2 * H, 5 * H)), precision.dtype),
        }
        gradient = jax.value_and_grad(
            lambda w, root: (loss(state := PLAIN(w, nodes, root)), state), has_aux=True
        )
        plain = [gradient(w, int(root)) for root in roots]
        states = stacked([state for (_, state), _ in plain])
        gradients = [found for _, found in plain]
        along = [jax.tree.map(lambda g, x: jnp.vdot(g, jnp.cos(x)), g, w) for g in gradients]
        total = jax.tree.map(lambda *parts: sum(parts), *gradients)

        pad = [(0, NODES - len(nodes.left))]
        tree = Tree(*(jnp.asarray(np.pad(x, pad, constant_values=-1)) for x in nodes))
        wanted = (w, tree, jnp.asarray(roots))
        run = (lambda f: f) if executor == "host" else JITTED.__getitem__
        assert_close(run(values)(*wanted), states, precision.values)
        assert_close(run(gradient_of_batch)(*wanted), total, precision.gradients)
        assert_close(run(gradient_of_each)(*wanted), stacked(gradients), precision.gradients)
        sums = jnp.stack([sum(jax.tree.leaves(parts)) for parts in along])
        assert_close(run(tangents)(*wanted), sums, precision.gradients)


def stacked(trees: Any) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)
