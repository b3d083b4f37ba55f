"""Programs with `vmap` over calls inside a body, and with derivative rules around calls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from waves import sine, tanh
from zoo import JAXREC, PYTHON, Language, forest, normal, program, roots
from zoo_loops import H, on_family


def on_roots() -> dict[int, Any]:
    return {2: roots()}


def counts() -> dict[int, Any]:
    return {1: jnp.array([2, 0, 1])}


@on_family()
def masked_children(lang: Language) -> Any:
    """The lanes are children; absent ones are called too and end at once."""

    @lang.rec_fn(max_calls=64)
    def total(w, tree, i):
        def node():
            row = tree.child[i]
            below = lang.vmap(total, (None, None, 0))(w, tree, row)
            return tanh(w[i] + jnp.where(row[:, None] >= 0, below, 0.0).sum(0))

        return lang.cond(i < 0, lambda: jnp.full(H, 9.0), node)

    return total


@on_family()
def choices_in_lanes(lang: Language) -> Any:
    """Each lane decides for itself whether to call: absent children are not called."""

    @lang.rec_fn
    def total(w, tree, i):
        def of(c, scale):
            return lang.cond(c < 0, lambda: jnp.zeros(H), lambda: scale * total(w, tree, c))

        return tanh(w[i] + lang.vmap(of)(tree.child[i], w[:4, 0]).sum(0))

    return total


@on_family()
def choices_of_jax_in_lanes(lang: Language) -> Any:
    """The same with `jax.lax.cond`, and a loop in each lane that ends by itself."""
    cond = jax.lax.cond if lang is JAXREC else lang.cond

    @lang.rec_fn(out=jax.ShapeDtypeStruct((H,), jnp.float32), max_calls=256)
    def total(w, tree, i):
        def of(c, scale):
            def each(state):
                k, x = state
                return k + 1, x + sine(total(w, tree, tree.child[c, k]))

            def node():
                _, x = lang.while_loop(lambda s: s[0] < tree.count[c], each, (0, w[c]))
                return scale * x

            return cond(c < 0, lambda: jnp.zeros(H), node)

        return tanh(w[i] + lang.vmap(of)(tree.child[i], w[:4, 0]).sum(0))

    return total


@on_family()
def choice_of_all_lanes(lang: Language) -> Any:
    """One choice for all lanes, whose branches call in each of them."""

    @lang.rec_fn(max_calls=64)
    def total(w, tree, i):
        def of(x, k):
            c = tree.child[i, k]
            return lang.cond(tree.count[i] > 1, lambda: x * total(w, tree, c), lambda: x - 1)

        kinds = lang.vmap(of)(w[:2], jnp.arange(2))
        return tanh(w[i] + kinds.sum(0))

    return total


@program(lambda: (normal(95, 11, H), 1), lambda: {1: jnp.array([1, 0])})
def many_lanes(lang: Language) -> Any:
    """More lanes than become call sites of their own; results with the lanes last."""

    @lang.rec_fn(max_calls=512)
    def folded(w, n):
        def below():
            rows = lang.vmap(lambda x: folded(sine(x) + w, n - 1), out_axes=-1)(w[:, None] * w[0])
            return tanh(rows).sum(-1)

        return lang.cond(n == 0, lambda: w.sum(0), below)

    return folded


@program(lambda: (normal(96, 2, 3, H), 2), counts)
def nested_lanes(lang: Language) -> Any:
    jit = (lambda f: f) if lang is PYTHON else jax.jit

    @lang.rec_fn(max_calls=512)
    def folded(w, n):
        def below():
            each = jit(lambda x, y: folded(x * y + w, n - 1).sum())
            grid = lang.vmap(lambda x: lang.vmap(each, (None, 0))(x, w[0]))(w[:, 0])
            return jnp.tanh(grid)[:, :, None] * w

        return lang.cond(n == 0, lambda: jnp.sin(w), below)

    return folded


@program(lambda: (normal(97, 4, H), 2), counts)
def loop_in_lanes(lang: Language) -> Any:
    """A loop that calls, in every lane."""

    @lang.rec_fn(max_calls=512)
    def folded(w, n):
        def of(x):
            def add(k, acc):
                return acc * x + folded(w * x, n - 1)

            return lang.fori_loop(0, 2, add, x)

        return lang.cond(n == 0, lambda: w.sum(0), lambda: lang.vmap(of)(w[:3]).sum(0))

    return folded


@program(lambda: (normal(98, H, H), forest(), 0), on_roots, forward=False)
def backward_rule_around_calls(lang: Language) -> Any:
    """The rule clips the gradient of its first argument and gives none to the weights."""

    @lang.rec_fn
    def folded(w, tree, i):
        @jax.custom_vjp
        def clipped(x, y, w, tree, i):
            return (jnp.sin(x) + folded(w, tree, i)) * y

        def forward(x, y, w, tree, i):
            value = jnp.sin(x) + folded(w, tree, i)
            return value * y, (value, y, w)

        def backward(kept, g):
            value, y, w = kept
            return jnp.clip(g * y, -0.5, 0.5), g * value, jnp.zeros_like(w), None, None

        clipped.defvjp(forward, backward)

        def node():
            return clipped(w[0], w[1], w, tree, tree.left[i]) * folded(w, tree, tree.right[i])

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return folded


@program(lambda: (normal(99, H), 3), lambda: {1: jnp.array([3, 0, 2])}, forward=False)
def backward_rule_in_a_loop(lang: Language) -> Any:
    """A forward rule that calls its own function, as is usual."""

    @lang.rec_fn(max_calls=128)
    def folded(x, n):
        @jax.custom_vjp
        def halved(y, n):
            return folded(y * 0.5, n - 1)

        halved.defvjp(lambda y, n: (halved(y, n), y), lambda y, g: (g * jnp.cos(y), None))

        def loop():
            return lang.fori_loop(0, 2, lambda k, acc: acc * halved(acc + x, n), x)

        return lang.cond(n == 0, lambda: tanh(x), loop)

    return folded


@program(lambda: (normal(100, H), 3), lambda: {1: jnp.array([3, 0, 2])})
def forward_rule_around_calls(lang: Language) -> Any:
    """A rule that calls for the value and gives the derivative itself."""

    @lang.rec_fn(max_calls=128)
    def folded(x, n):
        @jax.custom_jvp
        def rule(y, n):
            return folded(y * 0.5, n - 1)

        @rule.defjvp
        def _(primals, tangents):
            value = rule(*primals)
            return value, value * tangents[0] * 2

        return lang.cond(n == 0, lambda: tanh(x), lambda: rule(x, n) + x * folded(x, n - 1))

    return folded
