"""Transformations of JAX that the zoo does not run, and what they cost the second time."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from waves import sine, tanh
from zoo import JAXREC, PYTHON, assert_close, forest, loss, normal, roots
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec._errors import RUN_TIME_ERRORS

RNN = tree_rnn(JAXREC)
PLAIN = tree_rnn(PYTHON)


@pytest.fixture
def args():
    return weights(), forest(), 0


def value(w, tree, i):
    return loss(RNN(w, tree, i))


def plain(w, tree, i):
    return loss(PLAIN(w, tree, i))


@jr.rec_fn
def pair(w, tree, i):
    def node():
        (a, b), (c, d) = pair(w, tree, tree["left"][i]), pair(w, tree, tree["right"][i])
        return a + c, b * d

    return jr.cond(tree["left"][i] < 0, lambda: (w * jnp.ones(2), w), node)


class TestNoLanes:
    """A batch of no examples has results with no rows, and no gradient."""

    none = jnp.zeros(0, jnp.int32)

    @pytest.fixture
    def tree(self):
        return {"left": jnp.array([1, -1, -1]), "right": jnp.array([2, -1, -1])}

    def check(self, got, lanes=(0,)):
        assert [(x.shape, x.dtype) for x in got] == [((*lanes, 2), "float32"), (lanes, "float32")]

    @pytest.mark.parametrize("executor", ["graph", "host", "reference"])
    def test_of_roots(self, tree, executor):
        def total(w):
            return sum(jnp.sum(x) for x in jax.vmap(pair, (None, None, 0))(w, tree, self.none))

        with jr.executor(executor):
            self.check(jax.vmap(pair, (None, None, 0))(0.5, tree, self.none))
            assert jax.grad(total)(0.5) == 0
            result, calls = jr.collect(pair, (None, None, 0))(0.5, tree, self.none)
        self.check(result)
        assert not calls.valid.any()

    @pytest.mark.parametrize("executor", ["graph", "host", "reference"])
    def test_of_trees_and_of_weights(self, tree, executor):
        trees = jax.tree.map(lambda x: jnp.zeros((0, *x.shape), x.dtype), tree)
        with jr.executor(executor):
            self.check(jax.vmap(pair, (None, 0, None))(0.5, trees, 0))
            self.check(jax.vmap(pair, (0, None, None))(jnp.zeros(0), tree, 0))
            both = jax.vmap(jax.vmap(pair, (None, None, 0)), (0, None, None))
            self.check(both(jnp.ones(3), tree, self.none), lanes=(3, 0))

    def test_under_jit(self, tree):
        def total(w, roots):
            result, calls = jr.collect(pair, (None, None, 0))(w, tree, roots)
            return jnp.sum(result[0]) + jnp.sum(calls.results[1])

        assert jax.jit(jax.grad(total))(0.5, self.none) == 0


class TestStaging:
    def test_eval_shape(self, args):
        assert jax.eval_shape(RNN, *args) == jax.ShapeDtypeStruct((3,), jnp.float32)

    def test_eval_shape_of_types_alone(self, args):
        types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), args)
        assert jax.eval_shape(jax.grad(value), *types)["bias"].shape == (3,)

    def test_make_jaxpr_shows_one_operation(self, args):
        names = [eqn.primitive.name for eqn in jax.make_jaxpr(RNN)(*args).eqns]
        assert names.count("rec") == 1

    def test_lowered_and_compiled_ahead_of_time(self, args):
        lowered = jax.jit(jax.value_and_grad(value)).lower(*args)
        got = lowered.compile()(*args)
        assert_close(got, jax.value_and_grad(plain)(*args), 1e-4)


class TestDerivatives:
    def test_value_and_grad(self, args):
        got = jax.jit(jax.value_and_grad(value))(*args)
        assert_close(got, jax.value_and_grad(plain)(*args), 1e-4)

    def test_vjp(self, args):
        w, tree, i = args
        out, pull = jax.vjp(lambda w: RNN(w, tree, i), w)
        want, plain_pull = jax.vjp(lambda w: PLAIN(w, tree, i), w)
        assert_close(out, want, 1e-5)
        assert_close(pull(out), plain_pull(out), 1e-4)

    @pytest.mark.parametrize("jacobian", [jax.jacrev, jax.jacfwd])
    def test_jacobians(self, jacobian):
        tree, leaves = forest(), normal(1, 6, 2)
        rest = {"kernel": normal(2, 4, 2), "bias": normal(3, 2)}

        def of(fun):
            return jacobian(lambda x: fun({"embed": x, **rest}, tree, 9))(leaves)

        assert_close(of(RNN), of(PLAIN), 1e-4)

    @pytest.mark.slow
    def test_hessian(self, args):
        w, tree, _ = args

        def of(fun):
            return jax.hessian(lambda b: fun({**w, "bias": b}, tree, 10))(w["bias"])

        assert_close(of(value), of(plain), 1e-3)

    @pytest.mark.slow
    def test_gradient_of_a_gradient(self, args):
        w, tree, _ = args

        def of(fun, compiled):
            def inner(b):
                return jnp.sin(jax.grad(lambda b: fun({**w, "bias": b}, tree, 10))(b)).sum()

            return compiled(jax.grad(inner))(w["bias"])

        assert_close(of(value, jax.jit), of(plain, lambda f: f), 1e-3)

    @pytest.mark.slow
    def test_check_grads_to_second_order(self):
        w, tree = (
            {"embed": normal(1, 6, 2), "kernel": normal(2, 4, 2), "bias": normal(3, 2)},
            forest(),
        )
        run = jax.jit(lambda w: RNN(w, tree, 10))
        check_grads(run, (w,), order=2, modes=["rev"], atol=5e-2, rtol=5e-2)

    def test_checkpoint_around_a_batch(self, args):
        w, tree, _ = args
        run = jax.checkpoint(lambda w: jax.vmap(RNN, (None, None, 0))(w, tree, roots()))
        got = jax.jit(jax.grad(lambda w: (run(w) ** 2).sum()))(w)
        want = jax.grad(lambda w: sum((PLAIN(w, tree, int(i)) ** 2).sum() for i in roots()))(w)
        assert_close(got, want, 1e-4)

    def test_scan_over_calls(self, args):
        w, tree, _ = args

        def step(total, i):
            return total + RNN(w, tree, i), None

        got = jax.jit(lambda: jax.lax.scan(step, jnp.zeros(3), roots())[0])()
        assert_close(got, sum(PLAIN(w, tree, int(i)) for i in roots()), 1e-5)

    def test_vmap_of_vmap(self, args):
        w, tree, _ = args
        pairs = jnp.stack([roots(), roots()[::-1]])
        run = jax.vmap(jax.vmap(RNN, (None, None, 0)), (0, None, 0))
        both = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), w)
        got = run(both, tree, pairs)
        for k in range(2):
            lane = jax.tree.map(lambda x, k=k: x[k], both)
            assert_close(got[k], jnp.stack([PLAIN(lane, tree, int(i)) for i in pairs[k]]), 1e-5)

    @pytest.mark.parametrize(
        "around",
        [
            lambda f: f,
            jax.jit,
            jax.checkpoint,
            lambda f: lambda i: jax.vmap(f)(i[None])[0],
            lambda f: lambda i: jax.vmap(lambda x: f(i) + x)(jnp.zeros(2))[1],
            lambda f: lambda i: jax.lax.map(f, i[None])[0],
            lambda f: lambda i: jax.jvp(lambda x: f(i) + x, (0.0,), (1.0,))[0],
        ],
        ids=["none", "jit", "checkpoint", "vmap", "vmap over others", "map", "jvp over others"],
    )
    def test_transformations_inside_vmap(self, args, around):
        """The mapped value comes as an argument, or as a value that is closed over."""
        w, tree, _ = args
        got = jax.vmap(around(lambda i: RNN(w, tree, i)))(roots())
        want = jnp.stack([PLAIN(w, tree, int(i)) for i in roots()])
        assert_close(got, want, 1e-5)
        scaled = jax.vmap(
            lambda s: around(lambda i: RNN(jax.tree.map(lambda x: s * x, w), tree, i))(roots()[0])
        )(jnp.array([1.0, 1.0]))
        assert_close(scaled, jnp.stack([want[0]] * 2), 1e-5)

    @pytest.mark.parametrize("executor", ["graph", "host", "reference"])
    def test_only_an_argument_that_is_not_used_is_mapped(self, executor):
        @jr.rec_fn
        def doubled(x, n):
            return jr.cond(n == 0, lambda: jnp.float32(1), lambda: 2 * doubled(x, n - 1))

        with jr.executor(executor):
            got = jax.vmap(lambda x: doubled(x, 3) + x)(jnp.arange(3.0))
        assert got.tolist() == [8, 9, 10]

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_no_lane_gets_what_is_not_finite_in_another(self, executor):
        @jr.rec_fn(max_calls=20)
        def root(w, n):
            return jr.cond(n == 0, lambda: jnp.sqrt(w), lambda: w * root(w, n - 1))

        def plain(w, n):
            return jnp.sqrt(w) if n == 0 else w * plain(w, n - 1)

        points, numbers = jnp.array([0.2, 0.0, 0.4]), jnp.array([3, 0, 3])
        lanes = zip(points, numbers.tolist(), strict=True)
        exact = jnp.stack([jax.grad(plain)(w, n) for w, n in lanes])
        with jr.executor(executor):
            apart = jax.vmap(jax.grad(root))(points, numbers)
            summed = jax.grad(lambda w: jnp.sum(jax.vmap(root)(w, numbers)))(points)
        assert exact[1] == jnp.inf
        assert jnp.allclose(apart, exact, rtol=1e-5)
        assert jnp.allclose(summed, exact, rtol=1e-5)

    def test_out_axes_and_mapped_trees(self, args):
        w, tree, _ = args
        trees = jax.tree.map(lambda x: jnp.stack([x, x]), tree)
        got = jax.vmap(RNN, (None, 0, 0), out_axes=1)(w, trees, jnp.array([0, 10]))
        assert_close(got[:, 1], PLAIN(w, tree, 10), 1e-5)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_callbacks_run_once_a_call(executor):
    """A body maps over nothing, so that they need no `vmap_method`."""
    seen = []

    def double(x):
        seen.append(x.shape)
        return 2 * x

    @jr.rec_fn
    def doubled(x, n):
        y = jax.pure_callback(double, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return jr.cond(n == 0, lambda: y, lambda: doubled(y, n - 1))

    with jr.executor(executor):
        found = jax.vmap(doubled, (0, None))(jnp.arange(6.0).reshape(2, 3), 2)
    assert_close(found, 8 * jnp.arange(6.0).reshape(2, 3), 0)
    assert set(seen) == {(3,)}


class TestExamplesThatShareATree:
    """Lanes that differ in weights alone visit the same nodes: each may make as many calls."""

    def test_weights_of_an_ensemble(self, args):
        w, tree, i = args
        ws = jax.tree.map(lambda x: jnp.stack([x, x / 2, -x]), w)
        run = jax.jit(jax.vmap(jax.value_and_grad(value), (0, None, None)))
        want = [
            jax.value_and_grad(plain)(jax.tree.map(lambda x, k=k: x[k], ws), tree, i)
            for k in range(3)
        ]
        assert_close(run(ws, tree, i), jax.tree.map(lambda *x: jnp.stack(x), *want), 1e-4)

    def test_a_batch_for_each_weight(self, args):
        w, tree, _ = args
        ws = jax.tree.map(lambda x: jnp.stack([x, -x]), w)
        batch = jax.vmap(value, (None, None, 0))
        got = jax.jit(jax.vmap(batch, (0, None, None)))(ws, tree, roots())
        for k in range(2):
            one = jax.tree.map(lambda x, k=k: x[k], ws)
            assert_close(got[k], jnp.stack([plain(one, tree, i) for i in roots()]), 1e-5)


class TestSecondCall:
    """A second call with arguments of the same shapes traces nothing and compiles nothing."""

    @pytest.fixture(autouse=True)
    def _nothing_compiled(self):
        """JAX counts no more programs once its cache is full of those of other tests."""
        jax.clear_caches()

    def test_eager_calls(self, args):
        f = tree_rnn(JAXREC)
        w, tree, _ = args
        f(w, tree, 0)
        first = f.cache_info()
        assert first.traces == 1 and first.compilations == 1
        f(jax.tree.map(lambda x: 2 * x, w), tree, 0)
        assert f.cache_info() == first

    def test_calls_of_another_type(self, args):
        f = tree_rnn(JAXREC)
        w, tree, _ = args
        f(w, tree, jnp.int32(0))
        f(w, tree, 0)
        assert f.cache_info().traces == 1
        f(jax.tree.map(lambda x: x.astype(jnp.float16), w), tree, 0)
        assert f.cache_info().traces == 2

    def test_training_steps_compile_nothing(self, args, caplog):
        w, tree, _ = args
        step = jax.jit(jax.grad(value))
        step(w, tree, 0)
        eager = jax.grad(value)
        eager(w, tree, 0)
        with jax.log_compiles(), caplog.at_level(logging.DEBUG, logger="jax"):
            step(w, tree, 5)
            eager(w, tree, 0)
        assert step._cache_size() == 1  # pyright: ignore[reportAttributeAccessIssue]
        assert not [r for r in caplog.messages if "Compiling" in r or "Finished tracing" in r]

    @pytest.mark.parametrize("executor", ["graph", "reference"])
    @pytest.mark.parametrize("over", [lambda f: f, jax.checkpoint], ids=["plain", "checkpoint"])
    def test_gradients_of_examples_compile_nothing(self, executor, over, args, caplog):
        w, tree, _ = args
        gradients = jax.vmap(jax.grad(over(value)), (None, None, 0))
        with jr.executor(executor):
            first = gradients(w, tree, roots())
            with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
                second = gradients(w, tree, roots())
        assert "Compiling" not in caplog.text
        assert_close(second, first, 0)

    @pytest.mark.parametrize(
        "operation",
        [
            lambda x, key: jax.random.gamma(key, x),
            lambda x, key: jax.lax.scan(lambda c, y: (jnp.sin(c * y), None), x, jnp.ones(3))[0],
            jax.jit(lambda x, key: jax.scipy.special.gammainc(x, 2.0)),
        ],
    )
    @pytest.mark.parametrize("transform", [lambda f: f, jax.grad])
    def test_operations_that_jax_compiles_anew(self, operation, transform, caplog):
        @jr.rec_fn
        def total(x, key, n):
            y = operation(x, jr.call_key(key))
            return jr.cond(n <= 0, lambda: y, lambda: y + total(x, key, n - 1))

        def run():
            return transform(total)(1.5, jax.random.key(0), 3)

        with jr.executor("reference"):
            first = run()
            with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
                second = run()
        assert "Compiling" not in caplog.text
        assert_close(second, first, 0)
        assert_close(first, run(), 1e-5)

    def test_forests_of_other_sizes_share_programs(self, args):
        f = tree_rnn(JAXREC)
        w, tree, _ = args
        for root in (0, 9, 10):
            f(w, tree, root)
        assert f.cache_info().compilations <= 2


class TestAxesOfSeveralVmaps:
    """Each maps over another argument, so an example shares what an axis around it does not."""

    @pytest.mark.parametrize("order", [(0, 1), (1, 0), (2, 0, 1), (0, 2, 1)])
    @pytest.mark.parametrize("stepped", [False, True])
    def test_gradients(self, order, stepped):
        @jr.rec_fn(max_calls=200)
        def f(w, x, i):
            last = (i == 0) & (jnp.sum(x) > -9) if stepped else i == 0
            return jr.cond(last, lambda: w * x, lambda: f(w, x, i - 1) * w)

        def gradients(power):
            fun = jax.grad(power, (0, 1, 2))
            for axis in order:
                fun = jax.vmap(fun, [0 if k == axis else None for k in range(3)])
            return fun

        given = [jnp.array([2.0, 3.0]), jnp.array([1.0, 10.0, 100.0]), jnp.array([0.5, 1, 2, 4])]
        given = [x if k in order else x[1] for k, x in enumerate(given)]
        expected = gradients(lambda w, x, k: (w * k) ** 3 * x)(*given)
        fun = gradients(lambda w, x, k: f(w * k, x, 2))
        assert_close(fun(*given), expected, 1e-4)
        assert_close(jax.jit(fun)(*given), expected, 1e-4)


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_a_pullback_that_leaves_the_types_it_was_made_in(executor):
    @jr.rec_fn
    def f(x, i):
        return jr.cond(i < 1, lambda: x[i], lambda: tanh(x[i] * f(x, i - 1)))

    with jr.executor(executor):
        with jax.enable_x64(True):
            x, one = jnp.linspace(-1, 1, 5), jnp.ones(())
            _, pull = jax.vjp(lambda x: f(x, 4), x)
            (expected,) = pull(one)
        (made,) = pull(one)
        assert made.dtype == jnp.float64
        assert made.tolist() == expected.tolist()
        if executor == "graph":
            assert_close(jax.jit(pull)(one)[0], expected, 1e-12)
            moved = jax.jvp(pull, (one,), (one,))
            assert_close([x[0] for x in moved], [expected, expected], 1e-12)


TRANSFORMED = {
    "value": lambda run: run,
    "vmap": jax.vmap,
    "grad": jax.grad,
    "checkpoint": lambda run: jax.grad(jax.checkpoint(run)),
    "collect": None,
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_known_control_under_jit_needs_no_bound(name):
    """The schedule follows from what is known when JAX traces."""

    @jr.rec_fn
    def power(x, n):
        return jr.cond(n <= 0, lambda: x, lambda: sine(power(x, n - 1)))

    def run(x):
        return power(jnp.stack([x, x + 1]), 3).sum()

    def by_hand(x):
        return jnp.sin(jnp.sin(jnp.sin(jnp.stack([x, x + 1])))).sum()

    if name == "collect":
        calls = jax.jit(lambda x: jr.collect(power)(x, 3)[1])(jnp.ones(2))
        assert int(calls.valid.sum()) == 4
        return
    x = jnp.float32(0.4) if name != "vmap" else jnp.float32([0.4, 0.9])
    found = jax.jit(TRANSFORMED[name](run))(x)
    np.testing.assert_allclose(found, TRANSFORMED[name](by_hand)(x), rtol=1e-5)
    with pytest.raises(jr.CapacityError, match="Declare one"):
        jax.jit(lambda x, n: power(x, n))(jnp.ones(2), 3)


def test_transposes_of_transposes():
    @jr.rec_fn(max_calls=9)
    def scaled(w, x, n):
        return jr.cond(n <= 0, lambda: x, lambda: w * scaled(w, x, n - 1))

    w, x, ct = jnp.array([2.0, 3.0]), jnp.ones(2), jnp.array([1.0, -1.0])
    pull = jax.vjp(lambda x: scaled(w, x, 2), x)[1]
    np.testing.assert_array_equal(jax.linear_transpose(pull, x)((ct,))[0], w * w * ct)
    forward = jax.linearize(lambda x: scaled(w, x, 2), x)[1]
    back = jax.linear_transpose(forward, x)
    again = jax.linear_transpose(lambda ct: back(ct)[0], x)
    np.testing.assert_array_equal(jax.jit(lambda ct: again(ct)[0])(ct), w * w * ct)

    def of_x(tangent):
        return jax.jvp(lambda w, x: scaled(w, x, 2), (w, x), (0 * w, tangent))[1]

    np.testing.assert_array_equal(jax.linear_transpose(of_x, x)(ct)[0], w * w * ct)

    @jr.rec_fn(max_calls=9)
    def of_sine(w, x, n):
        return jr.cond(n <= 0, lambda: x, lambda: sine(w * of_sine(w, x, n - 1)))

    def pull_of(fun):
        return jax.vmap(lambda y: jax.vjp(lambda w: fun(w, x, 2), w)[1](y)[0])

    def by_hand(w, x, n):
        return x if n <= 0 else jnp.sin(w * by_hand(w, x, n - 1))

    cts = jnp.array([[1.0, -1.0], [0.5, 2.0], [0.0, 3.0]])
    found, expected = (
        jax.linear_transpose(pull_of(fun), cts)(cts)[0] for fun in (of_sine, by_hand)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_wrong_index_in_a_branch_that_does_not_run():
    """Also where it is known when JAX traces."""
    left = jnp.array([30, -1])

    @jr.rec_fn
    def down(w, i):
        return jr.cond(left[i] < 0, lambda: w, lambda: sine(down(w, left[i])))

    def run(taken, w):
        return jax.lax.cond(taken, lambda: down(w, 0), lambda: w)

    assert jax.jit(run)(False, jnp.ones(2)).sum() == 2
    with pytest.raises(RUN_TIME_ERRORS, match=r"down read .*\[30\], which is out of range"):
        jax.jit(run)(True, jnp.ones(2))
