"""Choices without calls that depend on computed values: which run all branches, and which one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import JAXREC, PYTHON, assert_close

import jaxrec as jr
from jaxrec.split._split import split

LEFT, RIGHT = jnp.array([-1, -1, 0, -1, 2, -1, 4]), jnp.array([-1, -1, 1, -1, 3, -1, 5])
LEAVES = jnp.linspace(-0.8, 0.9, 7 * 8).reshape(7, 8)
executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])


def fold(language, branches):
    """A tree of vectors; a branch makes a node's from what its children add up to."""

    @language.rec_fn(max_calls=64)
    def encode(w, leaves, node):
        def inner():
            x = encode(w, leaves, LEFT[node]) + encode(w, leaves, RIGHT[node])
            return language.switch(
                jnp.int32(x.sum() > 0), [lambda run=run: run(w, x) for run in branches]
            )

        return language.cond(LEFT[node] < 0, lambda: leaves[node], inner)

    return encode


def ruled(slope):
    """A function with a rule, whose derivative is a function of its argument."""
    fun = jax.custom_jvp(lambda x: 2 * x)
    fun.defjvp(lambda primals, tangents: (fun(*primals), slope(*primals) * tangents[0]))
    return fun


def refuses(x):
    raise ValueError("has no derivative")


def weights(size=8):
    return jnp.asarray(np.random.default_rng(3).normal(size=(size, size)) / size, jnp.float32)


SHORT = [lambda w, x: jnp.tanh(w @ x), lambda w, x: w.T @ x]
APART = {
    "division": [lambda w, x: w @ x / x.max(), SHORT[0]],
    "rule with a root": [lambda w, x: ruled(jnp.sqrt)(w @ x), SHORT[0]],
    "rule that raises": [lambda w, x: ruled(refuses)(w @ x), SHORT[0]],
    "rule with such a rule": [lambda w, x: ruled(ruled(jnp.sqrt))(w @ x), SHORT[0]],
    "loop": [lambda w, x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y + 1, x), SHORT[0]],
}


def is_stepped(branches, size=8):
    """Whether waves wait for what cells compute."""
    args = jnp.zeros((size, size)), jnp.zeros((7, size)), 6
    return split(fold(JAXREC, branches).graph(*args)).is_stepped


RULES = {"of JAX": jax.nn.relu, "of the user": ruled(jnp.cos), "in another": ruled(ruled(jnp.cos))}


def test_short_branches_run_together():
    assert not is_stepped(SHORT)


@pytest.mark.parametrize("case", RULES)
def test_rules_are_looked_into(case):
    assert not is_stepped([lambda w, x: RULES[case](w @ x), SHORT[1]])


@pytest.mark.parametrize("case", APART)
def test_others_run_apart(case):
    assert is_stepped(APART[case])


def test_long_branches_run_apart():
    assert is_stepped(SHORT, 400)
    assert is_stepped([lambda w, x, k=k: w @ (k * x) for k in range(16)], 128)
    assert not is_stepped([lambda w, x, k=k: w @ (k * x) for k in range(5)], 128)


@executors
def test_values_and_gradients(executor):
    args = weights(), LEAVES

    def total(language):
        return lambda w, leaves: fold(language, SHORT)(w, leaves, 6).sum()

    with jr.executor(executor):
        assert_close(total(JAXREC)(*args), total(PYTHON)(*args), 1e-5)
        found = jax.grad(total(JAXREC), (0, 1))(*args)
    assert_close(found, jax.grad(total(PYTHON), (0, 1))(*args), 1e-5)


@executors
@pytest.mark.parametrize("bad", [jnp.inf, jnp.nan])
def test_what_is_not_taken_adds_nothing(executor, bad):
    """The branch that multiplies is not for rows that hold an infinity, nor are their weights."""

    def make(language):
        @language.rec_fn(max_calls=64)
        def encode(w, leaves, node):
            def inner():
                x = encode(w, leaves, LEFT[node]) + encode(w, leaves, RIGHT[node])
                fine = jnp.isfinite(x).all()
                return language.cond(fine, lambda: jnp.tanh(w @ x), lambda: jnp.ones_like(x))

            return language.cond(LEFT[node] < 0, lambda: leaves[node], inner)

        return lambda w, leaves: encode(w, leaves, 6).sum()

    args = weights(), LEAVES.at[1, 2].set(bad)
    with jr.executor(executor):
        found = jax.value_and_grad(make(JAXREC), (0, 1))(*args)
    expected = jax.value_and_grad(make(PYTHON), (0, 1))(*args)
    assert np.isfinite(expected[1][0]).all()
    assert_close(found, expected, 1e-5)


def test_a_matrix_is_not_copied_for_each_row():
    run = jax.jit(jax.grad(lambda w: fold(JAXREC, SHORT)(w, LEAVES, 6).sum()))
    text = run.lower(weights()).as_text()
    assert "x8xf32>" in text
    assert "x8x8xf32>" not in text


@executors
def test_a_callback_is_for_the_branch_that_is_taken(executor):
    def check(x):
        assert x.sum() > 0
        return x

    def checked(w, x):
        return jax.pure_callback(check, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    branches = [lambda w, x: x - 1, checked]
    with jr.executor(executor):
        found = fold(JAXREC, branches)(weights(), LEAVES, 6)
    assert_close(found, fold(PYTHON, branches)(weights(), LEAVES, 6), 1e-5)
