"""Platforms whose programs cannot call the scheduler, played by CPU: they call back to the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import JAXREC, PYTHON, assert_close, forest
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec.primitives import _invoke
from jaxrec.schedule import _native, _plan, _step
from jaxrec.schedule._platform import platform_named


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch):
    def by_callback(run, otherwise, operands):
        return otherwise(*operands)

    monkeypatch.setattr(_plan, "by_handler", by_callback)
    monkeypatch.setattr(_native, "by_handler", by_callback)
    monkeypatch.setattr(_step, "PLATFORMS", ())
    monkeypatch.setattr(_invoke, "platform_named", lambda _: platform_named("tpu"))


def test_planned():
    w, tree, roots = weights(), forest(), jnp.array([0, 10])

    def loss(language, w):
        run = tree_rnn(language)
        if language is PYTHON:
            return sum(jnp.sum(run(w, tree, int(i)) ** 2) for i in roots)
        return jnp.sum(jax.vmap(run, (None, None, 0))(w, tree, roots) ** 2)

    got = jax.jit(jax.value_and_grad(lambda w: loss(JAXREC, w)))(w)
    assert_close(got, jax.value_and_grad(lambda w: loss(PYTHON, w))(w), 1e-4)


def test_scalars():
    @jr.rec_fn
    def fib(n):
        return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

    np.testing.assert_array_equal(jax.jit(jax.vmap(fib))(jnp.arange(12)), [*map(fib, range(12))])


def test_computed_control_is_refused():
    @jr.rec_fn(max_calls=9)
    def halve(x):
        return jr.cond(jnp.sum(x) < 1, lambda: x, lambda: halve(x / 2))

    message = r"halve: .* on CPU and on NVIDIA's GPUs only, and this one is compiled for cpu"
    with pytest.raises(jr.UnsupportedError, match=message):
        jax.jit(halve)(jnp.ones(100))


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_wide_waves(executor):
    """As wide as on an accelerator, and one after another where that is asked for."""

    @jr.rec_fn
    def tree(w, n):
        return jr.cond(n < 2, lambda: jnp.sin(w), lambda: w * tree(w, n - 1) + tree(w, n - 2))

    def plain(w, n):
        return jnp.sin(w) if n < 2 else w * plain(w, n - 1) + plain(w, n - 2)

    w = jnp.linspace(0.1, 0.9, 40)
    with jr.executor(executor):
        assert_close(tree(w, 9), plain(w, 9), 1e-5)
        widths = {wave.width for wave in tree.schedule(w, 9).waves}
    assert min(widths) >= 16
    with jr.executor("host", policy="alone"):
        assert {wave.width for wave in tree.schedule(w, 9).waves} == {1}
        assert_close(tree(w, 9), plain(w, 9), 1e-5)
