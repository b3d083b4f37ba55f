"""A wave computes more rows than it has calls: what that must not be seen by."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import EXECUTORS, picked
from processes import check_in_a_process
from waves import sine, tanh

import jaxrec as jr

executors = pytest.mark.parametrize("executor", EXECUTORS)
LENGTHS = jnp.array([1, 5, 9, 2, 7])


class Seen:
    """The values that a function of Python was called with."""

    def __init__(self) -> None:
        self.values: set[float] = set()

    def look(self, x: Any) -> Any:
        def looked(x: Any) -> Any:
            self.values.add(float(x))
            return x

        shape = jax.ShapeDtypeStruct((), jnp.float32)
        return jax.pure_callback(looked, shape, x, vmap_method="sequential")


@executors
def test_python_sees_calls_alone(executor: str) -> None:
    seen = Seen()

    @jr.rec_fn
    def f(w: Any, n: Any) -> Any:
        def on() -> Any:
            rest = f(w, n - 1)
            return 0 * rest + seen.look(rest[0])

        return jr.cond(n < 1, lambda: w + 3, on)

    with jr.executor(executor):
        made = jax.vmap(f, (None, 0))(jnp.zeros(2), LENGTHS)
    np.testing.assert_array_equal(made, np.full((5, 2), 3.0))
    assert seen.values == {3.0}


@executors
def test_python_sees_calls_alone_in_reverse(executor: str) -> None:
    """Also where nothing in front of the derivative tells that it calls Python."""
    seen = Seen()

    @jax.custom_vjp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defvjp(lambda x: (2 * x, x), lambda x, ct: (2 * ct + 0 * seen.look(x + ct),))

    @jr.rec_fn
    def f(w: Any, x: Any, n: Any) -> Any:
        return jr.cond(n < 1, lambda: w * x, lambda: doubled(f(w, x, n - 1)) / 2)

    def loss(w: Any) -> Any:
        return jnp.sum(jax.vmap(f, (None, None, 0))(w, jnp.float32(3), LENGTHS[:3]))

    with jr.executor(executor):
        value, slope = jax.value_and_grad(loss)(jnp.float32(5))
    assert (float(value), float(slope)) == (45.0, 9.0)
    assert seen.values == {15.5}


@pytest.mark.parametrize("policy", ["adaptive", "batch"])
def test_no_cost_is_measured_on_values_that_no_call_has(policy: str, monkeypatch: Any) -> None:
    seen = Seen()
    monkeypatch.setattr("jaxrec.executors.host._schedule.pays", lambda *_: True)

    @jr.rec_fn
    def f(w: Any, n: Any) -> Any:
        return jr.cond(n < 1, lambda: w + 3, lambda: seen.look(1 + f(w, n - 1)) - 1)

    with jr.executor("host", policy=policy, workers=2):
        made = jax.vmap(f, (None, 0))(jnp.float32(0), LENGTHS)
    np.testing.assert_array_equal(made, np.full(5, 3.0))
    assert seen.values == {4.0}


@pytest.mark.parametrize("stepped", [False, True])
def test_a_pullback_that_jit_closes_over(stepped: bool) -> None:
    """The schedule is a constant then, and the contraction a loop whose length XLA knows."""

    @jr.rec_fn(max_calls=8)
    def f(w: Any, x: Any, i: Any) -> Any:
        last = jnp.sum(x) * (i == 0) > 0 if stepped else i == 0
        return jr.cond(last, lambda: w * x, lambda: sine(f(w, x, i - 1) * w))

    _, pull = jax.vjp(lambda w, x: f(w, x, 2), jnp.ones(3), jnp.arange(3.0))
    for made, expected in zip(jax.jit(pull)(jnp.ones(3)), pull(jnp.ones(3)), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_python_sees_calls_alone_in_forward_mode(executor: str) -> None:
    """A rule of a derivative calls Python, where the function itself does not."""
    seen = Seen()

    @jax.custom_jvp
    def doubled(x: Any) -> Any:
        return 2 * x

    doubled.defjvp(lambda p, t: (2 * p[0], 2 * t[0] + 0 * seen.look(p[0])))

    @jr.rec_fn(max_calls=60)
    def f(w: Any, n: Any) -> Any:
        last = (n < 1) & (jnp.abs(w) < 99)
        return jr.cond(last, lambda: w, lambda: doubled(f(w, n - 1)) / 2)

    with jr.executor(executor):
        tangents = jax.vmap(lambda n: jax.jvp(lambda w: f(w, n), (5.0,), (1.0,))[1])(LENGTHS)
    np.testing.assert_array_equal(tangents, 1.0)
    assert seen.values == {5.0}


@executors
def test_rules_that_divide_by_the_size_of_the_cotangent(executor: str) -> None:
    """Of a wave's rows those that are no call have a cotangent of zero, which no call has."""
    seen = Seen()

    @jax.custom_vjp
    def squared(x: Any) -> Any:
        return x * x

    def backward(x: Any, ct: Any) -> Any:
        size = jnp.abs(seen.look(ct))
        return (2 * x * (ct / size) * size,)

    squared.defvjp(lambda x: (x * x, x), backward)

    def solved(x: Any) -> Any:
        """Of `a * y = x`, by a solver that divides by the size of what it gets."""

        def solve(matvec: Any, b: Any) -> Any:
            return b / jnp.abs(b) * jnp.abs(b) / 4

        return jax.lax.custom_linear_solve(lambda y: 4 * y, x, solve, symmetric=True)

    @jr.rec_fn
    def f(w: Any, tree: Any, i: Any) -> Any:
        def node() -> Any:
            return f(w, tree, tree[0][i]) + 2 * f(w, tree, tree[1][i])

        return jr.cond(tree[0][i] < 0, lambda: squared(w * i) + solved(w * i), node)

    tree = jnp.array([1, 3, -1, -1, -1]), jnp.array([2, 4, -1, -1, -1])
    with jr.executor(executor):
        slope = jax.grad(lambda w: f(w, tree, 0).sum())(1.5)
    leaves = {2: 2, 3: 1, 4: 2}  # with how often they are counted
    assert float(slope) == sum(n * (2 * 1.5 * i * i + i / 4) for i, n in leaves.items())
    assert seen.values == {1.0, 2.0}


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_recursion_in_the_rule_of_a_derivative(derivative: Any) -> None:
    """It ends for what calls hand to it, not for what stands in other rows."""

    @jr.rec_fn(max_calls=64)
    def halves(x: Any, m: Any) -> Any:
        return jr.cond(m == 1, lambda: x, lambda: halves(x, m - 1) / 2)

    @jax.custom_jvp
    def scaled(x: Any, m: Any) -> Any:
        return x * 2.0 ** (1 - m)

    scaled.defjvp(lambda p, t: (scaled(*p), t[0] * halves(1.0, p[1])))

    @jr.rec_fn(max_calls=64)
    def f(w: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: w, lambda: scaled(w * f(w, n - 1), n))

    assert derivative(f)(3.0, 2) == 3 * 9 / 2


@executors
def test_recursion_in_a_rule_has_the_bound_of_one_call(executor: str) -> None:
    """However many calls a wave has: each of them makes an invocation of three calls."""

    @jr.rec_fn(max_calls=3)
    def slope(x: Any, n: Any) -> Any:
        return jr.cond(n <= 0, lambda: 2 * x, lambda: 1.5 * slope(x, n - 1))

    @jax.custom_vjp
    def squared(x: Any) -> Any:
        return x * x

    squared.defvjp(lambda x: (x * x, x), lambda x, ct: (ct * slope(x, 2),))

    @jr.rec_fn(max_calls=7)
    def f(w: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: squared(w), lambda: f(w, n - 1) + f(2 * w, n - 1))

    with jr.executor(executor):
        made = jax.grad(lambda w: f(w, 2).sum())(jnp.ones(2))
    np.testing.assert_array_equal(made, 1.5**2 * 2 * (1 + 4 + 4 + 16))


@pytest.mark.parametrize(
    ("last", "executor"),
    picked(
        [(last, executor) for last in (0, 3) for executor in EXECUTORS],
        [(3, "graph"), (0, "host"), (0, "reference")],
    ),
)
def test_a_rule_that_clips_what_is_infinite(executor: str, last: int) -> None:
    """Rows that are no call repeat one whose derivative is infinite: zero times that is NaN."""

    @jax.custom_vjp
    def clipped(x: Any) -> Any:
        return x

    clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.maximum(jnp.minimum(ct, 1), -1),))

    @jr.rec_fn(max_calls=8)
    def f(w: Any, a: Any, i: Any) -> Any:
        def node() -> Any:
            return f(w, a, 2 * i + 1) + f(w, a, 2 * i + 2)

        return jr.cond(i >= 3, lambda: jnp.sqrt(a[i - 3] + clipped(w)), node)

    a = jnp.ones(4).at[last].set(0)
    with jr.executor(executor):
        assert float(jax.grad(f)(0.0, a, 0)) == 2.5
        assert float(jax.grad(jax.grad(f))(0.0, a.at[last].set(1), 0)) == -1.0


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_a_scalar_that_calls_share_between_bounds_of_their_own(executor):
    @jr.rec_fn
    def f(i, a):
        def more():
            return jax.lax.clamp(a, 2 * a, i.astype(jnp.float32)) + f(i - 1, a)

        return jr.cond(i < 1, lambda: a, more)

    with jr.executor(executor):
        assert f(3, jnp.float32(1)) == 6.0
        assert jax.grad(f, 1)(3, jnp.float32(1)) == 3.0


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_clamps_of_scalars_that_calls_share_or_have_of_their_own(executor):
    def build(rec_fn, cond):
        @rec_fn
        def f(a, b, y, n):
            def more():
                own = y * 0.4 + n
                mixtures = itertools.product((a, own - 2), (a * 2, own), (b, own + 0.5))
                return sum(jax.lax.clamp(*one) for one in mixtures) * f(a, b, y * 1.1, n - 1)

            return cond(n <= 0, lambda: y, more)

        return f

    plain = build(lambda f: f, lambda holds, yes, no: yes() if holds else no())
    args = *map(jnp.float32, (0.4, 1.7, 0.6)), 3
    with jr.executor(executor):
        found = jax.value_and_grad(build(jr.rec_fn, jr.cond), (0, 1, 2))(*args)
    want = jax.value_and_grad(plain, (0, 1, 2))(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


@jr.rec_fn
def with_a_norm(w, n):
    """Its second result has no finite derivative; nobody asks for it."""

    def more():
        below, _ = with_a_norm(w, n - 1)
        return sine(below * w), jnp.sqrt(w - w)

    return jr.cond(n <= 0, lambda: (w, jnp.sqrt(w - w)), more)


def nested_sines(w):
    return jnp.sin(jnp.sin(w * w) * w)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_a_result_without_a_cotangent(executor):
    want = jax.grad(nested_sines)(0.7)
    with jr.executor(executor):
        assert jax.grad(lambda w: with_a_norm(w, 2)[0])(0.7) == pytest.approx(want)
        found, _ = jax.grad(lambda w: with_a_norm(w, 2), has_aux=True)(0.7)
        assert found == pytest.approx(want)
        mapped = jax.vmap(jax.grad(lambda w: with_a_norm(w, 2)[0]))(jnp.array([0.7, 0.7]))
        np.testing.assert_allclose(mapped, [want, want], rtol=1e-5)
        # Where somebody asks, it is what it is.
        assert jnp.isnan(jax.grad(lambda w: sum(with_a_norm(w, 2)))(0.7))


def test_a_result_without_a_cotangent_under_jit():
    def run(w):
        return with_a_norm.with_options(max_calls=9)(w, 2)

    found, _ = jax.jit(jax.grad(run, has_aux=True))(0.7)
    assert found == pytest.approx(jax.grad(nested_sines)(0.7))


def test_calls_that_are_reported_without_a_cotangent():
    def loss(w):
        (value, _), calls = jr.collect(with_a_norm)(w, 2)
        return value + jnp.where(calls.valid, calls.results[0], 0).sum()

    def plain(w):
        return 2 * nested_sines(w) + jnp.sin(w * w) + w

    assert jax.grad(loss)(0.7) == pytest.approx(jax.grad(plain)(0.7))


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_a_rule_that_makes_something_of_nothing(executor):
    @jax.custom_vjp
    def decayed(w):
        return w

    decayed.defvjp(lambda w: (w, w), lambda w, ct: (ct + 0.1 * w,))

    @jr.rec_fn
    def f(w, x, n):
        def more():
            value, _ = f(w, x * 1.5, n - 1)
            return tanh(value * w), decayed(w) * x

        return jr.cond(n == 0, lambda: (x, decayed(w)), more)

    def plain(w):
        return jnp.tanh(jnp.tanh(0.3 * 1.5**2 * w) * w)

    with jr.executor(executor):
        found = jax.grad(lambda w: f(w, 0.3, 2)[0])(0.7)
    np.testing.assert_allclose(found, jax.grad(plain)(0.7), rtol=1e-5)


def test_convolutions_in_double_precision():
    """Their rows are not apart, and memory that is fresh holds numbers that are none."""
    check_in_a_process(
        """
        import jax, numpy as np, jaxrec as jr
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)

        @jr.rec_fn(max_calls=60)
        def planned(w, n):
            def product():
                return jnp.convolve(planned(w, n - 1), planned(0.5 * w, n - 2))[:3]

            return jr.cond(n < 2, lambda: jnp.sin(w), product)

        @jr.rec_fn(max_calls=60)
        def stepped(w, n):
            def product():
                return jax.lax.scan(
                    lambda x, y: (jnp.convolve(x, y)[:3], None), stepped(w + 0.3, n), w[None]
                )[0]

            return jr.cond(w.sum() > n, lambda: jnp.sin(w), product)

        def by_hand(w, n):
            if n < 2:
                return jnp.sin(w)
            return jnp.convolve(by_hand(w, n - 1), by_hand(0.5 * w, n - 2))[:3]

        def step_by_step(w, n):
            return jnp.sin(w) if w.sum() > n else jnp.convolve(step_by_step(w + 0.3, n), w)[:3]

        ws, ns = 0.2 * jnp.arange(9.0).reshape(3, 3), jnp.array([5, 2, 4])
        cases = [("graph", planned, by_hand), ("host", planned, by_hand)]
        cases += [("graph", stepped, step_by_step)]
        for executor, fun, plain in cases:
            of = jax.value_and_grad(lambda w, n: jnp.sum(fun(w, n)))
            with jr.executor(executor):
                found = jax.vmap(of)(ws, ns)
            for k, got in enumerate(zip(*found)):
                want = jax.value_and_grad(lambda w: jnp.sum(plain(w, ns[k])))(ws[k])
                jax.tree.map(np.testing.assert_allclose, got, want)
        print("done")
        """,
        MALLOC_PERTURB_="1",
    )
