"""Derivatives of derivatives inside `vmap` and `shard_map`, and pullbacks that leave `vmap`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from waves import sine

import jaxrec as jr


@jr.rec_fn(max_calls=40)
def sines(x, n):
    return jr.cond(n <= 0, lambda: x, lambda: sine(x * sines(x, n - 1)))


def by_hand(x, n):
    return x if n <= 0 else jnp.sin(x * by_hand(x, n - 1))


@jr.rec_fn(max_calls=60)
def shrunk(w, x, n):
    """Its control is computed."""
    stop = (jnp.sum(x * x) < 0.2) | (n <= 0)
    return jr.cond(stop, lambda: x, lambda: jnp.tanh(w @ shrunk(w, 0.7 * x, n - 1)))


POINTS = jnp.array([0.5, 0.9, 1.3])
ORDERS: dict[str, Any] = {
    "hessian": jax.hessian,
    "jacfwd of jacfwd": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(f)),
    "grad of grad, compiled": lambda f: jax.jit(jax.grad(jax.grad(f))),
    "third": lambda f: jax.grad(jax.grad(jax.grad(f))),
}


def expected(order: Any, *numbers: int) -> Any:
    pairs = zip(POINTS, numbers or (2, 2, 2), strict=True)
    return jnp.stack([order(lambda x, n=n: by_hand(x, n))(x) for x, n in pairs])


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_inside_vmap(order):
    found = jax.vmap(order(lambda x: sines(x, 2)))(POINTS)
    np.testing.assert_allclose(found, expected(order), rtol=1e-4)


@pytest.mark.parametrize("executor", ["host", "reference"])
def test_on_other_executors(executor):
    with jr.executor(executor):
        found = jax.vmap(jax.grad(jax.grad(lambda x: sines(x, 2))))(POINTS)
    np.testing.assert_allclose(found, expected(ORDERS["hessian"]), rtol=1e-4)


@pytest.mark.parametrize("compile_it", [False, True], ids=["eager", "jit"])
def test_where_control_differs_from_example_to_example(compile_it):
    run = jax.vmap(jax.grad(jax.grad(sines)))
    found = (jax.jit(run) if compile_it else run)(POINTS, jnp.array([2, 1, 3]))
    np.testing.assert_allclose(found, expected(ORDERS["hessian"], 2, 1, 3), rtol=1e-4)


@pytest.mark.exhaustive
def test_where_control_is_computed():
    w, xs = 0.5 * jnp.eye(2) + 0.1, jnp.array([[0.3, 0.8], [0.9, 1.1], [0.0, 0.1]])
    second = jax.hessian(lambda x: jnp.sum(shrunk(w, x, 3) ** 2))
    alone = jax.jit(second)
    apart = jnp.stack([alone(x) for x in xs])
    assert float(jnp.abs(apart).max()) > 0.01
    np.testing.assert_allclose(jax.vmap(second)(xs), apart, rtol=1e-5, atol=1e-7)


NESTED: dict[str, Any] = {
    "jvp of jvp": lambda f: (
        lambda w, v: jax.jvp(lambda w: jax.jvp(f, (w,), (v,))[1], (w,), (v,))[1]
    ),
    "grad of jvp": lambda f: lambda w, v: jax.grad(lambda w: jax.jvp(f, (w,), (v,))[1])(w),
    "jvp of grad": lambda f: lambda w, v: jax.jvp(jax.grad(f), (w,), (v,))[1],
    "grad of grad": lambda f: jax.grad(lambda w, v: jnp.vdot(jax.grad(f)(w), v)),
}


@pytest.mark.parametrize("nested", NESTED.values(), ids=NESTED.keys())
def test_control_reads_values_and_no_tangents(nested):
    """A choice by an array that both has a derivative and is closed over."""

    @jr.rec_fn(max_calls=16)
    def chosen(w, n):
        def last():
            return jr.cond(w.sum() > 1.0, lambda: w**3, lambda: 1.0 / w)

        return jr.cond(n == 0, last, lambda: jnp.sin(chosen(w, n - 1)))

    def plain(w):
        return jnp.sin(w**3).sum()

    w, v = jnp.array([0.5, 0.9]), jnp.array([-1.0, 0.3])
    found = nested(lambda w: chosen(w, 1).sum())(w, v)
    np.testing.assert_allclose(found, nested(plain)(w, v), rtol=1e-4)


@pytest.mark.parametrize(
    "both",
    [False, pytest.param(True, marks=pytest.mark.exhaustive)],
    ids=["weights are shared", "weights are mapped"],
)
def test_of_weights_under_vmap_twice(both):
    """Cotangents that are kept apart by example, of weights that the inner examples share."""

    def loss(w, x):
        return jnp.sum(shrunk(w, x, 3) ** 2)

    def by_hand(w, x, n=3):
        return (
            jnp.where(jnp.sum(x * x) < 0.2, x, jnp.tanh(w @ by_hand(w, 0.7 * x, n - 1))) if n else x
        )

    ws = jnp.stack([0.5 * jnp.eye(2) + 0.1, 0.3 * jnp.eye(2) - 0.2])
    xs = jnp.array([[0.3, 0.8], [0.9, 1.1], [1.0, -0.7]])

    def mapped(loss):
        inner = jax.vmap(jax.hessian(loss), (None, 0))
        if both:
            return jax.vmap(inner, (0, None))(ws, xs)
        return inner(ws[0], xs)

    np.testing.assert_allclose(
        mapped(loss), mapped(lambda w, x: jnp.sum(by_hand(w, x) ** 2)), rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize(
    "activation", [pytest.param(jnp.tanh, marks=pytest.mark.exhaustive), jax.nn.relu]
)
def test_memory_is_that_of_a_few_gradients(activation):
    """Nothing is kept for each wave that there might be."""

    @jr.rec_fn(max_calls=2000)
    def chain(w, n):
        return jr.cond(n == 0, lambda: w[0], lambda: activation(w @ chain(w, n - 1)))

    def memory(fun):
        found = jax.jit(fun).lower(jnp.eye(32), 10).compile().memory_analysis()
        assert found is not None
        return found.temp_size_in_bytes

    once = jax.grad(lambda w, n: chain(w, n).sum())
    twice = jax.grad(lambda w, n: once(w, n).sum())
    assert memory(twice) < 6 * memory(once)


WEIGHTS, VECTORS = jnp.array([[0.5, 0.2], [-0.3, 0.8]]), jnp.array([[0.9, 0.1], [0.4, -0.7]])


def by_hand_shrunk(w, x, n):
    if jnp.sum(x * x) < 0.2 or n <= 0:
        return x
    return jnp.tanh(w @ by_hand_shrunk(w, 0.7 * x, n - 1))


class TestGradientsByExample:
    """By weights that all examples share: their cotangents are apart, and differentiated."""

    @staticmethod
    def norms(fun: Any, of_all: Any) -> Any:
        """By the weights, of the norms of the gradients by them."""

        def of_one(w, x):
            return jnp.sum(jax.grad(lambda w: jnp.sum(fun(w, x, 3) ** 2))(w) ** 2)

        return jax.grad(lambda w: of_all(of_one, w))(WEIGHTS)

    @staticmethod
    def adapted(fun: Any, of_all: Any) -> Any:
        """By the weights, of losses after a step of each example's own (Finn et al. 2017)."""

        def of_one(w, x):
            def loss(w):
                return jnp.sum(fun(w, x, 3) ** 2)

            return loss(w - 0.1 * jax.grad(loss)(w))

        return jax.grad(lambda w: of_all(of_one, w))(WEIGHTS)

    @staticmethod
    def of_head(fun: Any, of_all: Any) -> Any:
        """By what the results go through, of the norms of the gradients by the weights."""

        def of_one(head, x):
            return jnp.sum(jax.grad(lambda w: head @ fun(w, x, 3))(WEIGHTS) ** 2)

        return jax.grad(lambda head: of_all(of_one, head))(jnp.array([1.0, -0.5]))

    @staticmethod
    def mapped(of_one: Any, shared: Any) -> Any:
        return jnp.sum(jax.vmap(of_one, (None, 0))(shared, VECTORS))

    @pytest.mark.parametrize(
        ("executor", "loss"),
        [
            pytest.param("graph", "norms", marks=pytest.mark.slow),
            ("graph", "adapted"),
            ("graph", "of_head"),
            pytest.param("host", "adapted", marks=pytest.mark.slow),
        ],
    )
    def test_gradients_of_what_they_make(self, executor, loss):
        with jr.executor(executor):
            found = getattr(self, loss)(shrunk, self.mapped)
        expected = getattr(self, loss)(
            by_hand_shrunk, lambda of_one, shared: sum(of_one(shared, x) for x in VECTORS)
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)

    def test_mapped_once_more(self):
        def of_group(group):
            def mapped(of_one: Any, shared: Any) -> Any:
                return jnp.sum(jax.vmap(of_one, (None, 0))(shared, group))

            return self.norms(shrunk, mapped)

        groups = jnp.stack([VECTORS, 0.8 * VECTORS, -VECTORS])
        found = jax.jit(jax.vmap(of_group))(groups)
        for group, slope in zip(groups, found, strict=True):
            np.testing.assert_allclose(slope, of_group(group), rtol=1e-4, atol=1e-6)


def test_where_a_derivative_is_a_loop():
    """That of a draw from the gamma distribution, which JAX differentiates forward alone."""

    def drawn(x):
        return 0.1 * jax.random.gamma(jax.random.key(0), 1 + x * x)

    @jr.rec_fn
    def draws(x, n):
        return jr.cond(n == 0, lambda: x, lambda: drawn(draws(0.7 * x, n - 1)) + x)

    def of(f):
        return jax.jit(jax.hessian(lambda x: jnp.sum(f(x)) ** 2))(POINTS)

    np.testing.assert_allclose(
        of(lambda x: draws(x, 2)), of(lambda x: drawn(drawn(0.49 * x) + 0.7 * x) + x), rtol=1e-4
    )


def test_of_no_examples():
    second = jax.vmap(jax.grad(jax.grad(sines)))
    assert second(jnp.zeros(0), jnp.zeros(0, jnp.int32)).shape == (0,)


def test_inside_shard_map():
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))

    def total(x):
        def body(x, xs):
            return jax.lax.psum(jnp.sum(sines(x * xs[0], 2) ** 2), "d")

        run = jax.shard_map(body, mesh=mesh, in_specs=(P(), P("d")), out_specs=P())
        return run(x, jnp.array([1.1]))

    found = jax.jit(jax.grad(jax.grad(total)))(0.7)
    exact = jax.grad(jax.grad(lambda x: by_hand(x * 1.1, 2) ** 2))(0.7)
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_reference_compiled_where_control_is_known():
    with jr.executor("reference"):
        found = jax.jit(jax.grad(lambda x: sines(x, 2)))(0.7)
    np.testing.assert_allclose(found, jax.grad(by_hand)(0.7, 2), rtol=1e-5)


class TestPullbacksThatLeaveVmap:
    """Their residuals were made for one example, which never ran by itself."""

    exact = jax.vmap(jax.grad(lambda x: by_hand(x, 2)))(POINTS)

    def pulls(self):
        return jax.vmap(lambda x: jax.vjp(lambda x: sines(x, 2), x)[1])(POINTS)

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_one_by_one(self, executor):
        with jr.executor(executor):
            pulls = self.pulls()
            for k, slope in enumerate(self.exact):
                (found,) = jax.tree.map(lambda x, k=k: x[k], pulls)(1.0)
                np.testing.assert_allclose(found, slope, rtol=1e-5)

    def test_under_vmap_again(self):
        (found,) = jax.vmap(lambda pull, ct: pull(ct))(self.pulls(), jnp.ones(3))
        np.testing.assert_allclose(found, self.exact, rtol=1e-5)

    def test_linear_functions(self):
        pushes = jax.vmap(lambda x: jax.linearize(lambda x: sines(x, 2), x)[1])(POINTS)
        found = jax.tree.map(lambda x: x[1], pushes)(1.0)
        np.testing.assert_allclose(found, self.exact[1], rtol=1e-5)

    def test_compiled_they_are_not_a_number(self):
        """There it cannot be seen that they have to run once more, and no number is wrong."""
        (found,) = jax.lax.map(lambda t: t[0](t[1]), (self.pulls(), jnp.ones(3)))
        assert np.isnan(found).all()


@pytest.mark.parametrize("executor", ["graph", pytest.param("host", marks=pytest.mark.exhaustive)])
def test_where_every_call_has_a_key_of_its_own(executor):
    """JAX gives what it takes for an unset array of keys an axis of examples."""

    @jr.rec_fn(max_calls=9)
    def drawn(key, x, n):
        def node():
            return drawn(jax.random.split(key)[0], x, n - 1)

        return jr.cond(n <= 0, lambda: sine(x * (1 + jax.random.uniform(key))), node)

    key = jax.random.key(1)
    scale = 1 + jax.random.uniform(jax.random.split(jax.random.split(key)[0])[0])
    with jr.executor(executor):
        found = jax.hessian(lambda x: drawn(key, x, 2))(0.3)
    np.testing.assert_allclose(found, -(scale**2) * jnp.sin(0.3 * scale), rtol=1e-5)


@pytest.mark.parametrize(
    ("fun", "executor"),
    [(sines, "host"), (shrunk, "graph")],
    ids=["a planned one", "a stepped one"],
)
def test_a_second_eager_call_compiles_nothing(fun, executor, caplog):
    def loss(x):
        made = fun(x, 2) if fun is sines else fun(0.5 * jnp.eye(2) + 0.1, x, 3)
        return jnp.sum(made**2)

    x = jnp.float32(0.7) if fun is sines else jnp.array([0.9, 1.1])

    def derivatives():
        product = jax.jvp(jax.grad(loss), (x,), (x,))[1]
        return jax.hessian(loss)(x), product, jax.jacrev(jax.jacrev(loss))(x)

    with jr.executor(executor):
        first = derivatives()
        with jax.log_compiles(), caplog.at_level("WARNING"):
            second = derivatives()
    assert "Compiling" not in caplog.text
    jax.tree.map(np.testing.assert_array_equal, first, second)
