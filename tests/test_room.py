"""Room to spare where JAX does not compile the caller: calls of other numbers compile nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import Tree, assert_close, normal, random_trees

import jaxrec as jr
from jaxrec.primitives import _room

W = normal(1, 3, 3)
NODES = 128


def fold() -> Any:
    @jr.rec_fn
    def fold(w, tree, i):
        def node():
            return jnp.tanh(w @ (fold(w, tree, tree.left[i]) + fold(w, tree, tree.right[i])))

        return jr.cond(tree.left[i] < 0, lambda: jnp.sin(w[tree.token[i] % 3]), node)

    return fold


def halving() -> Any:
    """As many calls as follow from what it computes."""

    @jr.rec_fn
    def halving(w, x):
        def more():
            return halving(w, jnp.tanh(w @ x) / 4) + halving(w, x / 2)

        return jr.cond(jnp.sum(x * x) < 1e-3, lambda: x, more)

    return halving


def forest(leaves: int) -> tuple[Tree, Any]:
    tree, roots = random_trees(np.random.default_rng(leaves), [leaves])
    padded = (np.pad(x, (0, NODES - len(x)), constant_values=-1) for x in tree)
    return Tree(*map(jnp.asarray, padded)), int(roots[0])


def both(f: Any, *rest: Any) -> Any:
    return jax.value_and_grad(lambda w: jnp.sum(f(w, *rest)))(W)


def check_planned(f: Any, leaves: int) -> None:
    tree, root = forest(leaves)
    got, alone = both(f, tree, root), f(W, tree, root)
    with jr.executor("reference"):
        assert_close(got, both(f, tree, root), 1e-5)
        assert_close(alone, f(W, tree, root), 1e-5)


def check_stepped(f: Any, scale: float) -> None:
    x = scale * jnp.array([1.0, -2.0, 3.0])
    got = both(f, x)
    with jr.executor("reference"):
        assert_close(got, both(f, x), 1e-5)


def check_each(one: Any, *examples: Any) -> None:
    got = jax.vmap(one)(*examples)
    with jr.executor("reference"):
        assert_close(got, jax.vmap(one)(*examples), 1e-5)


class TestPlanned:
    def test_trees_of_other_sizes_compile_nothing(self):
        f = fold()
        check_planned(f, 3)
        before = f.cache_info().compilations
        for leaves in (1, 20, 60):
            check_planned(f, leaves)
        assert f.cache_info().compilations == before

    def test_gradients_of_each_example(self):
        f = fold()

        def check(sizes: list[int]) -> None:
            forests = [forest(leaves) for leaves in sizes]
            trees, roots = jax.tree.map(lambda *x: jnp.stack(x), *forests)
            check_each(lambda tree, root: both(f, tree, root), trees, roots)

        check([3, 5])
        before = f.cache_info().compilations
        check([20, 1])
        check([40, 60])
        assert f.cache_info().compilations == before

    @pytest.mark.exhaustive
    def test_gradients_of_examples_of_one_structure(self):
        f = fold()
        ws = normal(2, 4, 3, 3)

        def check(leaves: int) -> None:
            tree, root = forest(leaves)

            def one(w: Any) -> Any:
                return jax.value_and_grad(lambda w: jnp.sum(f(w, tree, root)))(w)

            check_each(one, ws)
            check_each(jax.jacfwd(lambda w: f(w, tree, root)), ws)

        check(3)
        before = f.cache_info().compilations
        check(20)
        check(60)
        assert f.cache_info().compilations == before

    def test_no_room_where_it_takes_much_memory(self, monkeypatch):
        monkeypatch.setattr(_room, "_MOST_BYTES", 1)
        f = fold()
        check_planned(f, 3)
        before = f.cache_info().compilations
        check_planned(f, 60)
        assert f.cache_info().compilations > before

    def test_little_room_where_a_call_takes_much_arithmetic(self, monkeypatch):
        monkeypatch.setattr(_room, "_SPARE_FLOPS", 1)
        f = fold()
        check_planned(f, 3)
        before = f.cache_info().compilations
        check_planned(f, 7)
        assert f.cache_info().compilations == before
        check_planned(f, 60)
        assert f.cache_info().compilations > before


class TestCounted:
    """Under `jit`, where all is known that decides the calls, and not all that cells read."""

    WORDS = jnp.array([0, 3, 1, 4, 2, 0])
    RULES = normal(81, 6, 6)

    @pytest.mark.parametrize(
        "transform",
        [
            lambda f: f,
            lambda f: jax.grad(lambda words, rules: jnp.sum(f(words, rules)), 1),
            jax.checkpoint,
            lambda f: jax.vmap(lambda k, rules: f((TestCounted.WORDS + k) % 6, rules), (0, None)),
        ],
        ids=["value", "gradient", "checkpoint", "vmap"],
    )
    @pytest.mark.parametrize("span", [(0, 6), (2, 5)])
    def test_arrays_that_data_alone_reads(self, transform, span):
        """The inside algorithm: calls are spans of words."""

        @jr.rec_fn(memo=True)
        def inside(words, rules, i, j):
            def split(k, found):
                return found + jnp.sin(inside(words, rules, i, k) * inside(words, rules, k, j))

            def longer():
                return jax.lax.fori_loop(i + 1, j, split, jnp.zeros(6))

            return jr.cond(j - i <= 1, lambda: rules[words[i]], longer)

        run = transform(lambda words, rules: inside(words, rules, *span))
        args = self.WORDS, self.RULES
        assert_close(jax.jit(run)(*args), run(*args), 1e-5)

    @pytest.mark.parametrize(
        "prepare",
        [
            lambda words: jax.lax.while_loop(lambda w: jnp.max(w) < 32, lambda w: 2 * w, words) % 6,
            lambda key: jax.random.randint(jax.random.key(jnp.max(key)), (6,), 0, 6),
        ],
    )
    def test_arrays_that_are_computed_beforehand(self, prepare):
        """What they follow from has to be known too: of zeros they may take for ever."""

        @jr.rec_fn(max_calls=16)
        def halves(words, rules, i, j):
            ready = prepare(words)

            def longer():
                middle = (i + j) // 2
                left, right = halves(words, rules, i, middle), halves(words, rules, middle, j)
                return jnp.sin(rules[ready[middle]] + left * right)

            return jr.cond(j - i <= 1, lambda: rules[ready[i]], longer)

        slope = jax.grad(lambda rules, words: jnp.sum(halves(words, rules, 0, 6)))
        args = self.RULES, self.WORDS
        assert_close(jax.jit(slope)(*args), slope(*args), 1e-5)

    def test_arrays_that_tell_shared_calls_apart(self):
        """How many there are follows from their values, though they decide no choice."""

        @jr.rec_fn(memo=True)
        def share(words, rules, i, k):
            def node():
                down = share(words, rules, i - 1, words[i])
                return jnp.sin(down) + share(words, rules, i - 1, 0)

            return jr.cond(i < 0, lambda: rules[k], node)

        run = jax.jit(lambda words: share(words, self.RULES, 3, 0))
        assert_close(run(self.WORDS), share(self.WORDS, self.RULES, 3, 0), 1e-5)


class TestStepped:
    def test_other_numbers_of_calls_compile_nothing(self):
        f = halving()
        check_stepped(f, 1.0)
        before = f.cache_info().compilations
        for scale in (0.1, 4.0, 0.001):
            check_stepped(f, scale)
        assert f.cache_info().compilations == before

    @pytest.mark.parametrize("spare", [1, 1 << 24])
    def test_more_calls_than_there_is_room_for(self, monkeypatch, spare):
        monkeypatch.setattr(_room, "_LEAST", 16)
        monkeypatch.setattr(_room, "_SPARE_FLOPS", spare)
        f = halving()
        for scale in (0.001, 1.0, 8.0):
            check_stepped(f, scale)
        before = f.cache_info().compilations
        check_stepped(f, 1.0)  # as much room as the last
        assert f.cache_info().compilations == before

    def test_room_for_roots(self):
        f = halving()
        xs = jnp.asarray(np.random.default_rng(0).normal(size=(80, 3)) / 20, jnp.float32)

        def total(w, xs):
            return jnp.sum(jax.vmap(f, (None, 0))(w, xs))

        got = jax.grad(total)(W, xs)
        before = f.cache_info().compilations
        again = jax.grad(total)(W, xs / 2)
        assert f.cache_info().compilations == before
        with jr.executor("reference"):
            assert_close(got, jax.grad(total)(W, xs), 1e-4)
            assert_close(again, jax.grad(total)(W, xs / 2), 1e-4)

    def test_gradients_of_each_example(self):
        f = halving()

        def check(scale: float) -> None:
            check_each(lambda x: both(f, x), scale * normal(3, 4, 3))

        check(1.0)
        before = f.cache_info().compilations
        check(0.1)
        check(3.0)
        assert f.cache_info().compilations == before

    def test_without_end(self):
        @jr.rec_fn
        def endless(x):
            return jr.cond(jnp.sum(x) > 1e9, lambda: x, lambda: endless(jnp.cos(x)))

        with pytest.raises(jr.RecursionLimitError, match="endless"):
            jax.grad(lambda x: jnp.sum(endless(x)))(jnp.ones(2))
