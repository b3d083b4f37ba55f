"""Programs over trees and graphs that are given as arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from waves import sine
from zoo import Language, forest, normal, program, roots

H = 3


def weights() -> dict[str, Any]:
    return {"embed": normal(1, 6, H), "kernel": normal(2, 2 * H, H), "bias": normal(3, H)}


def many(value: Any, count: int = 3) -> Any:
    """Different weights for each lane."""
    return jax.tree.map(lambda x: jnp.stack([x * (1 + k) / 2 for k in range(count)]), value)


def on_roots() -> dict[int, Any]:
    return {2: roots()}


@program(lambda: (weights(), forest(), 0), on_roots)
def tree_rnn(lang: Language) -> Any:
    @lang.rec_fn
    def tree_rnn(w, tree, i):
        def node():
            left, right = tree_rnn(w, tree, tree.left[i]), tree_rnn(w, tree, tree.right[i])
            return jnp.tanh(jnp.concatenate([left, right]) @ w["kernel"] + w["bias"])

        return lang.cond(tree.left[i] < 0, lambda: jnp.tanh(w["embed"][tree.token[i]]), node)

    return tree_rnn


@program(lambda: (weights(), forest(), 0), lambda: {0: many(weights()), 2: roots()})
def tree_rnn_of_each_lane(lang: Language) -> Any:
    return tree_rnn(lang)


@program(
    lambda: ({"embed": normal(4, 6, H), "kernel": normal(5, 2 * H, 5 * H)}, forest(), 0), on_roots
)
def tree_lstm(lang: Language) -> Any:
    def gates(z, *cells):
        i, o, u, *forget = jnp.split(z, z.shape[0] // H)
        c = jax.nn.sigmoid(i) * jnp.tanh(u)
        c = c + sum(jax.nn.sigmoid(f) * below for f, below in zip(forget, cells, strict=False))
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    @lang.rec_fn
    def tree_lstm(w, tree, i):
        def leaf():
            return gates(w["embed"][tree.token[i]] @ w["kernel"][:H, : 3 * H])

        def node():
            (h0, c0), (h1, c1) = [tree_lstm(w, tree, child[i]) for child in (tree.left, tree.right)]
            return gates(jnp.concatenate([h0, h1]) @ w["kernel"], c0, c1)

        return lang.cond(tree.left[i] < 0, leaf, node)

    return tree_lstm


class Ternary(NamedTuple):
    child: Any
    value: Any


def ternary() -> Ternary:
    child = [
        [1, 2, 3],
        [4, -1, 5],
        [-1] * 3,
        [-1, 6, -1],
        [-1] * 3,
        [-1] * 3,
        [-1] * 3,
        [-1, 8, -1],
    ]
    return Ternary(jnp.array([*child, [-1] * 3], jnp.int32), normal(6, 9, H))


def on_ternary() -> dict[int, Any]:
    return {2: jnp.array([0, 7])}


@program(lambda: (normal(7, 3, H, H), ternary(), 0), on_ternary)
def children_by_index_pair(lang: Language) -> Any:
    @lang.rec_fn
    def children(w, tree, i):
        def one(k):
            at = tree.child[i, k]
            return lang.cond(at < 0, lambda: jnp.zeros(H), lambda: w[k] @ children(w, tree, at))

        return jnp.tanh(tree.value[i] + one(0) + one(1) + one(2))

    return children


@program(lambda: (normal(7, 3, H, H), ternary(), 0), on_ternary)
def children_by_row(lang: Language) -> Any:
    @lang.rec_fn
    def children(w, tree, i):
        total = tree.value[i]
        for k in range(3):
            at = tree.child[i][k]
            total = total + lang.cond(
                at < 0, lambda: jnp.zeros(H), lambda at=at, k=k: w[k] @ children(w, tree, at)
            )
        return jnp.tanh(total)

    return children


class Siblings(NamedTuple):
    first: Any
    next: Any
    value: Any


def siblings() -> Siblings:
    first = [1, -1, 4, -1, -1, 6, -1, 8, -1]
    following = [-1, 2, 3, -1, 5, -1, -1, -1, -1]
    return Siblings(jnp.array(first), jnp.array(following), normal(8, 9, H))


@program(lambda: (normal(9, H, H), siblings(), 0), lambda: {2: jnp.array([0, 7])})
def first_child_next_sibling(lang: Language) -> Any:
    @lang.rec_fn
    def node(w, tree, i):
        return jnp.tanh(tree.value[i] + w @ chain(w, tree, tree.first[i]))

    @lang.rec_fn
    def chain(w, tree, i):
        def rest():
            return node(w, tree, i) + chain(w, tree, tree.next[i])

        return lang.cond(i < 0, lambda: jnp.zeros(H), rest)

    return node


@program(
    lambda: (normal(10, H, H), forest(), 0, normal(11, H)),
    lambda: {2: roots(), 3: normal(12, 3, H)},
    argnums=(0, 3),
)
def top_down(lang: Language) -> Any:
    @lang.rec_fn
    def top_down(w, tree, i, h):
        below = jnp.tanh(w @ h)

        def node():
            left = top_down(w, tree, tree.left[i], below)
            return left + 2 * top_down(w, tree, tree.right[i], below + h)

        return lang.cond(tree.left[i] < 0, lambda: h * tree.token[i], node)

    return top_down


@program(
    lambda: (normal(13, H, H), forest(), 0, normal(14, H)),
    lambda: {2: roots()},
    argnums=(0, 3),
)
def down_and_up(lang: Language) -> Any:
    @lang.rec_fn
    def down_and_up(w, tree, i, h):
        def node():
            left = down_and_up(w, tree, tree.left[i], jnp.sin(w @ h))
            right = down_and_up(w, tree, tree.right[i], jnp.cos(w @ h))
            return jnp.tanh(w.T @ (left * right) + h)

        return lang.cond(tree.left[i] < 0, lambda: jnp.exp(-h * h), node)

    return down_and_up


@program(lambda: (normal(15, 6, H), forest(), 0), on_roots)
def leftmost(lang: Language) -> Any:
    @lang.rec_fn
    def leftmost(embed, tree, i):
        return lang.cond(
            tree.left[i] < 0,
            lambda: embed[tree.token[i]],
            lambda: leftmost(embed, tree, tree.left[i]),
        )

    return leftmost


@program(lambda: (normal(16, 6), forest(), 0), on_roots)
def several_results(lang: Language) -> Any:
    @lang.rec_fn
    def several(embed, tree, i):
        def leaf():
            return {
                "count": 1,
                "depth": 1,
                "pair": (embed[tree.token[i]], i),
                "flag": tree.token[i] == 2,
            }

        def node():
            a, b = several(embed, tree, tree.left[i]), several(embed, tree, tree.right[i])
            return {
                "count": a["count"] + b["count"],
                "depth": 1 + jnp.maximum(a["depth"], b["depth"]),
                "pair": (a["pair"][0] * b["pair"][0] + 1, b["pair"][1]),
                "flag": a["flag"] | b["flag"],
            }

        return lang.cond(tree.left[i] < 0, leaf, node)

    return several


@program(
    lambda: (normal(17, H, H), forest(), 0, normal(18, H)), lambda: {2: roots()}, argnums=(0, 3)
)
def fold_in_order(lang: Language) -> Any:
    """The data argument of a call is another call's result."""

    @lang.rec_fn
    def fold(w, tree, i, carry):
        def node():
            return fold(w, tree, tree.right[i], fold(w, tree, tree.left[i], carry))

        def leaf():
            return jnp.tanh(w @ carry + tree.token[i])

        return lang.cond(tree.left[i] < 0, leaf, node)

    return fold


@program(
    lambda: (normal(17, H, H), forest(), 0, normal(18, H)), lambda: {2: roots()}, argnums=(0, 3)
)
def work_between_calls(lang: Language) -> Any:
    @lang.rec_fn
    def between(w, tree, i, carry):
        def node():
            left = jnp.sin(between(w, tree, tree.left[i], w @ carry))
            right = between(w, tree, tree.right[i], left * carry)
            return right @ w + left

        return lang.cond(tree.left[i] < 0, lambda: jnp.tanh(carry + tree.token[i]), node)

    return between


@program(lambda: (weights(), forest(), 0), on_roots)
def shared_prologue(lang: Language) -> Any:
    @lang.rec_fn
    def shared(w, tree, i):
        x = jnp.tanh(w["embed"][tree.token[i]] @ w["kernel"][:H])

        def node():
            left, right = shared(w, tree, tree.left[i]), shared(w, tree, tree.right[i])
            return x * left + right

        return x + lang.cond(tree.left[i] < 0, lambda: x * x, node)

    return shared


class Dag(NamedTuple):
    a: Any
    b: Any


def dag() -> Dag:
    """Node i uses earlier nodes; node 0 and node 1 are inputs."""
    a, b = np.array([-1, -1, 0, 2, 2, 3, 5]), np.array([-1, -1, 1, 1, 2, 4, 3])
    return Dag(jnp.asarray(a, jnp.int32), jnp.asarray(b, jnp.int32))


@program(lambda: (normal(19, 2, H), dag(), 6), lambda: {2: jnp.array([6, 0, 5])})
def shared_nodes(lang: Language) -> Any:
    """A directed graph, so that a node is called more than once."""

    @lang.rec_fn(max_calls=80)
    def value(x, graph, i):
        def node():
            return sine(value(x, graph, graph.a[i])) * value(x, graph, graph.b[i]) + 1

        return lang.cond(i < 2, lambda: x[i], node)

    return value


@program(lambda: (normal(20, 6, H, H), forest(), 0), on_roots)
def matrix_of_each_node(lang: Language) -> Any:
    """Weights that an index chooses at inner nodes."""

    @lang.rec_fn
    def by_node(w, tree, i):
        def node():
            below = by_node(w, tree, tree.left[i]) - by_node(w, tree, tree.right[i])
            return jnp.tanh(w[tree.token[i]] @ below)

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i], :, 0], node)

    return by_node
