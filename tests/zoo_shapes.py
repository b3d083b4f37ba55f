"""Programs with calls in unusual places, and types that pass through calls."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from waves import sine, tanh
from zoo import Language, forest, normal, program, roots
from zoo_loops import H, on_family


def on_roots() -> dict[int, Any]:
    return {2: roots()}


def counts() -> dict[int, Any]:
    return {1: jnp.array([2, 0, 3])}


@program(lambda: (normal(110, H), 2), counts)
def loop_while_a_result(lang: Language) -> Any:
    """The predicate of a loop is decided by a call."""

    @lang.rec_fn(max_calls=512)
    def f(x, n):
        def below():
            def going(state):
                return (state[0] < 3) & (jnp.sum(f(state[1], n - 1)) > -2)

            return lang.while_loop(going, lambda s: (s[0] + 1, sine(s[1]) - 0.4), (0, x))[1]

        return lang.cond(n == 0, lambda: x * x - 1, lambda: below() + f(x * 0.5, n - 1))

    return f


@program(lambda: (normal(111, H), 2), counts)
def loop_until_small(lang: Language) -> Any:
    """The number of iterations depends on the results of calls."""

    @lang.rec_fn(max_calls=512)
    def f(x, n):
        def below():
            return lang.while_loop(
                lambda y: jnp.sum(y * y) > 0.1, lambda y: 0.6 * tanh(f(y, n - 1)), x
            )

        return lang.cond(n == 0, lambda: x, below)

    return f


@on_family()
def all_places(lang: Language) -> Any:
    """Calls before a choice, in its branches and after it, each stage needing the one before."""

    @lang.rec_fn(max_calls=256)
    def f(w, tree, i):
        def walk():
            first = f(w, tree, tree.first[i]) * w[i]

            def more():
                return tanh(first + f(w, tree, tree.child[i, 1]))

            middle = lang.cond(tree.count[i] > 1, more, lambda: first - 1)
            last = f(w, tree, tree.child[i, jnp.minimum(tree.count[i], 3) - 1])
            return sine(middle) * last + middle

        return lang.cond(tree.count[i] == 0, lambda: w[i], walk)

    return f


@program(lambda: (normal(112, H, H), forest(), 0), on_roots)
def functions_as_arguments(lang: Language) -> Any:
    """Each static function is a recursion of its own, and one calls another."""

    @lang.rec_fn(static_argnames="combine", max_calls=256)
    def fold(w, tree, i, combine):
        def node():
            parts = (fold(w, tree, k, combine=combine) for k in (tree.left[i], tree.right[i]))
            return combine(w, *parts)

        return lang.cond(tree.left[i] < 0, lambda: w[tree.token[i] % H], node)

    def add(w, a, b):
        return a + b

    def mix(w, a, b):
        return jnp.tanh(w @ a) * b

    @lang.rec_fn(max_calls=256)
    def both(w, tree, i):
        return fold(w, tree, i, combine=mix) + 0.1 * fold(w, tree, i, combine=add)

    return both


@program(lambda: (normal(113, H), 3), counts)
def one_helper_at_two_types(lang: Language) -> Any:
    @lang.rec_fn(max_calls=256)
    def power(x, n):
        return lang.cond(n <= 0, lambda: x, lambda: x * power(x * 0.5, n - 1))

    @lang.rec_fn(max_calls=256)
    def f(x, n):
        return power(x, n) + power(x.sum(), n) + power(2, n)

    return f


def passed_on(lang: Language, change: Any) -> Any:
    """A value that every call changes, hands down and returns."""

    @lang.rec_fn(max_calls=64)
    def f(x, n):
        return lang.cond(n == 0, lambda: x, lambda: change(f(change(x), n - 1)))

    return f


@program(lambda: (jnp.array([True, False]), 3), counts, argnums=())
def bool_arguments(lang: Language) -> Any:
    return passed_on(lang, lambda x: x ^ jnp.roll(x, 1))


@program(lambda: (jnp.array([100, -7], jnp.int8), 3), counts, argnums=())
def int8_arguments(lang: Language) -> Any:
    return passed_on(lang, lambda x: x * 3 + x[0])


@program(lambda: (jnp.array([5, -7, 2], jnp.int4), 3), counts, argnums=())
def int4_arguments(lang: Language) -> Any:
    """Two elements share a byte, so a row of three does not begin at one."""
    return passed_on(lang, lambda x: x * 3 + x[0])


@program(lambda: (jnp.array([0.5, -1.5, 3.0], jnp.float4_e2m1fn), 3), counts, argnums=())
def float4_arguments(lang: Language) -> Any:
    def change(x):
        return (jnp.roll(x.astype(jnp.float32), 1) * 2 - 1).astype(x.dtype)

    return passed_on(lang, change)


@program(lambda: (jnp.uint32(4000000000), 3), counts, argnums=())
def uint32_scalars(lang: Language) -> Any:
    return passed_on(lang, lambda x: x * jnp.uint32(2654435761) ^ (x >> 7))


@program(lambda: (normal(114, H, dtype=jnp.bfloat16), 3), counts, rtol=2e-2)
def bfloat16_arguments(lang: Language) -> Any:
    return passed_on(lang, lambda x: sine(x) + x * x)


@program(lambda: (normal(115, H, dtype=jnp.float64), 3), counts, rtol=1e-10, x64=True)
def float64_arguments(lang: Language) -> Any:
    return passed_on(lang, lambda x: sine(x) + x * x)


@program(lambda: (normal(116, H) + 0.2j * normal(117, H), 3), counts)
def complex64_arguments(lang: Language) -> Any:
    return passed_on(lang, lambda x: jnp.sin(x) + 1j * x)


@program(lambda: ((normal(118, 0, H), jnp.float32(0.3)), 3), counts)
def empty_arguments(lang: Language) -> Any:
    return passed_on(lang, lambda x: (jnp.sin(x[0]), jnp.cos(x[1]) + x[0].sum()))


@program(lambda: (jax.random.key(7), 3), counts, argnums=())
def key_arguments(lang: Language) -> Any:
    fold = passed_on(lang, lambda key: jax.random.fold_in(jax.random.split(key)[1], 5))
    return lambda key, n: jax.random.key_data(fold(key, n))
