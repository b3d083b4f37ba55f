"""Programs whose recursion is shaped by counters, ranges and choices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from waves import sine, tanh
from zoo import Language, forest, normal, program, roots

H = 3


def counts() -> dict[int, Any]:
    return {1: jnp.array([4, 0, 7])}


@program(lambda: (normal(30, H), 5), counts)
def power(lang: Language) -> Any:
    @lang.rec_fn(max_calls=64)
    def power(x, n):
        return lang.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

    return power


@program(lambda: (normal(31, H, H), 6, normal(32, H)), counts, argnums=(0, 2))
def loop_with_state(lang: Language) -> Any:
    """Tail recursion: a chain with data carried down and nothing done on the way up."""

    @lang.rec_fn(max_calls=64)
    def loop(w, n, state):
        return lang.cond(n == 0, lambda: state, lambda: loop(w, n - 1, jnp.tanh(w @ state) + n))

    return loop


@program(lambda: (normal(33, H, H), 5, normal(34, H)), counts, argnums=(0, 2))
def even_and_odd(lang: Language) -> Any:
    @lang.rec_fn(max_calls=64)
    def even(w, n, x):
        return lang.cond(n == 0, lambda: x, lambda: jnp.tanh(w @ odd(w, n - 1, x + 1)))

    @lang.rec_fn(max_calls=64)
    def odd(w, n, x):
        return lang.cond(n == 0, lambda: -x, lambda: jnp.sin(even(w, n - 1, x * 2)))

    return even


@program(lambda: ((normal(35, 4, H), normal(36, H, 4)), 5, normal(37, H)), counts, argnums=(0, 2))
def alternating_shapes(lang: Language) -> Any:
    """Two functions with arguments of different shapes call one another."""

    @lang.rec_fn(max_calls=64)
    def narrow(w, n, x):
        return lang.cond(n == 0, lambda: x.sum(), lambda: wide(w, n - 1, jnp.tanh(w[0] @ x)))

    @lang.rec_fn(max_calls=64)
    def wide(w, n, x):
        return lang.cond(n == 0, lambda: x.prod(), lambda: 2 * narrow(w, n - 1, w[1] @ x))

    return narrow


@program(lambda: (normal(38, H, H), forest(), 0), lambda: {2: roots()})
def nested_choices(lang: Language) -> Any:
    @lang.rec_fn
    def nested(w, tree, i):
        token = tree.token[i]

        def node():
            def both():
                return w @ nested(w, tree, tree.left[i]) + nested(w, tree, tree.right[i])

            def one():
                return jnp.tanh(nested(w, tree, tree.right[i]))

            return lang.cond(token % 3 == 0, one, both)

        def leaf():
            return lang.cond(token > 2, lambda: w[0] + token, lambda: w[1] * token)

        return lang.cond(tree.left[i] < 0, leaf, node)

    return nested


@program(lambda: (normal(39, H, H), forest(), 0), lambda: {2: roots()})
def many_branches(lang: Language) -> Any:
    @lang.rec_fn
    def branches(w, tree, i):
        def leaf():
            return w[tree.token[i] % H]

        def left():
            return branches(w, tree, tree.left[i])

        def scaled():
            return 2 * branches(w, tree, tree.right[i])

        def both():
            return jnp.tanh(w @ branches(w, tree, tree.left[i])) + branches(w, tree, tree.right[i])

        kind = jnp.where(tree.left[i] < 0, 0, 1 + tree.token[i])
        return lang.switch(kind, [leaf, left, scaled, both])

    return branches


@program(lambda: (forest(), 0), lambda: {1: roots()}, argnums=())
def count_nodes(lang: Language) -> Any:
    @lang.rec_fn
    def count(tree, i):
        def node():
            return 1 + count(tree, tree.left[i]) + count(tree, tree.right[i])

        return lang.cond(tree.left[i] < 0, lambda: 1, node)

    return count


@program(lambda: (forest(), 0), lambda: {1: roots()}, argnums=())
def depth(lang: Language) -> Any:
    @lang.rec_fn
    def depth(tree, i):
        def node():
            return 1 + jnp.maximum(depth(tree, tree.left[i]), depth(tree, tree.right[i]))

        return lang.cond(tree.left[i] < 0, lambda: jnp.int32(0), node)

    return depth


@program(lambda: (jnp.float32(0.7), 6), counts)
def fibonacci(lang: Language) -> Any:
    @lang.rec_fn(max_calls=128)
    def fib(x, n):
        return lang.cond(n < 2, lambda: x, lambda: fib(x, n - 1) + x * fib(x, n - 2))

    return fib


@program(
    lambda: (normal(40, 9, H), 0, 9),
    lambda: {1: jnp.array([0, 2, 5]), 2: jnp.array([9, 3, 8])},
)
def halves(lang: Language) -> Any:
    """Divide and conquer over a range: control is arithmetic, no array is read for it."""

    @lang.rec_fn(max_calls=64)
    def halves(x, low, high):
        middle = (low + high) // 2

        def node():
            return sine(halves(x, low, middle)) * halves(x, middle, high)

        return lang.cond(high - low == 1, lambda: x[low], node)

    return halves


@program(lambda: (normal(41, 11, H), 0), lambda: {1: jnp.array([0, 2, 4])})
def heap(lang: Language) -> Any:
    @lang.rec_fn(max_calls=64)
    def heap(x, i):
        below = 2 * i + 1

        def subtree(k):
            return lang.cond(k < x.shape[0], lambda: heap(x, k), lambda: jnp.zeros(H))

        return tanh(x[i] + subtree(below) - 2 * subtree(below + 1))

    return heap


@program(
    lambda: (normal(42, H), jnp.float32(1.0)),
    lambda: {1: jnp.array([1.0, 0.1, 2.0])},
    argnums=(0, 1),
)
def float_control(lang: Language) -> Any:
    """A step size that both ends the recursion and enters the result."""

    @lang.rec_fn(max_calls=64)
    def refine(x, step):
        return lang.cond(
            step < 0.2, lambda: x * step, lambda: refine(x, step / 2) + jnp.sin(x) * step
        )

    return refine


@program(lambda: (normal(43, H, H), forest(), 0), lambda: {2: roots()})
def choice_by_data(lang: Language) -> Any:
    """A choice without calls may depend on computed arrays: it stays inside a cell."""

    @lang.rec_fn
    def gated(w, tree, i):
        def node():
            x = w @ gated(w, tree, tree.left[i]) + gated(w, tree, tree.right[i])
            return lang.cond(x.sum() > 0, lambda: jnp.tanh(x), lambda: jnp.exp(x) - 1)

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return gated


@program(lambda: (normal(44, H, H), forest(), 0), lambda: {2: roots()})
def where_by_data(lang: Language) -> Any:
    @lang.rec_fn
    def selected(w, tree, i):
        def node():
            left, right = selected(w, tree, tree.left[i]), selected(w, tree, tree.right[i])
            return jnp.where(left > right, w @ left, jnp.maximum(right, 0.1 * left))

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return selected


@program(lambda: (normal(45, H, H), forest(), 0), lambda: {2: roots()})
def loop_in_a_cell(lang: Language) -> Any:
    @lang.rec_fn
    def iterated(w, tree, i):
        def node():
            start = iterated(w, tree, tree.left[i]) + iterated(w, tree, tree.right[i])
            return jax.lax.fori_loop(0, 3, lambda k, x: jnp.tanh(w @ x + k), start)

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    return iterated


@program(lambda: (normal(46, H), forest(), 0), lambda: {2: roots()})
def result_is_an_index(lang: Language) -> Any:
    """Results that are an index, an outer value and a constant: no cell computes them."""

    @lang.rec_fn
    def found(w, tree, i):
        def go(k):
            where, what, flag = found(w, tree, k)
            return where, what, ~flag

        def inner():
            return lang.cond(
                tree.token[i] % 2 == 0, lambda: go(tree.left[i]), lambda: go(tree.right[i])
            )

        return lang.cond(tree.left[i] < 0, lambda: (i, w, jnp.array(True)), inner)

    return found


@program(lambda: (normal(47, H), forest(), 0), lambda: {2: roots()})
def two_recursions(lang: Language) -> Any:
    """A function that is not recursive itself calls two that are."""

    @lang.rec_fn
    def total(w, tree, i):
        def node():
            return total(w, tree, tree.left[i]) + total(w, tree, tree.right[i])

        return lang.cond(tree.left[i] < 0, lambda: w * tree.token[i], node)

    @lang.rec_fn
    def product(w, tree, i):
        def node():
            return product(w, tree, tree.left[i]) * product(w, tree, tree.right[i])

        return lang.cond(tree.left[i] < 0, lambda: w + tree.token[i], node)

    @lang.rec_fn(max_calls=128)
    def both(w, tree, i):
        return tanh(total(w, tree, i)) + product(w, tree, i) / 10

    return both


@program(lambda: (normal(47, H), forest(), 0), lambda: {2: roots()})
def two_invocations(lang: Language) -> Any:
    """Two recursions side by side in ordinary JAX code."""
    total, leaf = count_nodes(lang), two_recursions(lang)

    def both(w, tree, i):
        return total(tree, i) * sine(leaf(w, tree, i)) + leaf(w, tree, tree.right[0])

    return both


@program(lambda: (normal(48, H), forest(), 0), lambda: {2: roots()})
def choice_by_a_mask(lang: Language) -> Any:
    """Predicates from a Boolean array, negated and combined; a choice among three results."""

    @lang.rec_fn
    def masked(w, tree, i):
        leaf = tree.left < 0

        def node():
            a, b = masked(w, tree, tree.left[i]), masked(w, tree, tree.right[i])
            return jax.lax.select_n(tree.token[i] % 3, a + b, a * b, a - b)

        return lang.cond(~leaf[i] & (tree.token[i] >= 0), node, lambda: w * (1 + tree.token[i]))

    return masked
