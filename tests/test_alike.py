"""`vmap` of a recursion whose control is the same in every example: one schedule for all."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo_all
import zoo_modes
from cases import EXECUTORS, picked, spread
from waves import in_waves
from zoo import JAXREC, PYTHON, Program, assert_close

import jaxrec as jr
from jaxrec.primitives import _alike, _rec, _spread

SCALES = (1.0, 0.95, 1.02)
"""What the arguments of each example are multiplied by."""

LEFT, RIGHT = np.array([1, 3, 5, -1, -1, -1, -1]), np.array([2, 4, 6, -1, -1, -1, -1])


@pytest.fixture
def on_waves(monkeypatch):
    """Scalars run in waves too."""
    monkeypatch.setattr(_rec, "is_spread", lambda *_: False)
    monkeypatch.setattr(_spread, "_FEW", {"graph": 0, "host": 0})
    monkeypatch.setattr(_spread, "_FEW_SHARED", 0)


def scaled(value, scale):
    """A value whose inexact leaves are multiplied."""

    def of_leaf(x):
        dtype = jnp.result_type(x)
        return x * jnp.asarray(scale, dtype) if jnp.issubdtype(dtype, jnp.inexact) else x

    return jax.tree.map(of_leaf, value)


def examples_of(example: Program, moved):
    """Arguments of each example, which differ in some, and of all together, with their axes."""
    args = example.args
    each = [tuple(scaled(x, s) if k in moved else x for k, x in enumerate(args)) for s in SCALES]
    together = [
        jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x]), *column)
        if k in moved
        else column[0]
        for k, column in enumerate(zip(*each, strict=True))
    ]
    return each, together, tuple(0 if k in moved else None for k in range(len(args)))


differentiable = {
    name: p
    for name, p in zoo_all.PROGRAMS.items()
    # A number of Python is of no type of its own; an array of them is.
    if p.argnums and name != "number_beside_bfloat16"
}
CASES = spread(
    ((name, mode) for name in differentiable for mode in ("value", "each", "sum", "one")),
    fast=1,
)


@pytest.mark.parametrize(("name", "mode"), CASES)
@pytest.mark.usefixtures("on_waves")
def test_examples_of_the_zoo(name: str, mode: str):
    """Values, gradients of each example, of a sum, and by what examples share."""
    example = differentiable[name]
    moved = example.argnums[:1] if mode == "one" else example.argnums
    with example.precision():
        each, together, axes = examples_of(example, moved)
        run, plain = example.build(JAXREC), example.build(PYTHON)
        if mode == "value":
            got = jax.vmap(run, axes)(*together)
            want = zoo_modes.stacked([plain(*args) for args in each])
        else:
            lossy = zoo_modes.loss_of(example, JAXREC)
            if mode == "sum":
                of = zoo_modes.gradient(lambda *a: jax.vmap(lossy, axes)(*a).sum(), example)
            else:
                of = jax.vmap(zoo_modes.gradient(lossy, example), axes)
            got = of(*together)
            plain_of = zoo_modes.gradient(zoo_modes.loss_of(example, PYTHON), example)
            want = zoo_modes.stacked([plain_of(*args) for args in each])
    assert_close(got, want, example.rtol if mode == "value" else 10 * example.rtol)


@jr.rec_fn
def power(x, n):
    return jr.cond(n == 0, lambda: 1.0, lambda: x * power(x, n - 1))


def tree_rnn(**options):
    """A recursion over a tree, with a weight, a vector for each leaf and a number."""

    @jr.rec_fn(**options)
    def fold(w, x, scale, i):
        def leaf():
            return jnp.tanh(x[i]) * scale

        def node():
            left, right = jnp.asarray(LEFT)[i], jnp.asarray(RIGHT)[i]
            return jnp.tanh(w @ fold(w, x, scale, left) + fold(w, x, 0.9 * scale, right))

        return jr.cond(jnp.asarray(LEFT)[i] < 0, leaf, node)

    return fold


def plain_rnn(w, x, scale, i):
    """The same in Python."""
    if LEFT[i] < 0:
        return jnp.tanh(x[i]) * scale
    left = plain_rnn(w, x, scale, LEFT[i])
    return jnp.tanh(w @ left + plain_rnn(w, x, 0.9 * scale, RIGHT[i]))


def operands(*sizes):
    rng = np.random.default_rng(0)
    shapes = (3, 3), (7, 3), ()
    return [jnp.asarray(rng.normal(size=(*sizes, *shape)), jnp.float32) for shape in shapes]


AXES = [(None, 0, None), (0, None, None), (0, 0, 0), (None, None, 0), (2, 1, 0)]


def lossy(fold):
    return lambda w, x, scale: jnp.sum(fold(w, x, scale, 0) ** 2)


WAYS = {
    "jacrev": lambda f, axes: jax.vmap(jax.jacrev(f, (0, 1)), axes),
    "jacfwd": lambda f, axes: jax.jacfwd(jax.vmap(f, axes), (1, 2)),
    "jvp": lambda f, axes: jax.vmap(lambda *a: jax.jvp(f, a, tuple(map(jnp.ones_like, a))), axes),
    "hvp": lambda f, axes: jax.vmap(
        lambda *a: jax.jvp(jax.grad(f, (0, 1, 2)), a, tuple(map(jnp.ones_like, a)))[1], axes
    ),
    "hvp of sum": lambda f, axes: (
        lambda *a: jax.jvp(
            jax.grad(lambda *a: jax.vmap(f, axes)(*a).sum(), (0, 1, 2)),
            a,
            tuple(map(jnp.ones_like, a)),
        )[1]
    ),
    "grad of gradients": lambda f, axes: jax.grad(
        lambda *a: sum(jnp.sum(g**2) for g in jax.vmap(jax.grad(f, (0, 1)), axes)(*a)), (0, 1, 2)
    ),
    "checkpoint": lambda f, axes: jax.vmap(jax.grad(jax.checkpoint(f), (0, 1, 2)), axes),
}
DERIVATIVES = picked(
    ((way, str(k)) for way in WAYS for k in range(len(AXES))),
    fast=[(way, "0") for way in WAYS if way not in ("grad of gradients", "hvp of sum")],
    slow=[("grad of gradients", "0"), ("jvp", "1"), ("checkpoint", "1")],
)


@pytest.mark.parametrize(("way", "axes"), DERIVATIVES)
def test_derivatives(way: str, axes: str):
    chosen = AXES[int(axes)]
    args = [
        x[0] if axis is None else jnp.moveaxis(x, 0, axis)
        for x, axis in zip(operands(4), chosen, strict=True)
    ]
    got = jax.jit(WAYS[way](lossy(tree_rnn()), chosen))(*args)
    assert_close(got, WAYS[way](lossy(plain_rnn), chosen)(*args), 1e-4)


@pytest.mark.parametrize(
    "axes",
    [
        (None, 0, None),
        *(pytest.param(x, marks=pytest.mark.exhaustive) for x in ((None, None, 0), (0, 0, 0))),
    ],
)
def test_examples_divided_among_lanes(axes, monkeypatch):
    """As where their rows would be long."""
    monkeypatch.setattr(_alike, "_ROW_BYTES", 1)
    monkeypatch.setattr(_alike, "_MOST_SHARDS", 2)
    args = [x if axis == 0 else x[0] for x, axis in zip(operands(4), axes, strict=True)]

    def check(of, rtol):
        assert_close(of(tree_rnn()), of(plain_rnn), rtol)

    check(lambda f: jax.vmap(f, (*axes, None))(*args, 0), 1e-5)
    check(lambda f: jax.jit(jax.vmap(jax.grad(lossy(f), (0, 1, 2)), axes))(*args), 1e-4)
    check(lambda f: jax.grad(lambda *a: jax.vmap(lossy(f), axes)(*a).sum(), (0, 1, 2))(*args), 1e-4)
    check(lambda f: WAYS["hvp of sum"](lossy(f), axes)(*args), 1e-4)
    check(lambda f: jax.vmap(lambda s: jax.vmap(lossy(f), axes)(*args) * s)(jnp.ones(2)), 1e-5)
    roots = jnp.array([1, 2])
    run = tree_rnn()
    both = jax.vmap(lambda *a: jax.vmap(lambda i: run(*a, i))(roots), axes)(*args)
    for k, root in enumerate((1, 2)):
        one = functools.partial(plain_rnn, i=root)
        assert_close(both[:, k], jax.vmap(one, axes)(*args), 1e-5)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0)])
def test_divided_around_one_root(axes, monkeypatch):
    """An axis of one root makes what all calls read be indexed by lane, though there is one."""
    monkeypatch.setattr(_alike, "_ROW_BYTES", 1)
    monkeypatch.setattr(_alike, "_MOST_SHARDS", 2)

    @jr.rec_fn
    def fold(bias, x, n):
        return jr.cond(n < 1, lambda: jnp.sin(x), lambda: jnp.tanh(bias * fold(bias, 2 * x, n - 1)))

    def plain(bias, x):
        return jnp.tanh(bias * jnp.tanh(bias * jnp.sin(4 * x)))

    def of_roots(bias, x):
        of = jax.grad(lambda *a: jnp.sum(fold(*a) ** 2), (0, 1))
        return jax.vmap(of, (None, None, 0))(bias, x, jnp.array([2]))

    def of_plain(bias, x):
        found = jax.grad(lambda *a: jnp.sum(plain(*a) ** 2), (0, 1))(bias, x)
        return jax.tree.map(lambda g: g[None], found)

    rng = np.random.default_rng(0)
    given = [jnp.asarray(rng.normal(size=(4, 200)), jnp.float32) for _ in axes]
    args = [a if axis == 0 else a[0] for a, axis in zip(given, axes, strict=True)]
    assert_close(jax.vmap(of_roots, axes)(*args), jax.vmap(of_plain, axes)(*args), 1e-4)


def test_nested_axes():
    w, x, scale = operands(4)
    inner, outer = (None, 0, None), (0, None, None)

    def both(fun):
        return jax.vmap(jax.vmap(jax.grad(lossy(fun), (0, 1, 2)), inner), outer)

    got, want = both(tree_rnn())(w, x, scale[0]), both(plain_rnn)(w, x, scale[0])
    assert_close(got, want, 1e-5)


@pytest.mark.parametrize("roots_inside", [True, False])
def test_beside_an_axis_of_roots(roots_inside):
    w, x, scale = operands(4)
    fold, roots = tree_rnn(), [1, 6, 2]

    def of_roots(w, x):
        return jax.vmap(lambda i: fold(w, x, scale[0], i))(jnp.array(roots))

    def of_examples(i):
        return jax.vmap(lambda w, x: fold(w, x, scale[0], i))(w, x)

    def plain(w, x):
        return jnp.stack([plain_rnn(w, x, scale[0], i) for i in roots])

    if roots_inside:
        got = jax.vmap(of_roots)(w, x)
        got_grad = jax.grad(lambda w: jnp.sum(jax.vmap(of_roots)(w, x) ** 2))(w)
    else:
        got = jnp.moveaxis(jax.vmap(of_examples)(jnp.array(roots)), 0, 1)
        got_grad = jax.vmap(jax.grad(lambda w, x: jnp.sum(of_roots(w, x) ** 2)))(w, x)
    assert_close(got, jnp.stack([plain(*both) for both in zip(w, x, strict=True)]), 1e-5)
    want = jax.grad(lambda w: jnp.sum(jnp.stack([plain(*b) for b in zip(w, x, strict=True)]) ** 2))
    assert_close(got_grad, want(w), 1e-4)


def test_one_schedule_is_made():
    """As many calls as one example makes are enough, however many examples there are."""
    w, x, scale = operands(50)
    fold = tree_rnn(max_calls=7)
    run = jax.jit(jax.vmap(lambda w, x, scale, i: fold(w, x, scale, i), (0, 0, 0, None)))
    want = jnp.stack([plain_rnn(*one, 0) for one in zip(w, x, scale, strict=True)])
    assert_close(run(w, x, scale, 0), want, 1e-5)
    by_root = jax.jit(jax.vmap(fold, (0, 0, 0, 0)))
    with pytest.raises(Exception, match="max_calls"):
        jax.block_until_ready(by_root(w, x, scale, jnp.zeros(50, jnp.int32)))


@pytest.mark.parametrize("size", [3, 40])
def test_calls_of_scalars_count_once(size):
    x = jnp.linspace(0.9, 1.1, size)
    enough = jax.jit(jax.vmap(power.with_options(max_calls=8), (0, None)))
    np.testing.assert_allclose(enough(x, 7), x**7, rtol=1e-5)
    few = jax.jit(jax.vmap(power.with_options(max_calls=7), (0, None)))
    with pytest.raises(Exception, match="max_calls"):
        jax.block_until_ready(few(x, 7))


def test_shared_calls_are_shared_by_all_examples():
    calls = []

    @jr.rec_fn(memo=True)
    def fib(x, n):
        jax.debug.callback(calls.append, n)
        return jr.cond(n < 2, lambda: x, lambda: fib(x, n - 1) + fib(x, n - 2))

    @jr.rec_fn(memo=True, max_calls=41)
    def silent(x, n):
        return jr.cond(n < 2, lambda: x, lambda: silent(x, n - 1) + silent(x, n - 2))

    x = jnp.arange(6.0)
    got = jax.jit(jax.vmap(lambda x: silent(x, 40)))(x)
    with jr.executor("reference"):
        one = fib(1.0, 20)
    assert len(calls) == 21 and one == 10946.0
    np.testing.assert_allclose(got, 165580141.0 * x, rtol=1e-6)


@pytest.mark.parametrize("size", [3, 40])
def test_scalars_need_no_bound(size):
    """The native machine runs what nothing bounds, and few examples."""
    x = jnp.linspace(0.9, 1.1, size)
    of = jax.jit(lambda x, n: jax.vmap(lambda x: power(x, n))(x))
    np.testing.assert_allclose(of(x, 7), x**7, rtol=1e-5)
    apart = jax.jit(lambda x, n: jax.vmap(jax.grad(lambda x: power(x, n)))(x))
    np.testing.assert_allclose(apart(x, 7), 7 * x**6, rtol=1e-5)
    summed = jax.jit(jax.grad(lambda x, n: jax.vmap(lambda x: power(x, n))(x).sum()))
    np.testing.assert_allclose(summed(x, 7), 7 * x**6, rtol=1e-5)


@pytest.mark.parametrize("size", [3, 40, 3000])
@pytest.mark.parametrize("executor", ["graph", "host"])
def test_scalars_of_few_and_of_many_examples(size, executor):
    x = jnp.linspace(0.9, 1.1, size)
    with jr.executor(executor):
        np.testing.assert_allclose(jax.vmap(lambda x: power(x, 7))(x), x**7, rtol=1e-5)
        both = jax.vmap(jax.vmap(lambda x: power(x, 7)))(x.reshape(-1, 1))
        np.testing.assert_allclose(both[:, 0], x**7, rtol=1e-5)
        got = jax.grad(lambda x: jax.vmap(lambda x: power(x, 7))(x).sum())(x)
        np.testing.assert_allclose(got, 7 * x**6, rtol=1e-5)
        apart = jax.vmap(jax.grad(lambda x: power(x, 7)))(x)
        np.testing.assert_allclose(apart, 7 * x**6, rtol=1e-5)


def test_choice_that_examples_make_apart(on_waves):
    """A branch that an example does not take adds nothing to its derivative."""

    @jr.rec_fn
    def walk(x, n):
        def go():
            safe = jr.cond(x[0] > 0, lambda: jnp.log(x[0]), lambda: -x[0])
            even = jr.cond(n % 2 == 0, lambda: x[1] * 2.0, lambda: x[1] / x[2])
            return walk(x, n - 1) + safe + even

        return jr.cond(n == 0, lambda: jnp.zeros(()), go)

    x = jnp.array([[0.5, 1.0, 2.0], [0.0, 1.0, 0.0], [-1.0, 2.0, 4.0]])
    got = jax.vmap(jax.grad(lambda x: walk(x, 2)))(x)
    want = [[4.0, 2.5, -0.25], [-2.0, jnp.inf, -jnp.inf], [-2.0, 2.25, -0.125]]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    alone = jax.vmap(jax.grad(lambda x: walk(x, 1)))(x)
    assert np.isfinite(np.asarray(alone)[[0, 2]]).all()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_calls_that_all_examples_make_count_once(executor):
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: in_waves(x * power(x, n - 1)))

    def run(most):
        return jax.vmap(power.with_options(max_calls=most), (0, None))(2 * jnp.ones((3, 50)), 5)

    with jr.executor(executor):
        assert jnp.all(run(6) == 32)
        with pytest.raises(jr.CapacityError, match=r"power made \d+ calls in one invocation, but"):
            run(5)


@pytest.mark.usefixtures("on_waves")
def test_a_shared_number_that_decides_too():
    """It has no axis of examples, and its derivative has one."""

    @jr.rec_fn(max_calls=64)
    def refine(x, step):
        def more():
            return refine(x, step / 2) + jnp.sin(x) * step

        return jr.cond(step < 0.2, lambda: x * step, more)

    def gradient(x):
        return jax.grad(lambda x, step: refine(x, step).sum(), (0, 1))(x, 1.0)

    xs = jnp.arange(6.0).reshape(2, 3)
    want = zoo_modes.stacked([gradient(x) for x in xs])
    assert_close(jax.vmap(gradient)(xs), want, 1e-5)
    assert_close(jax.jit(jax.vmap(gradient))(xs), want, 1e-5)


@pytest.mark.parametrize("numbers", [3, 11])
def test_no_examples(numbers: int):
    @jr.rec_fn
    def fold(w, t, i):
        return jr.cond(t[i] < 0, lambda: w, lambda: jnp.sin(fold(w, t, t[i])))

    def loss(w):
        return fold(w, jnp.array([1, 2, -1]), 0).sum()

    ws = jnp.zeros((0, numbers))
    for run in (jax.vmap(jax.grad(loss)), jax.jit(jax.vmap(jax.grad(loss)))):
        assert run(ws).shape == (0, numbers)
    assert jax.vmap(jax.hessian(loss))(ws).shape == (0, numbers, numbers)


def test_a_function_of_scalars_that_visits_nodes_again_needs_no_bound():
    """A derivative beside the value: as many calls as nodes would not be enough."""
    n = 31
    op = jnp.where(jnp.arange(n) < n // 2, jnp.arange(n) % 2, 2)

    @jr.rec_fn
    def value(op, i, x):
        left, right = 2 * i + 1, 2 * i + 2
        return jr.switch(
            op[i],
            [
                lambda: value(op, left, x) + value(op, right, x),
                lambda: value(op, left, x) * value(op, right, x),
                lambda: x + i,
            ],
        )

    @jr.rec_fn
    def slope(op, i, x):
        left, right = 2 * i + 1, 2 * i + 2
        return jr.switch(
            op[i],
            [
                lambda: slope(op, left, x) + slope(op, right, x),
                lambda: (
                    slope(op, left, x) * value(op, right, x)
                    + value(op, left, x) * slope(op, right, x)
                ),
                lambda: 1.0 + 0.0 * x,
            ],
        )

    x = jnp.linspace(-1, 1, 300) / 10
    got = jax.jit(lambda op, x: jax.vmap(lambda x: slope(op, 0, x))(x))(op, x)
    want = jax.vmap(jax.grad(lambda x: value(op, 0, x)))(x)
    np.testing.assert_allclose(got, want, rtol=1e-4)


@pytest.mark.parametrize("most", [5, None], ids=["a declared bound", "a derived one"])
@pytest.mark.parametrize("mapped", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_the_bound_holds_for_each_shard(most, mapped, monkeypatch):
    """Examples are divided into shards, which have calls of their own."""
    monkeypatch.setattr(_alike, "_ROW_BYTES", 1)

    @jr.rec_fn(max_calls=most)
    def total(w, left, right, i):
        def node():
            return total(w, left, right, left[i]) + total(w, left, right, right[i])

        return jr.cond(left[i] < 0, lambda: jnp.sin(w), node)

    left, right = jnp.array([1, -1, 3, -1, -1]), jnp.array([2, -1, 4, -1, -1])
    ws = jnp.linspace(0, 1, 8 * 3000).reshape(8, 3000)
    values = jax.vmap(lambda w, left, right: total(w, left, right, 0), (0, None, None))
    np.testing.assert_allclose(mapped(values)(ws, left, right), 3 * jnp.sin(ws), rtol=1e-5)
    gradients = jax.vmap(
        jax.grad(lambda w, left, right: jnp.sum(total(w, left, right, 0))), (0, None, None)
    )
    np.testing.assert_allclose(mapped(gradients)(ws, left, right), 3 * jnp.cos(ws), rtol=1e-5)


def test_the_derived_bound_counts_nodes_once_for_each_example():
    """Where examples have calls of their own: on the reference, and where calls are reported."""

    @jr.rec_fn
    def total(w, left, right, i):
        def node():
            return total(w, left, right, left[i]) + total(w, left, right, right[i])

        return jr.cond(left[i] < 0, lambda: jnp.sum(w), node)

    left, right = jnp.array([1, -1, 3, -1, -1]), jnp.array([2, -1, 4, -1, -1])
    ws = jnp.ones((5, 30))

    def each(of):
        return jax.jit(lambda left, right: jax.vmap(lambda w: of(w, left, right, 0))(ws))

    with jr.executor("reference"):
        assert jnp.all(each(total)(left, right) == 90)
        assert jnp.all(each(jax.grad(total))(left, right) == 3)
    assert jnp.all(each(lambda *args: jr.collect(total)(*args)[0])(left, right) == 90)
