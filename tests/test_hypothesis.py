"""Random forests and random recursive programs, against plain Python and the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from zoo import JAXREC, PYTHON, Tree, assert_close, loss, normal, random_trees
from zoo_trees import tree_rnn, weights

import jaxrec as jr

quick = settings(max_examples=8, deadline=None, derandomize=True)
slow = settings(
    max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)

seeds = st.integers(0, 2**32 - 1)
leaf_counts = st.lists(st.integers(1, 40), min_size=1, max_size=6)

NODES = 128
RNN = tree_rnn(JAXREC)


def padded(tree: Tree) -> Tree:
    """Unused nodes at the end, so that every forest has one shape and is compiled once."""
    return Tree(*(jnp.asarray(np.pad(x, (0, NODES - len(x)), constant_values=-1)) for x in tree))


class TestForests:
    @quick
    @given(seeds, st.lists(st.integers(1, 10), min_size=3, max_size=3))
    def test_batch(self, seed, leaves):
        tree, roots = random_trees(np.random.default_rng(seed), leaves)
        w = weights()
        got = batch(w, padded(tree), jnp.asarray(roots))
        want = np.stack([numpy_rnn(w, tree, int(i)) for i in roots])
        assert_close(got, want, 1e-5)

    @quick
    @given(seeds, leaf_counts)
    def test_number_of_calls_and_depth(self, seed, leaves):
        tree, roots = random_trees(np.random.default_rng(seed), leaves)

        def depth(i):
            return (
                1 + max(map(depth, (tree.left[i], tree.right[i])), default=0)
                if (tree.left[i] >= 0)
                else 1
            )

        for root, count in zip(roots, leaves, strict=True):
            schedule = RNN.schedule(weights(), Tree(*map(jnp.asarray, tree)), root)
            assert schedule.num_calls == 2 * count - 1
            assert schedule.depth == depth(root)
            assert sum(wave.count for wave in schedule.waves) == 2 * count - 1

    @quick
    @given(seeds, st.lists(st.integers(1, 10), min_size=3, max_size=3), st.randoms())
    def test_order_of_nodes_and_lanes_does_not_matter(self, seed, leaves, random):
        tree, roots = random_trees(np.random.default_rng(seed), leaves)
        order = np.arange(len(tree.left))
        random.shuffle(order)
        moved = np.argsort(order)

        def renamed(children):
            return np.where(children < 0, -1, moved[children]).astype(np.int32)[order]

        other = Tree(renamed(tree.left), renamed(tree.right), tree.token[order])
        w = weights()
        first = batch(w, padded(tree), jnp.asarray(roots))
        second = batch(w, padded(other), jnp.asarray(moved[roots][::-1].astype(np.int32)))
        # XLA may round a row of a wave differently in another place, by the last bit.
        np.testing.assert_allclose(first, second[::-1], rtol=1e-6, atol=1e-6)


def numpy_rnn(w: Any, tree: Tree, i: int) -> np.ndarray:
    """The network in NumPy."""
    if tree.left[i] < 0:
        return np.tanh(np.asarray(w["embed"])[tree.token[i]])
    children = [numpy_rnn(w, tree, int(c[i])) for c in (tree.left, tree.right)]
    return np.tanh(np.concatenate(children) @ np.asarray(w["kernel"]) + np.asarray(w["bias"]))


batch = jax.jit(jax.vmap(RNN, (None, None, 0)))


# Random programs.

Expression = Callable[[dict[str, Any]], Any]


@dataclasses.dataclass(frozen=True)
class Body:
    """A branch: steps that give names to values, some of which are calls."""

    steps: tuple[tuple[str, Expression], ...]
    result: Expression

    def run(self, names: dict[str, Any]) -> Any:
        names = dict(names)
        for name, step in self.steps:
            names[name] = step(names)
        return self.result(names)


VECTOR_OPS: dict[str, Callable[..., Any]] = {
    "add": lambda w, a, b: a + b,
    "multiply": lambda w, a, b: a * b,
    "tanh": lambda w, a, b: jnp.tanh(a) - 0.5 * b,
    "matrix": lambda w, a, b: jnp.tanh(w[0] @ a) + b,
    "transposed": lambda w, a, b: w[1].T @ jnp.sin(a + b),
    "row": lambda w, a, b: w[0, 1] * a - b,
    "where": lambda w, a, b: jnp.where(a > 0, a, b),
    "constant": lambda w, a, b: a + jnp.arange(3.0),
}


@st.composite
def vector(draw: Any, known: list[str]) -> Expression:
    """An expression over the vectors that have names."""
    op = VECTOR_OPS[draw(st.sampled_from(sorted(VECTOR_OPS)))]
    a, b = draw(st.sampled_from(known)), draw(st.sampled_from(known))
    return lambda names: op(names["w"], names[a], names[b])


@st.composite
def call(draw: Any, functions: int, known: list[str]) -> Expression:
    """A call of one of the functions on a smaller counter, with some vector carried down."""
    callee, less = draw(st.integers(0, functions - 1)), draw(st.integers(1, 2))
    carried, shift = draw(st.sampled_from(known)), draw(st.integers(0, 3))

    def run(names: dict[str, Any]) -> Any:
        counter, kind = names["n"] - less, names["kind"] + shift
        return names["functions"][callee](names["w"], counter, kind, names[carried])[0]

    return run


@st.composite
def inner(draw: Any, functions: int, known: list[str]) -> Expression:
    """A recursive function that is made here and closes over what has names, and a call of it."""
    callee, times = draw(st.integers(0, functions - 1)), draw(st.integers(0, 2))
    first, by, added = (draw(st.sampled_from(known)) for _ in range(3))
    goes_on = draw(st.booleans())

    def run(names: dict[str, Any]) -> Any:
        @names["lang"].rec_fn(max_calls=512)
        def inside(k, y):
            def base():
                x = jnp.tanh(y * names[by])
                if not goes_on:
                    return x
                return names["functions"][callee](names["w"], names["n"] - 1, names["kind"], x)[0]

            return names["lang"].cond(
                k <= 0, base, lambda: jnp.tanh(inside(k - 1, y + names[added]))
            )

        return inside(times, jnp.tanh(names[first]))

    return run


@st.composite
def body(draw: Any, functions: int, calls: int) -> Body:
    """A branch with up to so many calls, in any order with other steps."""
    known, steps = ["x"], []
    made = 0
    for k in range(draw(st.integers(0, 4))):
        is_call = made < calls and draw(st.booleans())
        made += is_call
        made_here = is_call and draw(st.booleans())
        calls_one = inner(functions, known) if made_here else call(functions, known)
        strategy = calls_one if is_call else vector(known)
        steps.append((f"v{k}", draw(strategy)))
        known = [*known, f"v{k}"]
    result = draw(st.sampled_from(known))
    extra = draw(st.sampled_from(["n", "kind"]))
    return Body(tuple(steps), lambda names: (names[result], names[extra]))


@st.composite
def group(draw: Any) -> list[tuple[list[Body], Body]]:
    """Functions that call one another: for each the branches, and the base case."""
    count = draw(st.integers(1, 2))
    return [
        (draw(st.lists(body(count, 2), min_size=1, max_size=3)), draw(body(count, 0)))
        for _ in range(count)
    ]


def built(bodies: list[tuple[list[Body], Body]], lang: Any) -> Any:
    """The first function of a group, in a language."""
    functions: list[Any] = []

    def make(index: int) -> Any:
        branches, base = bodies[index]

        @lang.rec_fn(max_calls=512)
        def function(w, n, kind, x):
            names = {"w": w, "n": n, "kind": kind, "x": x}
            names |= {"functions": functions, "lang": lang}
            runs = [lambda body=body: body.run(names) for body in branches]
            return lang.cond(n <= 0, lambda: base.run(names), lambda: lang.switch(kind % 3, runs))

        return function

    functions.extend(make(k) for k in range(len(bodies)))
    return functions[0]


def check_program(bodies: list[tuple[list[Body], Body]], seed: int) -> None:
    """Values and gradients of a batch, on the graph executor, by the reference and by Python."""
    w, xs = normal(seed % 1000, 2, 3, 3), normal(seed % 999, 3, 3)
    n, kinds = jnp.array([4, 2, 0]), jnp.array([0, 1, 5])
    run = built(bodies, JAXREC)

    def total(w, xs):
        outs = jax.vmap(run, (None, 0, 0, 0))(w, n, kinds, xs)
        return jax.vmap(loss)(outs).sum(), outs

    (_, got), grads = jax.jit(jax.value_and_grad(total, (0, 1), has_aux=True))(w, xs)
    with jr.executor("reference"):
        (_, want), expected = jax.value_and_grad(total, (0, 1), has_aux=True)(w, xs)
    assert_close(got, want, 1e-5)
    assert_close(grads, expected, 1e-4)
    plain = built(bodies, PYTHON)
    outs = [plain(w, int(a), int(k), x) for a, k, x in zip(n, kinds, xs, strict=True)]
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x]), *outs)
    assert_close(want, stacked, 1e-5)


class TestPrograms:
    @settings(quick, max_examples=4)
    @given(group(), seeds)
    def test_some(self, bodies, seed):
        check_program(bodies, seed)

    @pytest.mark.exhaustive
    @settings(slow, max_examples=60)
    @given(group(), seeds)
    def test_many(self, bodies, seed):
        check_program(bodies, seed)
