"""Zeros in derivatives of scalar recursion: what infinity they meet leaves them zero."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import in_turn
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr

EXECUTORS = ("graph", "host")

pytestmark = pytest.mark.usefixtures("no_tapes")


def masked(lang: Language) -> Any:
    """Infinite derivatives of numbers that a choice has set to zero."""

    @lang.rec_fn
    def masked(x, n):
        def more():
            return jnp.sqrt(jax.nn.relu(x - n)) / jnp.maximum(x - n, 0.0) ** 0 + masked(x, n - 1)

        return lang.cond(n == 0, lambda: x * x, more)

    return masked


def rooted(lang: Language) -> Any:
    """An infinite derivative of a number that does not move in one call."""

    @lang.rec_fn
    def rooted(x, n):
        return lang.cond(n == 0, lambda: 0.0 * n, lambda: jnp.sqrt(rooted(x, n - 1)) + x)

    return rooted


def summed(lang: Language) -> Any:
    """Sums of probabilities, as logarithms, of which many are of nothing."""

    @lang.rec_fn
    def summed(x, n):
        def more():
            return jnp.logaddexp(
                jnp.logaddexp(summed(x, n - 1), summed(x, n - 1)), jnp.where(n == 2, x, -jnp.inf)
            )

        return lang.cond(n == 0, lambda: jnp.float32(-jnp.inf), more)

    return summed


def looped(lang: Language) -> Any:
    """The same in a loop."""

    @lang.rec_fn
    def looped(x, n):
        def add(k, total):
            return total + jnp.sqrt(jnp.where(x > k, x - k, 0.0)) * looped(x, n - 1)

        return lang.cond(n == 0, lambda: x, lambda: lang.fori_loop(0, 3, add, 0.0))

    return looped


@pytest.mark.parametrize(
    ("build", "executor"), in_turn([masked, rooted, summed, looped], EXECUTORS, 1)
)
def test_zero_stays_zero(build: Any, executor: str) -> None:
    """As in JAX's reverse mode, which leaves out what a choice does."""
    python = jax.value_and_grad(build(PYTHON))
    points = jnp.array([0.5, 1.5, 2.5])
    want = [python(x, 2) for x in points]
    with jr.executor(executor):
        run = jax.vmap(jax.value_and_grad(build(JAXREC)), (0, None))
        assert_close(run(points, 2), jax.tree.map(lambda *y: jnp.stack(y), *want), 1e-5)
        assert np.isfinite(jax.vmap(jax.jacfwd(build(JAXREC)), (0, None))(points, 2)).all()
    twice = jax.grad(jax.grad(build(PYTHON)))(2.5, 2)
    if np.isfinite(twice):
        assert_close(jax.grad(jax.grad(build(JAXREC)))(2.5, 2), twice, 1e-4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_lane_that_the_loss_leaves_out(executor: str) -> None:
    @jr.rec_fn
    def grown(w, x, n):
        def more():
            y = grown(w, x, n - 1)
            return w * y * y

        return jr.cond(n == 0, lambda: x, more)

    def loss(w):
        values = jax.vmap(grown, (None, 0, None))(w, jnp.array([0.5, 1e5]), 3)
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0))

    with jr.executor(executor):
        np.testing.assert_allclose(jax.grad(loss)(1.1), 7 * 1.1**6 * 0.5**8, rtol=1e-5)
        twice = jax.grad(jax.grad(loss))(1.1)
    np.testing.assert_allclose(twice, 42 * 1.1**5 * 0.5**8, rtol=1e-4)


def apart(lang: Language) -> Any:
    """Results of numbers of their own."""

    @lang.rec_fn
    def apart(n, x, y):
        return lang.cond(n == 0, lambda: (x, y), lambda: apart(n - 1, 2 * x, 3 * y))

    return apart


def chosen(lang: Language) -> Any:
    """Results of elements of their own, which a value and a position choose."""

    @lang.rec_fn
    def chosen(n, x, y):
        v = jnp.stack([x, y, 1 - x])
        two = jax.ops.segment_max(v, jnp.array([0, 1, 0]), 2)
        return lang.cond(n == 0, lambda: (two[0], v[n + 1]), lambda: chosen(n - 1, x, y))

    return chosen


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("build", [apart, chosen])
def test_an_infinite_derivative_of_another_result(build: Any, executor: str) -> None:
    def loss(f: Any, x: Any, y: Any) -> Any:
        a, b = f(2, x, y)
        return a + jnp.sqrt(b)

    def of_array(f: Any, v: Any) -> Any:
        return loss(f, v[0], v[1])

    recursive, python = build(JAXREC), build(PYTHON)
    both = jax.grad(partial(loss, python), (0, 1))(1.0, 0.0)
    assert np.isinf(both[1])
    with jr.executor(executor):
        np.testing.assert_allclose(
            jax.grad(partial(loss, recursive), (0, 1))(1.0, 0.0), both, rtol=1e-6
        )
        v = jnp.array([1.0, 0.0])
        np.testing.assert_allclose(
            jax.grad(partial(of_array, recursive))(v), jnp.stack(both), rtol=1e-6
        )
    compiled = jax.jit(jax.grad(partial(loss, recursive), (0, 1)))(1.0, 0.0)
    np.testing.assert_allclose(compiled, both, rtol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_infinite_derivative_of_an_element(executor: str) -> None:
    def build(lang: Language) -> Any:
        @lang.rec_fn
        def read(n, v):
            return lang.cond(n == 0, lambda: v[v[0].astype(int)], lambda: read(n - 1, v))

        return read

    v = jnp.array([1.0, 0.0, 5.0])
    want = jax.grad(lambda v: jnp.sqrt(build(PYTHON)(2, v)))(v)
    np.testing.assert_array_equal(want, [0, np.inf, 0])
    with jr.executor(executor):
        np.testing.assert_allclose(
            jax.grad(lambda v: jnp.sqrt(build(JAXREC)(2, v)))(v), want, rtol=1e-6
        )


def test_higher_orders_of_zeros() -> None:
    """A tangent that is zero at a point has a derivative there."""

    @jr.rec_fn
    def squares(x, n):
        return jr.cond(n == 0, lambda: x * x, lambda: 3 * squares(x, n - 1) + x**3)

    assert [float(f(0.0, 2)) for f in (squares, jax.grad(squares))] == [0, 0]
    assert float(jax.grad(jax.grad(squares))(0.0, 2)) == 18
    assert float(jax.grad(jax.grad(jax.grad(squares)))(0.0, 2)) == 24

    @jr.rec_fn
    def products(v, n):
        return jr.cond(n == 0, lambda: v[0] * v[1] + v[2] ** 2, lambda: 3 * products(v, n - 1))

    hessian = [[0, 3, 0], [3, 0, 0], [0, 0, 6]]
    np.testing.assert_array_equal(jax.hessian(products)(jnp.zeros(3), 1), hessian)


STEPS = {
    "fori_loop": lambda v: jax.lax.fori_loop(0, 2, lambda _, x: jnp.sqrt(x), v).sum(),
    "scan": lambda v: jax.lax.scan(lambda c, x: (c + jnp.sqrt(x), None), 0.0, v)[0],
    "operations": lambda v: jnp.sqrt(jnp.sqrt(v)).sum(),
}


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_what_follows_from_arguments_that_all_calls_share(step: Any, executor: str) -> None:
    """It is computed beforehand, whatever operations it is of."""

    def build(lang: Language) -> Any:
        @lang.rec_fn
        def repeated(v, n):
            return lang.cond(n == 0, lambda: step(v), lambda: step(v) + repeated(v, n - 1))

        return repeated

    v = jnp.array([1.0, 0.0])
    want = jax.grad(build(PYTHON))(v, 2)
    assert np.isfinite(want[0]) and np.isinf(want[1])
    with jr.executor(executor):
        np.testing.assert_allclose(jax.grad(build(JAXREC))(v, 2), want, rtol=1e-6)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("turns", [0, 2])
def test_second_derivatives_of_what_all_calls_share(turns: int, executor: str) -> None:
    """In a product of two tangents either may be zero."""

    def build(lang: Language) -> Any:
        @lang.rec_fn
        def repeated(p, n):
            def root() -> Any:
                turned = jax.lax.fori_loop(0, turns, lambda _, x: jnp.sqrt(x * x), p["b"])
                return jnp.sqrt(turned if turns else p["b"]) + p["a"] * p["a"]

            return lang.cond(n == 0, lambda: p["a"] + root(), lambda: root() + repeated(p, n - 1))

        return repeated

    point = {"a": 1.5, "b": 0.0}
    with jr.executor(executor):
        found = jax.grad(lambda p: jax.grad(build(JAXREC))(p, 2)["a"])(point)
        assert jax.tree.map(float, found) == {"a": 6, "b": 0}
        by_a = jax.hessian(build(JAXREC))(point, 2)["a"]
    assert jax.tree.map(float, by_a) == {"a": 6, "b": 0}
