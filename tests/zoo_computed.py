"""Programs whose choices mix computed values with counters, tables and results of calls."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from zoo import Language, program
from zoo_stepped import vector_args, vector_lanes

TABLE = jnp.asarray(np.random.default_rng(0).integers(0, 100, (100, 3)))


@program(vector_args, vector_lanes, argnums=(0, 1))
def load_at_result(lang: Language) -> Any:
    """An element of a large table, at an index that a call returns, decides."""

    @lang.rec_fn(max_calls=256)
    def f(w, x, i, n):
        def more():
            y, k = f(w, jnp.tanh(x @ w), TABLE[i, 1], n - 1)
            j = TABLE[k % 100, i % 3]
            return lang.cond(j % 2 == 0, lambda: f(w, y, j, n - 2), lambda: (y + x, j + 1))

        return lang.cond((n <= 0) | (TABLE[i, 0] < 5), lambda: (x * 2, i), more)

    return lambda w, x: f(w, x, 3, 5)


@program(vector_args, vector_lanes, argnums=(0, 1))
def derived_table(lang: Language) -> Any:
    """The same of tables that are computed from an outer array."""

    @lang.rec_fn(max_calls=256)
    def f(w, x, t, i, n):
        def more():
            y, k = f(w, jnp.tanh(x @ w), t, (t * 2)[i, 1] % 100, n - 1)
            j = (t + 1)[k % 100, i % 3] % 100
            return lang.cond(j % 2 == 0, lambda: f(w, y, t, j, n - 2), lambda: (y + x, j + 1))

        return lang.cond((n <= 0) | (t[i, 0] < 5), lambda: (x * 2, i), more)

    return lambda w, x: f(w, x, TABLE, 3, 5)


@program(vector_args, vector_lanes, argnums=(0, 1))
def array_merge(lang: Language) -> Any:
    """A small array of counters and results of calls, which two branches make differently."""

    @lang.rec_fn(max_calls=256)
    def f(w, x, n):
        def more():
            y, k = f(w, jnp.sin(x @ w), n - 1)
            v = lang.cond(k % 2 == 0, lambda: jnp.stack([k, n + 1]), lambda: jnp.stack([n, k - 1]))
            return lang.cond(
                jnp.sum(v) % 3 == 0, lambda: f(w, y, n - 2), lambda: (y * 2, jnp.sum(v))
            )

        return lang.cond(n <= 0, lambda: (x, n), more)

    return lambda w, x: f(w, x, 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def nested_merges(lang: Language) -> Any:
    """Choices inside choices give the index of another."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, n):
        def more():
            y, k = f(w, jnp.sin(x @ w), n - 1)
            a = lang.cond(
                k > 2,
                lambda: lang.cond(jnp.sum(y) > 0, lambda: k, lambda: n),
                lambda: lang.switch(
                    k, [lambda: n + 1, lambda: jnp.argmax(y).astype(jnp.int32), lambda: k * 2]
                ),
            )

            def again():
                z, j = f(w, y * 0.5, n - 2)
                return z + y, j + a

            return lang.cond(a % 2 == 0, again, lambda: (y * x, a))

        return lang.cond(n <= 0, lambda: (x, jnp.int32(1)), more)

    return lambda w, x: f(w, x, 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def float_choice(lang: Language) -> Any:
    """Floating results of calls, and arithmetic on them, decide; they have derivatives too."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, s, n):
        def more():
            y, e = f(w, jnp.sin(x @ w), s * 0.5, n - 1)

            def again():
                z, g = f(w, y * 0.5, e * s, n - 2)
                return z + y, g * e

            return lang.cond(e * 2 + s > 0.3, again, lambda: (y * e, e + s))

        return lang.cond((n <= 0) | (s < 0.05), lambda: (x, jnp.sum(x) * s), more)

    return lambda w, x: f(w, x, jnp.float32(1.3), 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def float_param_mutual(lang: Language) -> Any:
    """A floating argument that decides travels through a mutual recursion."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, s, n):
        def more():
            return g(w, x @ w, n - 1, s + 0.1) + s * x

        return lang.cond(n <= 0, lambda: x, more)

    @lang.rec_fn
    def g(w, x, n, s):
        def more():
            return f(w, x, jnp.max(x) + s, n - 1) * s

        def stop():
            return x * s

        return lang.cond((s > 1.9) | (n <= 0), stop, more)

    return lambda w, x: f(w, x, jnp.float32(0.4), 8)


@program(vector_args, vector_lanes, argnums=(0, 1))
def import_in_branch(lang: Language) -> Any:
    """A computed value of the body decides in its branches only."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, n):
        score = jnp.sum(x @ w)

        def more():
            def left():
                return f(w, x * 0.5, n - 1) * score

            def right():
                y = f(w, x @ w, n - 1)
                return lang.cond(jnp.sum(y) > score, lambda: f(w, y, n - 2), lambda: y + score)

            return lang.cond(n % 2 == 0, lambda: lang.cond(score > 0, left, right), right)

        return lang.cond(n <= 0, lambda: x, more)

    return lambda w, x: f(w, x, 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def handed_constants(lang: Language) -> Any:
    """What decides is a constant, an outer value or a counter where the base cases return it."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, n):
        def more():
            y, s, k, b = f(w, jnp.sin(x @ w), n - 1)

            def again():
                z, t, j, c = f(w, y * 0.5, n - 2)
                return z + y, t + s, j, b & c

            return lang.cond((s > w[0, 0]) & b, again, lambda: (y, s + 0.1, k + 1, s > 0.6))

        return lang.cond(
            n <= 0,
            lambda: (x, 0.5, 3, True),
            lambda: lang.cond(jnp.sum(x) > 2, lambda: (x, w[0, 1], n, False), more),
        )

    return lambda w, x: f(w, x, 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def inner_switch_index_clamped(lang: Language) -> Any:
    """A rounded sum as the index of a choice: below and above its range."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, n):
        def more():
            k = jnp.round(jnp.sum(x) * 3).astype(jnp.int32)
            return lang.switch(
                k,
                [
                    lambda: f(w, x @ w, n - 1),
                    lambda: f(w, x * 0.3, n - 2) + x,
                    lambda: f(w, -x, n - 1) - f(w, x * 0.2, n - 2),
                ],
            )

        return lang.cond(n <= 0, lambda: x, more)

    return lambda w, x: f(w, x, 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def empty_beside(lang: Language) -> Any:
    """Arrays without elements beside what decides."""

    @lang.rec_fn(max_calls=512)
    def f(w, x, e, n):
        def more():
            y, e2, k = f(w, x @ w, e * 2, n - 1)
            return lang.cond(
                jnp.sum(y) + jnp.sum(e2) > 0.1, lambda: f(w, y, e2, n - 2), lambda: (y, e, k + 1)
            )

        return lang.cond((n <= 0) | (jnp.sum(e) > 1), lambda: (x, e, n), more)

    return lambda w, x: f(w, x, jnp.zeros((0, 3)), 6)


@program(vector_args, vector_lanes, argnums=(0, 1))
def only_empty_results(lang: Language) -> Any:
    """The results of a call have no elements, but its end is computed."""

    @lang.rec_fn(max_calls=512)
    def g(w, x, n):
        return lang.cond(jnp.sum(x) < n, lambda: x[:0], lambda: g(w, x * 0.5, n + 1))

    def f(w, x):
        return g(w, x, 0), x * 2

    return f


@program(vector_args, vector_lanes, argnums=(0, 1))
def root_import(lang: Language) -> Any:
    """The arguments of the root decide before anything is computed: bool, int8, a float."""

    @lang.rec_fn(max_calls=64)
    def f(w, s, b, k):
        return lang.cond(
            b,
            lambda: s * 2,
            lambda: lang.switch(
                k,
                [
                    lambda: f(w, s + 1, s > 3, k),
                    lambda: f(w, s * 0.5, s < 0.1, (s * 4).astype(jnp.int8)),
                ],
            ),
        )

    return lambda w, x: f(w, x[0], False, jnp.int8(1))
