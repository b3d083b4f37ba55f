"""Programs whose calls are shared: graphs that plain recursion would run over and over."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from zoo import Language, normal, program

H, NODES = 3, 14


class Dag(NamedTuple):
    """Directed acyclic graphs: each node has two earlier ones; -1 for none."""

    first: Any
    second: Any


def random_dag(rng: np.random.Generator, nodes: int, sources: int) -> Dag:
    """A graph whose first nodes have no others before them."""
    pairs = [
        (-1, -1) if i < sources else (rng.integers(max(0, i - 3), i), rng.integers(0, i))
        for i in range(nodes)
    ]
    first, second = np.array(pairs, np.int32).T
    return Dag(first, second)


def dag() -> Dag:
    """The graph that programs run on."""
    return Dag(*map(jnp.asarray, random_dag(np.random.default_rng(5), NODES, 3)))


def on_nodes() -> dict[int, Any]:
    return {2: jnp.array([13, 2, 11, 13])}


@program(lambda: (normal(200, 2, H, H), dag(), NODES - 1), on_nodes)
def memo_nodes(lang: Language) -> Any:
    """Results that several callers read, in different places."""

    @lang.rec_fn(memo=True, max_calls=4 * NODES)
    def state(w, graph, i):
        def inner():
            first, second = state(w, graph, graph.first[i]), state(w, graph, graph.second[i])
            return jnp.tanh(w[0] @ first + w[1] @ second + first)

        return lang.cond(graph.first[i] < 0, lambda: jnp.sin(w[0, i % H] + i), inner)

    return state


@program(
    lambda: (normal(201, 2, H, H), dag(), NODES - 1),
    lambda: {0: normal(202, 4, 2, H, H), 2: jnp.array([13, 2, 11, 13])},
)
def memo_nodes_of_mapped_weights(lang: Language) -> Any:
    return memo_nodes(lang)


@program(
    lambda: (normal(203, H, H), 6, 3), lambda: {1: jnp.array([6, 0, 4]), 2: jnp.array([3, 5, 4])}
)
def memo_grid(lang: Language) -> Any:
    """The ways through a grid: two counters; a shared result is what a call returns unchanged."""

    @lang.rec_fn(memo=True, max_calls=128)
    def paths(w, m, n):
        def inner():
            return jnp.tanh(w @ paths(w, m - 1, n)) + 0.5 * paths(w, m, n - 1)

        edge = [lambda: w[0] + 0.1 * n, lambda: paths(w, m - 1, n), inner]
        return lang.switch(jnp.where(m == 0, 0, jnp.where(n == 0, 1, 2)), edge)

    return paths


@program(lambda: (normal(204, H, H), normal(205, H), 6), lambda: {2: jnp.array([6, 1, 5])})
def memo_and_not(lang: Language) -> Any:
    """A function that is shared, called by one that is not, which calls it back."""

    @lang.rec_fn(memo=True)
    def power(w, n):
        return lang.cond(
            n == 0, lambda: w, lambda: jnp.tanh(w @ power(w, n - 1) + power(w, n // 2))
        )

    @lang.rec_fn(max_calls=256)
    def run(w, x, n):
        def inner():
            return run(w, power(w, n) @ x, n - 1) + power(w, n - 1) @ run(w, x, n - 2)

        return lang.cond(n <= 0, lambda: x, inner)

    return run


@program(lambda: (normal(206, H, H), 9), lambda: {1: jnp.array([9, 0, 6])})
def memo_by_values(lang: Language) -> Any:
    """A shared function whose calls go on by what they return."""

    @lang.rec_fn(memo=True, max_calls=64)
    def f(w, n):
        def inner():
            y = jnp.tanh(w @ f(w, n - 1)) + 0.1 * n
            return lang.cond(jnp.sum(y) > 0.5, lambda: y + f(w, n - 2), lambda: y * 2)

        return lang.cond(n <= 0, lambda: w[0] + n, inner)

    return f


@program(lambda: (normal(207, H, H), 4), lambda: {1: jnp.array([4, 0, 3])})
def memo_computed_index(lang: Language) -> Any:
    """Calls with a computed index are compared by it."""

    @lang.rec_fn(memo=True, max_calls=128)
    def f(w, n, k):
        def inner():
            y = f(w, n - 1, k)
            j = jnp.argmax(y).astype(jnp.int32)
            return jnp.tanh(w @ y) + f(w, n - 1, j) * f(w, n - 1, (j + 1) % H)

        return lang.cond(n <= 0, lambda: w[k], inner)

    return lambda w, n: f(w, n, 1)


@program(
    lambda: (normal(208, H, H), normal(209, H), 4),
    lambda: {2: jnp.array([4, 0, 3])},
    argnums=(0, 1),
)
def memo_in_stepped(lang: Language) -> Any:
    """A shared function called by one whose choices depend on what it returns."""

    @lang.rec_fn(memo=True)
    def power(w, n):
        return lang.cond(
            n <= 0, lambda: w, lambda: jnp.tanh(w @ power(w, n - 1) + power(w, n // 2))
        )

    @lang.rec_fn(max_calls=256)
    def run(w, x, n):
        def inner():
            y = power(w, n) @ x

            def wide():
                return run(w, y, n - 1) + power(w, n - 1) @ x

            return lang.cond(jnp.sum(y) > 0, wide, lambda: run(w, -y, n - 2))

        return lang.cond(n <= 0, lambda: x, inner)

    return run
