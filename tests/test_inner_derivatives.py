"""Derivatives of one recursion inside the body of another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import picked

import jaxrec as jr

N = 31
K = np.arange(N)
HAS = 2 * K + 2 < N
TREE = {
    "left": jnp.asarray(np.where(HAS, 2 * K + 1, -1)),
    "right": jnp.asarray(np.where(HAS, 2 * K + 2, -1)),
    "value": jnp.asarray(np.random.default_rng(1).normal(size=(N, 3)), jnp.float32),
}
W = jnp.asarray(0.4 * np.random.default_rng(0).normal(size=(3, 3)), jnp.float32)
ROOTS = (3, 4, 5, 6)


class Plain:
    """The same words in Python."""

    @staticmethod
    def rec_fn(**_):
        return lambda fun: fun

    @staticmethod
    def cond(pred, true_fun, false_fun):
        return true_fun() if bool(pred) else false_fun()


def powers(rec):
    @rec.rec_fn()
    def power(x, n):
        return rec.cond(n == 0, lambda: jnp.sum(x**3), lambda: power(jnp.cos(x), n - 1))

    return power


def over(rec, leaf, node):
    """A recursion over `TREE` with these cells."""

    @rec.rec_fn()
    def fold(w, tree, i):
        def inner():
            left, right = (fold(w, tree, tree[side][i]) for side in ("left", "right"))
            return node(w, tree, i, left, right)

        return rec.cond(tree["left"][i] < 0, lambda: leaf(w, tree, i), inner)

    return lambda w, i: jnp.sum(fold(w, TREE, i) ** 2)


def value(w, tree, i):
    return w @ tree["value"][i]


def descent(rec):
    """Gradient descent on a loss of trees, and the loss at its end."""

    @rec.rec_fn()
    def fold(w, tree, i):
        def node():
            return jnp.tanh(w @ (fold(w, tree, tree["left"][i]) + fold(w, tree, tree["right"][i])))

        return rec.cond(tree["left"][i] < 0, lambda: tree["value"][i], node)

    def loss(w, i):
        return jnp.sum(fold(w, TREE, i) ** 2)

    @rec.rec_fn()
    def descend(w, i, n):
        return rec.cond(
            n == 0, lambda: w, lambda: descend(w - 0.1 * jax.grad(loss)(w, i), i, n - 1)
        )

    return lambda w, i: loss(descend(w, i, 2), i)


def at_nodes(rec):
    power = powers(rec)

    def node(w, tree, i, left, right):
        del tree
        return w @ jax.grad(power)(left, i % 3) + right

    return over(rec, value, node)


def of_subtrees(rec):
    """Each call differentiates the recursion over its own subtree, which overlap."""

    @rec.rec_fn()
    def inner(v, tree, i):
        def node():
            return jnp.tanh(inner(v, tree, tree["left"][i]) - inner(v, tree, tree["right"][i]))

        return rec.cond(tree["left"][i] < 0, lambda: v[i], node)

    def node(w, tree, i, left, right):
        made = jax.grad(lambda v: jnp.sum(inner(v, tree, i)))(tree["value"])
        return w @ (made[i] + made[2 * i + 1]) + left * right

    return over(rec, value, node)


def closing_over_results(rec):
    def node(w, tree, i, left, right):
        del w, tree, i

        @rec.rec_fn(max_calls=4)
        def inner(x, n):
            return rec.cond(n == 0, lambda: jnp.sum(x * left), lambda: inner(x + right, n - 1))

        return jax.grad(lambda x: inner(jnp.tanh(x), 2))(left * right)

    return over(rec, value, node)


def stepped_inside(rec):
    @rec.rec_fn(max_calls=64)
    def shrink(w, x):
        after = 0.7 * jnp.tanh(w @ x + x)
        return rec.cond(jnp.sum(x * x) < 0.3, lambda: x, lambda: 1.1 * shrink(w, after))

    def node(w, tree, i, left, right):
        del tree, i
        return jax.jvp(lambda x: shrink(w, x), (left,), (right,))[1]

    return over(rec, lambda w, tree, i: tree["value"][i], node)


def deciding(rec):
    """What the outer recursion decides by is a gradient of the inner one."""
    power = powers(rec)

    @rec.rec_fn(max_calls=200)
    def settle(x, n):
        slope = jax.grad(power)(x, 2)
        is_done = (jnp.sum(slope * slope) < 0.01) | (n == 0)
        return rec.cond(is_done, lambda: x, lambda: 0.99 * settle(x - 0.3 * slope, n - 1))

    return lambda w, i: jnp.sum(settle(w @ TREE["value"][i], 4) ** 2)


def newton(rec):
    power = powers(rec)

    @rec.rec_fn()
    def step(x, n):
        def more():
            slope, curve = jax.grad(power)(x, 2), jax.jacfwd(jax.grad(power))(x, 2)
            return step(x - jnp.linalg.solve(curve + 3 * jnp.eye(3), slope), n - 1)

        return rec.cond(n == 0, lambda: x, more)

    return lambda w, i: jnp.sum(step(w @ TREE["value"][i], 2) ** 2)


def chosen_inside(rec):
    """The branch that is not taken would not end."""
    power = powers(rec)

    def some(x, n):
        return rec.cond(n >= 0, lambda: power(x, n), lambda: 0.0 * x[0])

    def node(w, tree, i, left, right):
        del tree
        return 0.1 * w @ jax.grad(some)(left, i % 3 - 1) + right

    return over(rec, value, node)


def jitted_inside(rec):
    power = powers(rec) if rec is Plain else jax.jit(powers(rec))

    def node(w, tree, i, left, right):
        del tree, i
        return w @ jax.grad(power)(left, 2) + right

    return over(rec, value, node)


def two_deep(rec):
    power = powers(rec)

    @rec.rec_fn()
    def middle(x, n):
        slope = jax.grad(power)(x, n)
        return rec.cond(n == 0, lambda: jnp.sum(slope**2), lambda: middle(x - 0.1 * slope, n - 1))

    @rec.rec_fn()
    def outer(x, n):
        return rec.cond(n == 0, lambda: x, lambda: outer(x - 0.1 * jax.grad(middle)(x, 2), n - 1))

    return lambda w, i: jnp.sum(outer(w @ TREE["value"][i], 2) ** 2)


PROGRAMS = [
    descent,
    at_nodes,
    of_subtrees,
    closing_over_results,
    stepped_inside,
    deciding,
    newton,
    chosen_inside,
    jitted_inside,
    two_deep,
]


def assert_close(made, expected):
    np.testing.assert_allclose(made, expected, rtol=2e-4, atol=2e-5)


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.__name__)
def pair(request):
    return request.param(jr), request.param(Plain)


def test_values(pair):
    fun, plain = pair
    expected = [plain(W, i) for i in ROOTS]
    assert_close(jax.jit(fun)(W, ROOTS[0]), expected[0])
    assert_close(jax.vmap(fun, (None, 0))(W, jnp.array(ROOTS)), expected)


def of_one(fun):
    return jax.grad(lambda w: fun(w, ROOTS[0]))


def of_all(fun):
    return jax.jit(jax.grad(lambda w: jnp.sum(jax.vmap(fun, (None, 0))(w, jnp.array(ROOTS)))))


GRADIENTS = picked(
    ((program, gradient) for program in PROGRAMS for gradient in (of_one, of_all)),
    fast=[(program, (of_one, of_all)[k % 2]) for k, program in enumerate(PROGRAMS)],
)


@pytest.mark.parametrize(("program", "gradient"), GRADIENTS)
def test_gradients(program, gradient):
    roots = ROOTS[:1] if gradient is of_one else ROOTS
    expected = sum(jax.grad(program(Plain))(W, i) for i in roots)
    assert_close(gradient(program(jr))(W), expected)


OTHERS = ("host", "reference")
EXECUTORS = picked(
    ((program, executor) for program in PROGRAMS for executor in OTHERS),
    fast=(),
    slow=[(program, OTHERS[k % 2]) for k, program in enumerate(PROGRAMS)],
)


@pytest.mark.parametrize(("program", "executor"), EXECUTORS)
def test_executors(program, executor):
    fun, plain = program(jr), program(Plain)
    with jr.executor(executor):
        assert_close(jax.grad(fun)(W, ROOTS[0]), jax.grad(plain)(W, ROOTS[0]))


@pytest.mark.parametrize("executor", ["graph", "host"])
@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
@pytest.mark.parametrize("bound", [{}, {"max_calls": 3}])
def test_many_directions(executor, jacobian, bound):
    """The bound of the inner recursion, declared or not, is one for each direction too."""

    def build(rec):
        @rec.rec_fn(**bound)
        def inner(x, left, right, i):
            below = (left[i], right[i])

            def node():
                return jnp.sin(sum(inner(x, left, right, k) for k in below))

            return rec.cond(left[i] < 0, lambda: x * (i + 1), node)

        @rec.rec_fn()
        def outer(x, left, right, i):
            y = jax.grad(lambda x: inner(x, left, right, i).sum())(x)

            def node():
                return outer(y, left, right, left[i]) * outer(x, left, right, right[i])

            return rec.cond(left[i] < 0, lambda: y, node)

        return outer

    x, tree = jnp.linspace(0.1, 0.5, 40), (jnp.array([1, -1, -1]), jnp.array([2, -1, -1]))
    with jr.executor(executor):
        got = jacobian(build(jr))(x, *tree, 0)
    np.testing.assert_allclose(got, jacobian(build(Plain))(x, *tree, 0), rtol=1e-4, atol=1e-6)


def test_a_function_inside_its_own_recursion():
    @jr.rec_fn
    def own(x, n):
        return jr.cond(n == 0, lambda: jnp.sin(x), lambda: jax.grad(own)(x, n - 1))

    with pytest.raises(jr.UnsupportedError, match=r"a derivative .* call of own inside"):
        own(1.0, 2)


def test_a_function_that_leads_back_to_the_body():
    @jr.rec_fn
    def first(x, n):
        return jr.cond(n == 0, lambda: jnp.sin(x), lambda: x * second(x, n - 1))

    @jr.rec_fn
    def second(x, n):
        return jr.cond(n == 0, lambda: jnp.sin(x), lambda: jax.grad(first)(x, n))

    with pytest.raises(jr.UnsupportedError, match="call of first inside"):
        jax.jit(second)(1.0, 2)


def test_endless_recursion_inside():
    @jr.rec_fn
    def inner(x, n):
        return jr.cond(n == 0, lambda: jnp.sum(x), lambda: inner(jnp.cos(x), n - 1))

    @jr.rec_fn
    def outer(x, n):
        return jr.cond(n == 0, lambda: x, lambda: outer(jax.grad(inner)(x, -1), n - 1))

    with pytest.raises(jr.RecursionLimitError, match="inner -> inner"):
        outer(jnp.ones(3), 2)


def test_keys_differ_between_calls_and_sites():
    @jr.rec_fn
    def noisy(x, key):
        return x * jax.random.normal(jr.call_key(key))

    @jr.rec_fn(max_calls=8)
    def draws(key, n):
        here = [jax.grad(noisy)(1.0, key) for _ in range(2)]
        return jr.cond(
            n == 0,
            lambda: jnp.zeros(8),
            lambda: jnp.roll(draws(key, n - 1), 2).at[:2].set(jnp.stack(here)),
        )

    key = jax.random.key(0)
    drawn = jax.jit(draws)(key, 4)
    assert len(set(drawn.tolist())) == 8
    with jr.executor("reference"):
        assert_close(draws(key, 4), drawn)
