"""`jax.debug.print` and `jax.debug.callback` in bodies: a call after another on "reference"."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import JAXREC, PYTHON, Tree, assert_close

import jaxrec as jr

TREE = Tree(jnp.array([-1, -1, 0, -1, 2]), jnp.array([-1, -1, 1, -1, 3]), jnp.arange(5))
LEAVES = jnp.array([[0.5, -1.0], [0.2, 0.4], [0.0, 0.0], [-2.0, 0.3], [0.0, 0.0]])
W = jnp.array([[0.3, -0.2], [0.1, 0.4]])


def encoder(language, seen):
    """A fold whose every kind of place shows something: what else reads `label`?"""

    def tell(*what):
        jax.debug.callback(lambda *x: seen.append([np.asarray(y).tolist() for y in x]), *what)

    @language.rec_fn
    def encode(tree, w, node, label):
        tell(node, label)

        def leaf():
            return LEAVES[tree.token[node]]

        def inner():
            left = encode(tree, w, tree.left[node], label)
            tell(left)
            h = jnp.tanh(w @ (left + encode(tree, w, tree.right[node], label)))
            language.cond(h[0] > 0.05, lambda: tell(h, h), lambda: None)

            def larger():
                tell(node, h[1])
                return 2 * h

            return language.cond(h[1] > 0, larger, lambda: h)

        return language.cond(tree.left[node] < 0, leaf, inner)

    return encode


def loop(language, seen):
    """Turns with calls in them, and turns without."""

    @language.rec_fn
    def run(x, n):
        def turn(k, total):
            jax.debug.callback(lambda *what: seen.append(list(map(float, what))), k, total)
            return total + language.cond(n > 0, lambda: run(x, n - 1), lambda: x)

        return language.fori_loop(0, 2, turn, jnp.zeros(()))

    return run


def both(make, run):
    """What jaxrec returns and shows, and what plain Python does."""
    shown, expected = [], []
    with jr.executor("reference"):
        result = run(make(JAXREC, shown))
    assert_close(result, run(make(PYTHON, expected)), 1e-5)
    assert expected
    return shown, expected


def check_same(found, expected):
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert_close(a, b, 1e-5)


def test_in_the_order_of_python():
    check_same(*both(encoder, lambda f: f(TREE, W, 4, 7)))


def test_at_every_call():
    check_same(*both(encoder, lambda f: f(TREE, W, 4, 7) + f(TREE, W, 2, 8) + f(TREE, W, 4, 7)))


def test_in_loops():
    check_same(*both(loop, lambda f: f(jnp.float32(1.5), 2)))


def test_while_it_is_differentiated():
    check_same(*both(encoder, lambda f: jax.grad(lambda w: f(TREE, w, 4, 7).sum())(W)))
    check_same(*both(encoder, lambda f: jax.jvp(lambda w: f(TREE, w, 4, 7), (W,), (W,))))


def test_of_every_example():
    shown, expected = [], []
    with jr.executor("reference"):
        run = encoder(JAXREC, shown)
        found = jax.vmap(run, (None, None, 0, None))(TREE, W, jnp.array([4, 2]), 7)
    plain = encoder(PYTHON, expected)
    assert_close(found, jnp.stack([plain(TREE, W, 4, 7), plain(TREE, W, 2, 7)]), 1e-5)
    check_same(shown, expected)


def test_printed(capsys):
    @jr.rec_fn
    def factorial(n):
        jax.debug.print("n = {n}", n=n)
        return jr.cond(n <= 1, lambda: 1, lambda: n * factorial(n - 1))

    with jr.executor("reference"):
        assert factorial(3) == 6
        assert factorial(2) == 2
    assert capsys.readouterr().out == "n = 3\nn = 2\nn = 1\nn = 2\nn = 1\n"


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_elsewhere_it_is_refused(executor):
    run, expected = (
        encoder(JAXREC, []),
        r'encode prints .* on executor "\w+" its calls run in batch',
    )
    with jr.executor(executor):
        for call in (run, run.schedule, run.profile, jr.collect(run)):
            with pytest.raises(jr.UnsupportedError, match=expected):
                call(TREE, W, 4, 7)


@pytest.mark.parametrize(
    "transform",
    [jax.jit, lambda f: jax.jit(jax.grad(lambda *x: f(*x).sum(), 1))],
)
def test_compiled_it_is_refused(transform):
    with (
        jr.executor("reference"),
        pytest.raises(jr.UnsupportedError, match=r"encode prints .* in eager calls alone"),
    ):
        transform(encoder(JAXREC, []))(TREE, W, 4, 7)


def test_in_the_graph():
    graph = encoder(JAXREC, []).graph(TREE, W, 4, 7)
    assert "\n  debug_callback(" in str(graph)
    assert " = debug_callback" not in str(graph)
    assert "debug_callback" in graph.dot()
    assert "debug_callback" in graph._repr_svg_()


def test_choices_that_examples_make_apart():
    """Under a vmap of a gradient the interpreter has all examples before it at once."""

    def shrink(language):
        @language.rec_fn
        def run(x, n):
            half = language.cond(x.sum() > 1, lambda: jnp.sin(x), lambda: x * x)
            return language.cond(n <= 0, lambda: half, lambda: run(half, n - 1))

        return run

    xs = jnp.array([[0.2, 0.3], [1.0, 0.9], [0.4, 2.0]])
    with jr.executor("reference"):
        found = jax.vmap(jax.grad(lambda x: shrink(JAXREC)(x, 2).sum()))(xs)
    plain = jax.grad(lambda x: shrink(PYTHON)(x, 2).sum())
    assert_close(found, jnp.stack([plain(x) for x in xs]), 1e-5)


def test_what_is_shown_changes_no_count_of_calls():
    """Examples that make the same calls count once, whether one prints or not."""
    seen = []

    @jr.rec_fn(max_calls=6)
    def scaled(x, n):
        def leaf():
            jax.debug.callback(lambda x: seen.append(float(x)), jnp.sum(x))
            return x

        return jr.cond(n == 0, leaf, lambda: 2 * scaled(x, n - 1))

    with jr.executor("reference"):
        assert jnp.all(jax.vmap(scaled, (0, None))(jnp.ones((3, 30)), 5) == 32)
    jax.effects_barrier()
    assert seen == [30.0] * 3
