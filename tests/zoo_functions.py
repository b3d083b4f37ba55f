"""Programs that are built in the ways Python builds functions."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from waves import sine, tanh
from zoo import PYTHON, Language, forest, normal, program, roots

H = 3


def on_roots() -> dict[int, Any]:
    return {2: roots()}


def fold(lang: Language, leaf: Callable[..., Any], node: Callable[..., Any], **options: Any) -> Any:
    """A recursion over binary trees with these bodies."""

    @lang.rec_fn(**options)
    def folded(w, tree, i):
        def inner():
            return node(w, folded(w, tree, tree.left[i]), folded(w, tree, tree.right[i]))

        return lang.cond(tree.left[i] < 0, lambda: leaf(w, tree.token[i]), inner)

    return folded


@program(lambda: (normal(59, H), 3), lambda: {1: jnp.array([2, 0, 3])})
def a_result_twice(lang: Language) -> Any:
    """Of several results that travel together, one is returned in the place of another too."""

    @lang.rec_fn(max_calls=64)
    def several(x, n):
        def more():
            h, c, s = several(x, n - 1)
            return tanh(h + c), h * s, c - h

        return lang.cond(n == 0, lambda: (x, 2 * x, sine(x)), more)

    @lang.rec_fn(max_calls=64)
    def outside(x, n):
        h, c, _ = several(x, n)
        return h, h, c

    return outside


@program(lambda: (normal(60, H, H), forest(), 0), on_roots)
def closure_over_arrays(lang: Language) -> Any:
    table, scale = normal(61, 6, H), jnp.float32(0.3)
    return fold(lang, lambda w, t: table[t] * scale, lambda w, a, b: jnp.tanh(w @ a + b + scale))


@program(lambda: (normal(62, H, H), forest(), 0), on_roots)
def closure_over_arguments(lang: Language) -> Any:
    """The recursive function closes over the array that is differentiated."""

    def outside(w, tree, i):
        squared = w @ w

        @lang.rec_fn
        def inside(k):
            def node():
                return jnp.tanh(squared @ inside(tree.left[k])) + w @ inside(tree.right[k])

            return lang.cond(tree.left[k] < 0, lambda: w[tree.token[k] % H], node)

        return inside(i)

    return outside


@program(
    lambda: (normal(62, H, H), forest(), 0),
    lambda: {0: normal(63, 3, H, H), 2: roots()},
)
def closure_over_mapped_arguments(lang: Language) -> Any:
    return closure_over_arguments(lang)


@program(lambda: (normal(64, H, H), forest(), 0), on_roots)
def method(lang: Language) -> Any:
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @lang.rec_fn
        def states(self, w, tree, i):
            def node():
                left, right = [self.states(w, tree, c[i]) for c in (tree.left, tree.right)]
                return jnp.tanh(w @ left + self.scale * right)

            return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H] * self.scale, node)

    return Model(0.5).states


@program(lambda: (normal(65, 6, H), forest(), 0), on_roots)
def module(lang: Language) -> Any:
    """A method of an nnx module, whose parameters are an argument outside."""

    class Model(nnx.Module):
        def __init__(self, embed, rngs):
            self.embed = nnx.Param(embed)
            self.compose = nnx.Linear(2 * H, H, rngs=rngs)

        @lang.rec_fn
        def states(self, tree, i):
            def node():
                left, right = self.states(tree, tree.left[i]), self.states(tree, tree.right[i])
                return jnp.tanh(self.compose(jnp.concatenate([left, right])))

            return lang.cond(tree.left[i] < 0, lambda: self.embed[...][tree.token[i]], node)

    def run(embed, tree, i):
        return Model(embed, nnx.Rngs(0)).states(tree, i)

    return run


@program(lambda: (normal(66, H, H), forest(), 0), on_roots)
def static_arguments(lang: Language) -> Any:
    """A function, a number and a string that are not arrays."""

    @lang.rec_fn(static_argnums=(3,), static_argnames=("scale", "name"))
    def folded(w, tree, i, activation, *, scale=2.0, name="sum"):
        go = functools.partial(folded, activation=activation, scale=scale, name=name)

        def node():
            left, right = go(w, tree, tree.left[i]), go(w, tree, tree.right[i])
            return activation(w @ (left + right if name == "sum" else left * right)) * scale

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    def both(w, tree, i):
        return folded(w, tree, i, jnp.tanh) + folded(w, tree, i, jnp.sin, scale=0.5, name="product")

    return both


@program(lambda: (normal(67, H, H), forest(), 0), on_roots)
def default_arguments(lang: Language) -> Any:
    @lang.rec_fn
    def folded(w, tree, i, h=1.0, *, scale=0.5):
        def node():
            left = folded(w, tree, i=tree.left[i], h=h + 1)
            return jnp.tanh(w @ left + folded(w, tree, tree.right[i], scale=scale * 0.9))

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H] * h * scale, node)

    return folded


@program(lambda: (normal(68, H, H), forest(), 0), on_roots)
def jit_in_the_body(lang: Language) -> Any:
    @jax.jit
    def leaf(w, token):
        return jnp.tanh(w[token % H])

    @jax.jit
    def node(w, left, right):
        return jax.checkpoint(lambda x: jnp.tanh(w @ x))(left) + leaf(w, 1) * right

    return fold(lang, leaf, node)


@program(lambda: (normal(69, H, H), forest(), 0), on_roots)
def call_inside_jit(lang: Language) -> Any:
    """The recursive calls themselves are inside a jitted helper of the body."""

    @lang.rec_fn
    def folded(w, tree, i):
        def children(w, tree, i):
            return folded(w, tree, tree.left[i]), folded(w, tree, tree.right[i])

        def node():
            both = jax.jit(children) if lang is not PYTHON else children
            left, right = both(w, tree, i)
            return jnp.tanh(w @ left) - right

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return folded


@program(lambda: (normal(70, H, H), forest(), 0), on_roots)
def custom_derivatives(lang: Language) -> Any:
    """Activations with derivative rules of their own."""

    def node(w, left, right):
        return jax.nn.gelu(w @ left) + jax.nn.silu(right) + jax.nn.relu(left - right)

    return fold(lang, lambda w, t: jax.nn.relu(w[t % H]) + jax.nn.softplus(w[0]), node)


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x * 1.0


clipped.defvjp(lambda x: (x * 1.0, x), lambda x, g: (jnp.clip(g, -0.5, 0.5) * jnp.cos(x),))


@program(lambda: (normal(76, H, H), forest(), 0), on_roots, forward=False)
def custom_backward(lang: Language) -> Any:
    return fold(lang, lambda w, t: clipped(w[t % H]), lambda w, a, b: clipped(w @ a) + b)


@program(lambda: (jax.random.key(3), normal(71, H, H), forest(), 0), lambda: {3: roots()}, (1,))
def dropout(lang: Language) -> Any:
    """Random masks from a key that every call is given."""

    @lang.rec_fn
    def dropped(key, w, tree, i):
        def node():
            x = dropped(key, w, tree, tree.left[i]) + dropped(key, w, tree, tree.right[i])
            keep = jax.random.bernoulli(jax.random.fold_in(key, i), 0.7, x.shape)
            return jnp.where(keep, jnp.tanh(w @ x), 0.0)

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return dropped


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    h: Any
    extra: Any


@program(lambda: (normal(72, H, H), forest(), 0), on_roots)
def results_in_a_dataclass(lang: Language) -> Any:
    """Pytrees with classes of their own, empty parts and None."""

    def leaf(w, token):
        return State(w[token % H], extra=(None, {}, [w[0, 0]]))

    def node(w, left, right):
        total = left.extra[2][0] * right.extra[2][0]
        return State(jnp.tanh(w @ left.h - right.h), extra=(None, {}, [total]))

    return fold(lang, leaf, node)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Matrix:
    entries: Any

    def __post_init__(self) -> None:
        self.entries = jnp.asarray(self.entries)


@program(lambda: (Matrix(normal(75, H, H)), forest(), 0), on_roots)
def objects_that_convert_their_leaves(lang: Language) -> Any:
    """Arguments and results of a class that takes arrays alone, and nothing in their place."""

    def node(w, left, right):
        return Matrix(jnp.tanh(w.entries @ left.entries) - right.entries)

    return fold(lang, lambda w, token: Matrix(w.entries[token % H]), node)


@program(lambda: (normal(73, 2, H, H), forest(), 0), on_roots)
def vmap_in_the_body(lang: Language) -> Any:
    """A transformation inside a body, of code that makes no recursive call."""

    def node(w, left, right):
        return jax.vmap(lambda m: jnp.tanh(m @ left))(w).sum(0) + jax.grad(
            lambda x: jnp.sin(x).prod()
        )(right)

    return fold(lang, lambda w, t: w[0, t % H], node)


@program(lambda: (normal(74, H, H), forest(), 0), on_roots)
def kept_residuals(lang: Language) -> Any:
    """A policy that keeps nothing: every cell is computed again in the backward pass."""
    return fold(
        lang,
        lambda w, t: w[t % H],
        lambda w, a, b: jnp.tanh(w @ jnp.sin(w @ a) + b),
        policy=jax.checkpoint_policies.nothing_saveable,
    )


@program(lambda: (normal(75, H, H), forest(), 0), on_roots)
def declared_type(lang: Language) -> Any:
    """With `out` the result type is known, and `jax.lax.cond` serves as well."""
    choice = jax.lax.cond if lang is not PYTHON else lang.cond

    @lang.rec_fn(out=jax.ShapeDtypeStruct((H,), jnp.float32))
    def folded(w, tree, i):
        def node():
            return w @ folded(w, tree, tree.left[i]) * folded(w, tree, tree.right[i])

        return choice(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return folded
