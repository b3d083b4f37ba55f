"""Programs whose loops make recursive calls."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from waves import sine, tanh
from zoo import PYTHON, Language, normal, program

H = 3


class Family(NamedTuple):
    """Trees of any arity, in two forms; -1 for none."""

    child: Any
    """The children of each node, a row of four."""
    count: Any
    """How many there are."""
    first: Any
    """The first child."""
    next: Any
    """The next child of the same parent."""


def family() -> Family:
    """A tree of eight nodes, with node 7 a tree of its own."""
    child = np.full((8, 4), -1, np.int32)
    child[0, :3], child[1, :2], child[3, :1] = (1, 2, 3), (4, 5), (6,)
    following = np.full(8, -1, np.int32)
    for row in child:
        for a, b in itertools.pairwise(row):
            if b >= 0:
                following[a] = b
    arrays = (child, (child >= 0).sum(1).astype(np.int32), child[:, 0], following)
    return Family(*map(jnp.asarray, arrays))


def on_nodes() -> dict[int, Any]:
    return {2: jnp.array([0, 7])}


def on_family(**options: Any) -> Any:
    return program(lambda: (normal(90, 8, H), family(), 0), on_nodes, **options)


VECTOR = jax.ShapeDtypeStruct((H,), jnp.float32)


@on_family()
def counted_loop(lang: Language) -> Any:
    """Over the columns of a row, absent children left out."""

    @lang.rec_fn
    def total(w, tree, i):
        def add(k, acc):
            c = tree.child[i, k]
            return acc + lang.cond(
                c < 0, lambda: jnp.zeros(H), lambda: sine(total(w, tree, c)) * (k + 1)
            )

        return tanh(w[i] + lang.fori_loop(0, 4, add, jnp.zeros(H)))

    return total


@on_family()
def loop_over_a_row(lang: Language) -> Any:
    """The row is read once and indexed by the counter."""

    @lang.rec_fn
    def total(w, tree, i):
        row = tree.child[i]

        def add(k, acc):
            return lang.cond(row[k] < 0, lambda: acc, lambda: tanh(acc + total(w, tree, row[k])))

        return w[i] * lang.fori_loop(0, 4, add, w[0])

    return total


@on_family()
def mapped_children(lang: Language) -> Any:
    @lang.rec_fn
    def total(w, tree, i):
        def of(c):
            return lang.cond(c < 0, lambda: jnp.zeros(H), lambda: total(w, tree, c))

        return tanh(w[i] + lang.map(of, tree.child[i]).sum(0))

    return total


@on_family()
def loop_to_a_count(lang: Language) -> Any:
    """The number of iterations is read from an array."""

    @lang.rec_fn(out=VECTOR, max_calls=64)
    def total(w, tree, i):
        def add(k, acc):
            return sine(acc) + total(w, tree, tree.child[i, k])

        return w[i] * lang.fori_loop(0, tree.count[i], add, w[i])

    return total


@on_family()
def loop_from_a_number(lang: Language) -> Any:
    """What it starts from has a weak type, which the result of an iteration has not."""

    @lang.rec_fn(max_calls=64)
    def total(w, tree, i):
        def add(k, acc):
            return acc + sine(total(w, tree, tree.child[i, k]))

        def inner():
            return w[i] * lang.fori_loop(0, tree.count[i], add, jnp.full(H, 0.5))

        return lang.cond(tree.count[i] == 0, lambda: w[i], inner)

    return total


@on_family()
def while_loop_over_siblings(lang: Language) -> Any:
    @lang.rec_fn(out=VECTOR, max_calls=64)
    def total(w, tree, i):
        def step(state):
            node, acc = state
            return tree.next[node], acc * total(w, tree, node) + w[0]

        start = tree.first[i], w[i]
        return lang.while_loop(lambda state: state[0] >= 0, step, start)[1]

    return total


@on_family()
def loop_that_carries_an_index(lang: Language) -> Any:
    """A fixed number of steps along the siblings, with what each of them saw."""

    @lang.rec_fn(max_calls=256)
    def total(w, tree, i):
        def step(state, scale):
            node, acc = state

            def visit():
                return tree.next[node], tanh(acc + scale * total(w, tree, node))

            after = lang.cond(node < 0, lambda: state, visit)
            return after, (after[1] + node)

        (_, last), seen = lang.scan(step, (tree.first[i], w[i]), w[:4, 0])
        return last + (seen * w[:4]).sum(0)

    return total


@on_family()
def recurrent_children(lang: Language) -> Any:
    """A recurrent network over the children, both ways; its states are kept."""

    @lang.rec_fn(max_calls=256)
    def total(w, tree, i):
        def step(h, c):
            x = lang.cond(c < 0, lambda: jnp.zeros(H), lambda: total(w, tree, c))
            h = tanh(h * w[1] + x)
            return h, h * w[2]

        last, states = lang.scan(step, w[i], tree.child[i])
        back, others = lang.scan(step, last, tree.child[i, :3], reverse=True)
        return back + (jnp.cos(jnp.arange(4.0))[:, None] * states).sum(0) - others[0]

    return total


@on_family()
def nested_loops(lang: Language) -> Any:
    @lang.rec_fn(max_calls=256)
    def total(w, tree, i):
        def row(j, acc):
            def of(k):
                c = tree.child[i, 2 * j + k]
                return lang.cond(c < 0, lambda: w[j], lambda: total(w, tree, c))

            return acc * 0.5 + lang.map(of, jnp.arange(2)).sum(0)

        return tanh(lang.fori_loop(0, 2, row, w[i]))

    return total


@on_family()
def loops_in_branches(lang: Language) -> Any:
    """Inside a branch, a jitted and a checkpointed helper."""
    jit = (lambda f: f) if lang is PYTHON else jax.jit
    again = (lambda f: f) if lang is PYTHON else jax.checkpoint

    @lang.rec_fn(max_calls=256)
    def total(w, tree, i):
        @jit
        def over(row):
            def add(k, acc):
                return lang.cond(row[k] < 0, lambda: acc, lambda: acc + total(w, tree, row[k]))

            return lang.fori_loop(0, 4, add, jnp.zeros(H))

        def node():
            return tanh(again(lambda x: sine(over(tree.child[i])) * x)(w[i]))

        return lang.cond(tree.first[i] < 0, lambda: w[i], node)

    return total


@program(lambda: (normal(91, 11, H), 2), lambda: {1: jnp.array([1, 0])})
def long_map(lang: Language) -> Any:
    """More iterations than one frame runs, over an array that is computed."""

    @lang.rec_fn(max_calls=512)
    def folded(w, n):
        def below():
            return lang.map(lambda row: folded(sine(row) + w[:2], n - 1), w[:, None] * w[0])

        return lang.cond(n == 0, lambda: w.sum(0), lambda: tanh(below()).sum(0))

    def run(w, n):
        return folded(w[:2], n)

    return run


@program(lambda: (normal(92, H, H), 2, normal(93, H)), lambda: {1: jnp.array([2, 0])}, (0, 2))
def loop_through_calls(lang: Language) -> Any:
    """Each iteration calls with the result of the one before."""

    @lang.rec_fn(max_calls=256)
    def deep(w, n, x):
        def again(k, y):
            return deep(w, n - 1, jnp.tanh(w @ y) + k)

        return lang.cond(n == 0, lambda: jnp.sin(x), lambda: lang.fori_loop(0, 3, again, x))

    return deep


@program(lambda: (normal(94, 13, H), 3), lambda: {1: jnp.array([3, 2])})
def loop_of_another_function(lang: Language) -> Any:
    """A function that is not recursive maps one that is, over a range."""

    @lang.rec_fn(max_calls=512)
    def power(x, n):
        return lang.cond(n <= 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

    @lang.rec_fn(max_calls=512)
    def series(w, n):
        return lang.map(lambda k: power(w[k], k % 5 - n), jnp.arange(13)).sum(0)

    return series
