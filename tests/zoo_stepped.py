"""Programs whose control depends on what cells compute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from zoo import Language, program

WEIGHT = np.asarray([[0.4, -0.3, 0.1], [0.2, 0.5, -0.2], [-0.1, 0.3, 0.4]], np.float32)
VECTOR = np.asarray([1.0, 2.0, -1.5], np.float32)
VECTORS = np.asarray([[1.0, 2.0, -1.5], [0.3, 0.1, 0.2], [4.0, -3.0, 2.0]], np.float32)


def vector_args() -> tuple[Any, ...]:
    return jnp.asarray(WEIGHT), jnp.asarray(VECTOR)


def vector_lanes() -> dict[int, Any]:
    return {1: jnp.asarray(VECTORS)}


@program(vector_args, vector_lanes, argnums=(0, 1))
def shrink(lang: Language) -> Any:
    """A predicate on an array argument."""

    @lang.rec_fn(max_calls=128)
    def shrink(weight, x):
        def more():
            return shrink(weight, jnp.tanh(x @ weight)) + x

        return lang.cond(jnp.sum(jnp.abs(x)) < 0.5, lambda: x, more)

    return shrink


@program(vector_args, vector_lanes, argnums=(0, 1))
def scattered(lang: Language) -> Any:
    """A choice of three by an array argument, whose index branches read too, and two choices."""

    @lang.rec_fn(max_calls=256)
    def scattered(weight, x):
        size = jnp.sum(x**2)
        which = jnp.int32(size > 0.3) + jnp.int32(size > 2)

        def two():
            return scattered(weight, x[::-1] * 0.6) + scattered(weight, jnp.sin(x @ weight)) * which

        y = lang.switch(which, [lambda: x * weight[0], lambda: scattered(weight, x * 0.5), two])
        return lang.cond(size < 1, lambda: y * 2, lambda: y + scattered(weight, x * 0.2)[::-1])

    return scattered


@program(vector_args, vector_lanes, argnums=(0, 1))
def halved_by_another(lang: Language) -> Any:
    """The function that decides by an array is called by another, before a choice and in it."""
    scale = jnp.asarray(VECTOR)

    @lang.rec_fn(max_calls=128)
    def halve(weight, x, n):
        def more():
            return jnp.sin(halve(weight, x * 0.4, n + 1) @ weight) + n * x

        return lang.cond(jnp.sum(jnp.abs(x * scale)) < 0.7 + n / 9, lambda: x * scale, more)

    @lang.rec_fn(max_calls=128)
    def outside(weight, x, n):
        first = halve(weight, x + 1, 0)

        def more():
            turned = outside(weight, jnp.cos(first), n - 1)
            return turned + halve(weight, turned * 2, n)

        return lang.cond(n == 0, lambda: first * 2, more)

    return lambda weight, x: outside(weight, x, 2)


@program(vector_args, vector_lanes, argnums=(0, 1))
def refine(lang: Language) -> Any:
    """A predicate on the result of a call, and a second call that depends on it."""

    @lang.rec_fn(max_calls=256)
    def refine(weight, x, n):
        def more():
            once = refine(weight, x * 0.5, n - 1)

            def again():
                return refine(weight, jnp.sin(once @ weight), n - 1) + once

            return lang.cond(jnp.sum(once) > 0.2, again, lambda: once)

        return lang.cond(n == 0, lambda: x, more)

    return lambda weight, x: refine(weight, x, 3)


@program(vector_args, vector_lanes, argnums=(0, 1))
def gate(lang: Language) -> Any:
    """A three-way choice by a computed index, with calls in two of the branches."""

    @lang.rec_fn(max_calls=128)
    def gate(weight, x, n):
        scores = x @ weight

        def deeper():
            return gate(weight, scores, n - 1)

        def wider():
            return gate(weight, x * 0.7, n - 1) + gate(weight, scores * 0.3, n - 1)

        def choose():
            return lang.switch(jnp.argmax(scores), [deeper, wider, lambda: jnp.cos(x)])

        return lang.cond(n == 0, lambda: x, choose)

    return lambda weight, x: gate(weight, x, 4)


@program(vector_args, vector_lanes, argnums=(0, 1))
def walk_by_score(lang: Language) -> Any:
    """The next node is the one with the greatest computed score."""
    nexts = jnp.asarray([[1, 2, 3], [4, 5, 6], [6, 5, 4], [4, 4, 6], [-1] * 3, [-1] * 3, [-1] * 3])

    @lang.rec_fn(max_calls=64)
    def walk(weight, x, i):
        def go():
            y = jnp.tanh(x @ weight) + 0.1 * i
            child = nexts[i, jnp.argmax(y)]
            return walk(weight, y, child) * 1.5

        return lang.cond(nexts[i, 0] < 0, lambda: x * i, go)

    return lambda weight, x: walk(weight, x, 0)


@program(
    lambda: (jnp.float32(3.0), jnp.float32(2.0)),
    lambda: {1: jnp.asarray([2.0, 5.0, 7.0], jnp.float32)},
    argnums=(0, 1),
)
def newton(lang: Language) -> Any:
    """Iterates until an array is close enough: an exponential of a vector decides."""

    @lang.rec_fn(max_calls=64)
    def newton(x, target):
        error = x * x - target
        close = jnp.max(jnp.abs(jnp.stack([error, error * 0.5]))) < 1e-3
        return lang.cond(close, lambda: x, lambda: newton(0.5 * (x + target / x), target))

    return newton


@program(
    lambda: (jnp.int32(2), jnp.int32(3)),
    lambda: {1: jnp.asarray([0, 2, 3], jnp.int32)},
    argnums=(),
)
def ackermann(lang: Language) -> Any:
    """A call whose argument is another call's result."""

    @lang.rec_fn(max_calls=2048)
    def ack(m, n):
        def outer():
            return lang.cond(n == 0, lambda: ack(m - 1, 1), lambda: ack(m - 1, ack(m, n - 1)))

        return lang.cond(m == 0, lambda: n + 1, outer)

    return ack


@program(vector_args, vector_lanes, argnums=(0, 1))
def even_steps(lang: Language) -> Any:
    """Two functions that call each other until a norm is small."""

    @lang.rec_fn(max_calls=256)
    def even(weight, x):
        def more():
            return odd(weight, x @ weight)

        return lang.cond(jnp.sum(x * x) < 0.3, lambda: x, more)

    @lang.rec_fn
    def odd(weight, x):
        def more():
            return even(weight, x * 0.8) - x

        return lang.cond(jnp.max(x) < 0.1, lambda: -x, more)

    return even


@program(vector_args, vector_lanes, argnums=(0, 1))
def experts(lang: Language) -> Any:
    """No recursion: a computed choice whose branches run apart, since one of them divides."""

    @lang.rec_fn(max_calls=16)
    def experts(weight, x):
        def first():
            return x @ weight

        def second():
            return jax.nn.softmax(x @ weight.T)

        return lang.cond(jnp.sum(x) > 1.0, first, second)

    return experts


@program(vector_args, vector_lanes, argnums=(0, 1))
def experts_together(lang: Language) -> Any:
    """A computed choice between branches that are short: a wave computes both."""

    @lang.rec_fn(max_calls=64)
    def refine(weight, x, n):
        def first():
            return 0.5 * (x @ weight)

        def second():
            return jnp.tanh(x @ weight.T)

        y = lang.cond(jnp.sum(x) > 0.5, first, second)
        return lang.cond(n == 0, lambda: y, lambda: refine(weight, y, n - 1) + x)

    return lambda weight, x: refine(weight, x, 3)


@program(vector_args, vector_lanes, argnums=(0, 1))
def count_and_sum(lang: Language) -> Any:
    """A count that calls return decides what a parent does."""

    @lang.rec_fn(max_calls=256)
    def grow(weight, x, n):
        def more():
            left, size = grow(weight, jnp.sin(x @ weight), n - 1)

            def twice():
                right, other = grow(weight, left * 0.5, n - 2)
                return left + right, size + other

            return lang.cond((size % 2 == 0) & (n > 1), twice, lambda: (left * x, size + 1))

        return lang.cond(n <= 0, lambda: (x, jnp.int32(1)), more)

    return lambda weight, x: grow(weight, x, 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def predicate_call(lang: Language) -> Any:
    """A call of another function in the predicate."""

    @lang.rec_fn
    def energy(weight, x, n):
        def more():
            return energy(weight, x @ weight, n - 1) + jnp.sum(x * x)

        return lang.cond(n == 0, lambda: jnp.sum(x), more)

    @lang.rec_fn(max_calls=256)
    def cool(weight, x):
        def more():
            return cool(weight, x * 0.6) + x

        return lang.cond(energy(weight, x, 2) < 1.0, lambda: x, more)

    return cool


@program(vector_args, vector_lanes, argnums=(0, 1))
def decided_by_branches(lang: Language) -> Any:
    """What one of two cells computes decides, directly and as bits of a number."""

    @lang.rec_fn(max_calls=256)
    def grow(weight, x, n):
        def first():
            y = jnp.tanh(x @ weight)
            return y, jnp.sum(y) > 0, jnp.sum(y > 0).astype(jnp.int32)

        def second():
            y = jnp.sin(x @ weight.T)
            return y, jnp.max(y) < 0.5, jnp.argmax(y).astype(jnp.int32)

        y, again, bits = lang.cond(n % 2 == 0, first, second)

        def follow(wanted, scale):
            return lang.cond(wanted & (n > 0), lambda: grow(weight, scale * y, n - 1), lambda: y)

        return follow(again, 1.0) + follow(bits & 1 != 0, 0.5) + follow(bits & 2 != 0, -1.0)

    return lambda weight, x: grow(weight, x, 4)
