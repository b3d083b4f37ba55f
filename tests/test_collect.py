"""Every call of a recursion: `jaxrec.collect`."""

from __future__ import annotations

import dataclasses
import functools
from itertools import chain
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import EXECUTORS, picked
from zoo import JAXREC, PYTHON, assert_close, forest, normal, roots
from zoo_control import even_and_odd
from zoo_trees import several_results, top_down, tree_rnn, weights

import jaxrec as jr

RNN, PLAIN = tree_rnn(JAXREC), tree_rnn(PYTHON)
AXES = (None, None, 0)
executors = pytest.mark.parametrize("executor", ["graph", "reference"])


def below(tree, node):
    """The nodes below a node in depth-first order, itself first."""
    left, right = int(tree.left[node]), int(tree.right[node])
    return [node] + (below(tree, left) + below(tree, right) if left >= 0 else [])


def valid_rows(calls, leaf):
    return np.asarray(leaf)[np.asarray(calls.valid)]


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_room_for_calls_that_are_found_by_running(executor):
    """More than there are nodes in the arrays that index them."""

    @jr.rec_fn
    def hop(w, i):
        def on():
            far = jnp.argmax(w[i]).astype(jnp.int32)
            return jnp.tanh(hop(w, i - 1 - far) + hop(w, i - 2))

        return jr.cond(i <= 1, lambda: w[jnp.maximum(i, 0)] * 1.0, on)

    w = jnp.tile(jnp.array([0.3, 0.2, 0.5]), (14, 1))
    with jr.executor(executor):
        result, calls = jr.collect(hop)(w, 13)
        assert_close(result, hop(w, 13), 1e-6)
    assert calls.valid.sum() == 73


@executors
def test_calls_come_in_depth_first_order(executor):
    w, tree = weights(), forest()
    with jr.executor(executor):
        result, calls = jr.collect(RNN)(w, tree, 0)
    assert_close(result, PLAIN(w, tree, 0), 1e-5)
    assert valid_rows(calls, calls.args[2]).tolist() == below(tree, 0)
    want = jnp.stack([PLAIN(w, tree, i) for i in below(tree, 0)])
    assert_close(valid_rows(calls, calls.results), want, 1e-5)


@executors
def test_lanes_of_a_batch(executor):
    w, tree = weights(), forest()
    with jr.executor(executor):
        result, calls = jr.collect(RNN, AXES)(w, tree, roots())
    assert_close(result, jnp.stack([PLAIN(w, tree, int(i)) for i in roots()]), 1e-5)
    nodes = [below(tree, int(i)) for i in roots()]
    assert valid_rows(calls, calls.args[2]).tolist() == list(chain(*nodes))
    lanes = [lane for lane, made in enumerate(nodes) for _ in made]
    assert valid_rows(calls, calls.lane).tolist() == lanes


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("axis", [0, -1])
def test_examples_that_make_the_same_calls(executor, axis):
    """They have room for the calls of each, under `jit` too; an axis may count from the end."""

    @jr.rec_fn
    def fold(scale, left, right, i):
        def more():
            below = [fold(scale, left, right, x[i]) for x in (left, right)]
            return jnp.tanh(scale * sum(below))

        return jr.cond(left[i] < 0, lambda: scale * i, more)

    scales, tree = normal(35, 2, 4), (jnp.array([1, -1, -1]), jnp.array([2, -1, -1]))
    compiled = jax.jit if executor == "graph" else lambda fun: fun
    with jr.executor(executor):
        collected = compiled(jr.collect(fold, in_axes=(axis, None, None, None)))
        result, calls = collected(jnp.moveaxis(scales, 1, axis), *tree, 0)
        assert_close(result, jnp.stack([fold(x, *tree, 0) for x in scales.T]), 1e-5)
    assert valid_rows(calls, calls.lane).tolist() == [lane for lane in range(4) for _ in range(3)]


def test_args_are_none_unless_a_call_has_its_own():
    _, calls = jr.collect(RNN)(weights(), forest(), 0)
    assert calls.args[0] == {"embed": None, "kernel": None, "bias": None}
    assert calls.args[1] == forest()._replace(left=None, right=None, token=None)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_args_that_nothing_reads(executor):
    @jr.rec_fn(static_argnames="kind")
    def deep(x, n, depth, *, kind):
        assert kind == "sin"
        return jr.cond(n <= 0, lambda: x, lambda: jnp.sin(deep(x, n - 1, depth + 1, kind=kind)))

    with jr.executor(executor):
        result, calls = jr.collect(deep)(jnp.ones(2), 3, 0, kind="sin")
        lanes, _ = jr.collect(deep, in_axes=(None, 0, None))(
            jnp.ones(2), jnp.array([3, 1]), 0, kind="sin"
        )
    assert valid_rows(calls, calls.args[2]).tolist() == [0, 1, 2, 3]
    assert valid_rows(calls, calls.args[1]).tolist() == [3, 2, 1, 0]
    assert len(calls.args) == 3
    assert_close(lanes[0], result, 1e-6)


def test_rows_that_are_not_calls_are_zero():
    tree = forest()
    _, calls = jr.collect(RNN)(weights(), tree, 9)
    assert calls.results.shape == (tree.left.size, 3)
    assert int(calls.valid.sum()) == 1
    assert not calls.results[1:].any() and not calls.valid[1:].any()


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("empty", [(), (None,)])
def test_results_of_nothing(executor, empty):
    @jr.rec_fn(max_calls=20)
    def down(x, n):
        return jr.cond(n == 0, lambda: empty, lambda: down(x, n - 1))

    with jr.executor(executor):
        for transform in (lambda fun: fun, jax.jit)[: 1 if executor == "host" else 2]:
            result, calls = transform(jr.collect(down))(jnp.ones(3), 3)
            assert result == calls.results == empty
            assert int(calls.valid.sum()) == 4


def test_results_of_several_kinds():
    embed, tree = normal(16, 6), forest()
    _, calls = jr.collect(several_results(JAXREC))(embed, tree, 0)
    plain = several_results(PYTHON)
    want = [plain(embed, tree, i) for i in below(tree, 0)]
    got = jax.tree.map(lambda x: valid_rows(calls, x), calls.results)
    assert_close(got, jax.tree.map(lambda *x: np.stack([np.asarray(a) for a in x]), *want), 1e-5)


def test_only_calls_of_the_function_itself_are_reported():
    f = even_and_odd(JAXREC)
    _, calls = jr.collect(f)(normal(33, 3, 3), 5, normal(34, 3))
    assert calls.args[0] is None and calls.args[2] is None
    assert valid_rows(calls, calls.args[1]).tolist() == [5, 3, 1]


def every_node(collected, tree):
    """A loss on every node, whose size makes every node count differently."""

    def loss(w):
        _, calls = collected(w, tree)
        weight = jnp.where(calls.valid, 1.0 + calls.args[2], 0.0)
        return (weight[:, None] * jnp.sin(calls.results)).sum()

    return loss


def every_node_plainly(tree, nodes):
    return lambda w: sum((1.0 + i) * jnp.sin(PLAIN(w, tree, i)).sum() for i in nodes)


MODES = [(mode, executor) for mode in ("eager", "jit") for executor in ("graph", "reference")]


@pytest.mark.parametrize(
    ("mode", "executor"), picked(MODES, [("eager", "graph"), ("jit", "reference")])
)
def test_gradient_of_a_loss_on_every_node(mode, executor):
    w, tree = weights(), forest()
    nodes = [i for root in roots() for i in below(tree, int(root))]
    loss = every_node(lambda w, tree: jr.collect(RNN, AXES)(w, tree, roots()), tree)
    with jr.executor(executor):
        got = (jax.jit(jax.grad(loss)) if mode == "jit" else jax.grad(loss))(w)
    assert_close(got, jax.grad(every_node_plainly(tree, nodes))(w), 1e-4)


UNUSED = [(executor, k) for executor in EXECUTORS for k in (0, 60, 100)]
SOME = [("graph", 0), ("graph", 100), ("host", 60), ("reference", 100)]


@pytest.mark.parametrize(("executor", "unused"), picked(UNUSED, SOME))
def test_gradient_with_fewer_calls_than_rows(executor, unused):
    """Of the nodes of a forest only some are below the roots that are asked for."""

    @jr.rec_fn
    def squash(w, tree, i):
        def node():
            return jnp.tanh(w * (squash(w, tree, tree["left"][i]) + tree["value"][i]))

        return jr.cond(tree["left"][i] < 0, lambda: tree["value"][i], node)

    left = jnp.array([1, 2, -1] + [-1] * unused)
    tree = {"left": left, "value": jnp.linspace(0.1, 0.5, len(left))}

    def loss(w, f):
        _, calls = jr.collect(f)(w, tree, 0)
        return jnp.sum(jnp.where(calls.valid, calls.results, 0.0) ** 2)

    def by_hand(w):
        a, b, c = tree["value"][:3]
        b = jnp.tanh(w * (c + b))
        return c**2 + b**2 + jnp.tanh(w * (b + a)) ** 2

    with jr.executor(executor):
        for f in (squash, squash.with_options(max_calls=300)):
            assert_close(jax.grad(loss)(0.7, f), jax.grad(by_hand)(0.7), 1e-5)


def test_gradient_for_data_carried_down():
    w, tree, h = normal(10, 3, 3), forest(), normal(11, 3)

    def total(w, h):
        _, calls = jr.collect(top_down(JAXREC))(w, tree, 0, h)
        return (jnp.where(calls.valid[:, None], calls.results, 0.0) ** 2).sum()

    def plain(w, h, i=0):
        below = jnp.tanh(w @ h)
        mine = (top_down(PYTHON)(w, tree, i, h) ** 2).sum()
        if tree.left[i] < 0:
            return mine
        left = plain(w, below, int(tree.left[i]))
        return mine + left + plain(w, below + h, int(tree.right[i]))

    assert_close(jax.grad(total, (0, 1))(w, h), jax.grad(plain, (0, 1))(w, h), 1e-4)


def test_forward_derivative():
    w, tree = weights(), forest()
    loss = every_node(lambda w, tree: jr.collect(RNN)(w, tree, 0), tree)
    plain = every_node_plainly(tree, below(tree, 0))
    assert_close(jax.jvp(loss, (w,), (w,)), jax.jvp(plain, (w,), (w,)), 1e-4)


class TestVmap:
    def test_every_example_gets_its_own_calls(self):
        w, tree = weights(), forest()
        run = jax.vmap(jr.collect(RNN), AXES)
        result, calls = run(w, tree, roots())
        assert_close(result, jnp.stack([PLAIN(w, tree, int(i)) for i in roots()]), 1e-5)
        for k, root in enumerate(roots()):
            one = jax.tree.map(lambda x, k=k: x[k], calls)
            nodes = below(tree, int(root))
            assert valid_rows(one, one.args[2]).tolist() == nodes
            assert not one.lane.any()
            want = jnp.stack([PLAIN(w, tree, i) for i in nodes])
            assert_close(valid_rows(one, one.results), want, 1e-5)

    def test_gradient_for_each_example(self):
        w, tree = weights(), forest()

        def loss(w, root):
            _, calls = jr.collect(RNN)(w, tree, root)
            weight = jnp.where(calls.valid, 1.0 + calls.args[2], 0.0)
            return (weight[:, None] * jnp.sin(calls.results)).sum()

        got = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(w, roots())
        for k, root in enumerate(roots()):
            plain = every_node_plainly(tree, below(tree, int(root)))
            one = jax.tree.map(lambda x, k=k: x[k], got)
            assert_close(one, jax.grad(plain)(w), 1e-4)

    @pytest.mark.parametrize(
        ("mode", "executor"),
        picked(
            [("jit", "graph"), *(("eager", executor) for executor in EXECUTORS)],
            [("jit", "graph"), ("eager", "reference")],
        ),
    )
    def test_derivatives_for_examples_of_examples(self, mode, executor):
        @jr.rec_fn(max_calls=64)
        def f(w, n):
            return jr.cond(n <= 0, lambda: w, lambda: jnp.sin(w * f(w, n - 1)))

        def loss(w):
            _, calls = jr.collect(f)(w, 2)
            return jnp.where(calls.valid, calls.results, 0.0).sum()

        def plain(w):
            first = jnp.sin(w * w)
            return w + first + jnp.sin(w * first)

        def forward(fun):
            return lambda w: jax.jvp(fun, (w,), (1.0,))[1]

        w = jnp.array([[0.5, 0.9], [0.3, 0.7]])
        for order in (jax.grad, forward):
            want = jax.vmap(jax.vmap(order(plain)))(w)
            run = jax.vmap(jax.vmap(order(loss)))
            with jr.executor(executor):
                assert_close((jax.jit(run) if mode == "jit" else run)(w), want, 1e-5)

    def test_lanes_inside_examples(self):
        w, tree = weights(), forest()
        both = jnp.array([[int(tree.left[0]), int(tree.right[0])], [9, 10]])
        run = jax.vmap(jr.collect(RNN, AXES), AXES)
        result, calls = run(w, tree, both)
        assert result.shape == (2, 2, 3)
        for k in range(2):
            one = jax.tree.map(lambda x, k=k: x[k], calls)
            nodes = [below(tree, int(i)) for i in both[k]]
            assert valid_rows(one, one.args[2]).tolist() == list(chain(*nodes))
            lanes = [lane for lane, made in enumerate(nodes) for _ in made]
            assert valid_rows(one, one.lane).tolist() == lanes

    def test_weights_of_each_lane(self):
        w, tree = weights(), forest()
        each = jax.tree.map(lambda x: jnp.stack([x, 2 * x, -x]), w)
        result, calls = jr.collect(RNN, (0, None, 0))(each, tree, roots())
        for k, root in enumerate(roots()):
            lane = jax.tree.map(lambda x, k=k: x[k], each)
            assert_close(result[k], PLAIN(lane, tree, int(root)), 1e-5)
            mine = np.asarray(calls.valid & (calls.lane == k))
            want = jnp.stack([PLAIN(lane, tree, i) for i in below(tree, int(root))])
            assert_close(np.asarray(calls.results)[mine], want, 1e-5)


def test_roots_that_share_nodes():
    """Calls above the number of nodes: an eager report grows, also that of an example."""
    w, tree, shared = weights(), forest(), jnp.array([0, 0, 1])
    nodes = [below(tree, int(i)) for i in shared]
    _, calls = jr.collect(RNN, AXES)(w, tree, shared)
    assert valid_rows(calls, calls.args[2]).tolist() == list(chain(*nodes))
    _, calls = jax.vmap(jr.collect(RNN), AXES)(w, tree, shared)
    assert calls.valid.sum(1).tolist() == list(map(len, nodes))
    assert valid_rows(calls, calls.args[2]).tolist() == list(chain(*nodes))


def test_axes_of_nested_arguments():
    @jr.rec_fn
    def f(pair, n):
        (x, y), _ = pair
        return jr.cond(n == 0, lambda: x + y, lambda: f(pair, n - 1))

    pair = ((jnp.arange(3.0), jnp.float32(1)), None)
    result, _ = jr.collect(f, (((0, None), None), None))(pair, 1)
    assert result.tolist() == [1.0, 2.0, 3.0]


class TestAxesAsGiven:
    """Axes and reported arguments stand in the places of the arguments of the call."""

    LEFT, RIGHT, ROOTS = jnp.array([1, -1, -1]), jnp.array([2, -1, -1]), jnp.array([0, 1])

    def test_of_a_method_of_a_pytree(self):
        @jax.tree_util.register_dataclass
        @dataclasses.dataclass
        class Model:
            weight: float

            @jr.rec_fn
            def total(self, left, right, i):
                def node():
                    return self.total(left, right, left[i]) + self.total(left, right, right[i])

                return jr.cond(left[i] < 0, lambda: self.weight * i, node)

        args = (self.LEFT, self.RIGHT, self.ROOTS)
        result, calls = jr.collect(Model(0.5).total, (None, None, 0))(*args)
        assert result.tolist() == [1.5, 0.5]
        assert calls.args[:2] == (None, None)
        assert calls.args[2][calls.valid].tolist() == [0, 1, 2, 1]

    def test_of_a_class_that_takes_arrays_alone(self):
        @jax.tree_util.register_dataclass
        @dataclasses.dataclass
        class Pair:
            x: Any
            n: Any

            def __post_init__(self):
                self.x, self.n = jnp.asarray(self.x), jnp.asarray(self.n)

            @jr.rec_fn
            def times(self, n):
                return jr.cond(n == 0, lambda: self.x, lambda: self.times(n - 1) + self.n)

        @jr.rec_fn
        def outside(pair, n):
            return jr.cond(n == 0, lambda: pair.x, lambda: outside(pair, n - 1) + pair.n)

        @jr.rec_fn
        def inside(pair):
            down = Pair(pair.x, pair.n - 1)
            return jr.cond(pair.n == 0, lambda: pair.x, lambda: inside(down) + 1.0)

        pair = Pair(2.0, 3)
        for f in (pair.times, functools.partial(outside, pair)):
            assert f(2) == 8.0
        _, calls = jr.collect(pair.times)(2)
        assert calls.args[0][calls.valid].tolist() == [2, 1, 0]
        _, calls = jr.collect(outside)(pair, 2)
        assert calls.args[0] is None
        assert calls.args[1][calls.valid].tolist() == [2, 1, 0]
        results, calls = jr.collect(outside, (0, None))(Pair([1.0, 2.0], [3, 3]), 2)
        assert results.tolist() == [7.0, 8.0]
        assert calls.lane[calls.valid].tolist() == [0, 0, 0, 1, 1, 1]
        assert inside(pair) == 5.0
        with pytest.raises(jr.UnsupportedError, match=r"collect of inside: .*scalars beside it"):
            jr.collect(inside)(pair)

    @pytest.mark.parametrize("axes", [(None, None, 0), 0])
    def test_of_static_arguments(self, axes):
        @jr.rec_fn(static_argnames="act")
        def power(act, x, n):
            return jr.cond(n == 0, lambda: act(x), lambda: x * power(act, x, n - 1))

        x = jnp.array([2.0, 2.0]) if axes == 0 else 2.0
        result, calls = jr.collect(power, axes)(jnp.negative, x, jnp.array([1, 2]))
        assert result.tolist() == [-4.0, -8.0]
        assert calls.args[0] is None
        assert calls.args[2][calls.valid].tolist() == [1, 0, 2, 1, 0]
        with pytest.raises(jr.SignatureError, match="in_axes maps the static argument act"):
            jr.collect(power, (0, None, 0))(jnp.negative, 2.0, jnp.array([1, 2]))


def test_calls_with_other_static_arguments_are_no_calls_of_the_function():
    @jr.rec_fn(static_argnames="kind")
    def alternating(x, n, kind="sin"):
        other = "cos" if kind == "sin" else "sin"
        compute = jnp.sin if kind == "sin" else jnp.cos
        return jr.cond(n <= 0, lambda: x, lambda: compute(alternating(x, n - 1, other)))

    message = r"alternating: it calls itself with other static arguments \(kind='cos'\)"
    with pytest.raises(jr.UnsupportedError, match=message):
        jr.collect(alternating)(1.0, 3)
