"""Recursive programs whose bodies define recursive functions that read what the bodies compute."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import jaxrec as jr

LEFT = jnp.array([1, 3, -1, -1, -1])
RIGHT = jnp.array([2, 4, -1, -1, -1])
VALUE = jnp.array([1.0, 2.0, 3.0, 4.0, 5.0])
FLOAT = jax.ShapeDtypeStruct((), jnp.float32)

Rec = Callable[..., Any]
Cond = Callable[..., Any]

PROGRAMS: dict[str, Callable[[Rec, Cond], Any]] = {}


def program(make: Callable[[Rec, Cond], Any]) -> Callable[[Rec, Cond], Any]:
    """A program of a weight and a node or a counter, for plain Python too."""
    PROGRAMS[make.__name__] = make
    return make


@program
def over_a_tree(rec, cond):
    @rec()
    def outer(w, i):
        s = jnp.tanh(w * VALUE[i])

        @rec()
        def inner(j):
            def node():
                return inner(LEFT[j]) * inner(RIGHT[j]) + s

            return cond(LEFT[j] < 0, lambda: s * VALUE[j], node)

        def node():
            return outer(w, LEFT[i]) + outer(w, RIGHT[i]) + inner(i)

        return cond(LEFT[i] < 0, lambda: s, node)

    return outer


@program
def in_a_branch_and_back_again(rec, cond):
    @rec()
    def outer(w, i):
        def node():
            h = jnp.sin(w * VALUE[i])

            @rec(out=FLOAT)
            def inner(k):
                def again():
                    return inner(k - 1) * h + outer(w, LEFT[i])

                return cond(k <= 0, lambda: h * w, again)

            return inner(2)

        return cond(LEFT[i] < 0, lambda: w * 1.0, node)

    return outer


@program
def in_functions_that_are_passed(rec, cond):
    @rec(static_argnames="f")
    def walk(f, j):
        def node():
            return walk(f, LEFT[j]) + walk(f, RIGHT[j])

        return cond(LEFT[j] < 0, lambda: f(VALUE[j]), node)

    @rec()
    def outer(w, i):
        total = w * 0.0
        for k in range(3):
            s = w * (k + 1.0)
            total = total + walk(lambda x: x * s * k, i)  # noqa: B023
        return cond(LEFT[i] < 0, lambda: total, lambda: total + outer(w * total / 50, RIGHT[i]))

    return outer


@program
def of_functions_that_call_one_another(rec, cond):
    @rec()
    def outer(w, i):
        cosine, square = jnp.cos(w), w * w

        @rec()
        def a(n):
            return cond(n <= 0, lambda: cosine * 1.0, lambda: b(n - 1) + cosine)

        @rec()
        def b(n):
            return cond(n <= 0, lambda: square * 1.0, lambda: c(n - 1) * square)

        @rec()
        def c(n):
            return cond(n <= 0, lambda: 0.5 * VALUE[i], lambda: a(n - 1) + b(n - 1))

        return cond(i >= 3, lambda: a(5), lambda: b(4) + outer(w * 0.5, i + 1))

    return outer


@program
def assigned_anew(rec, cond):
    @rec()
    def outer(w, i):
        s = w

        @rec()
        def inner(n):
            return cond(n <= 0, lambda: s * 1.0, lambda: inner(n - 1) * s)

        total = inner(2)
        s = jnp.sin(w)
        total = total + inner(2)
        s = 3.0
        total = total + inner(2)
        return cond(i <= 0, lambda: total, lambda: outer(total * 0.1, i - 1) + total)

    return outer


@program
def that_decides(rec, cond):
    @rec()
    def outer(w, i):
        most = jnp.where(w > 0.3, 2, 4)

        @rec()
        def inner(n):
            return cond(n >= most, lambda: w * 1.0, lambda: inner(n + 1) * 1.1)

        return cond(i <= 0, lambda: inner(0), lambda: outer(w * 0.7, i - 1) + inner(0))

    return outer


@program
def of_two_bodies_around(rec, cond):
    @rec()
    def f(w, i):
        double = w * 2.0

        @rec()
        def g(n):
            q = double + n

            @rec()
            def h(m):
                return cond(m <= 0, lambda: q * double, lambda: h(m - 1) + jnp.sin(q))

            return cond(n <= 0, lambda: h(1) * 1.0, lambda: g(n - 1) * 0.5 + h(2))

        return cond(i <= 0, lambda: g(1) * 1.0, lambda: f(w * 0.9, i - 1) + g(2))

    return f


@program
def in_loops(rec, cond):
    @rec()
    def outer(w, i):
        s = jnp.sin(w)

        @rec()
        def inner(n, x):
            def body(k, total):
                return total + inner(n - 1, x * s + k)

            def again():
                return jax.lax.fori_loop(0, 2, body, x * s)

            return cond(n <= 0, lambda: x * s, again)

        def step(carry, x):
            y = inner(2, x * carry)
            return carry + y, y * s

        last, ys = jax.lax.scan(step, w, jnp.arange(3.0))
        return cond(i <= 0, lambda: last, lambda: outer(w * 0.5, i - 1) + ys.sum())

    return outer


@program
def in_lanes(rec, cond):
    @rec()
    def outer(w, i):
        def lane(x):
            y = x * w

            @rec()
            def inner(n):
                return cond(n <= 0, lambda: y * 1.0, lambda: jnp.sin(inner(n - 1)) * y + x)

            return inner(2)

        total = jax.vmap(lane)(VALUE[:3] / 5).sum()
        return cond(i <= 0, lambda: total, lambda: outer(w * 0.5, i - 1) + total)

    return outer


@program
def in_a_checkpoint_and_a_jit(rec, cond):
    @rec()
    def outer(w, i):
        s = jnp.sin(w)

        @rec()
        def inner(n):
            return cond(n <= 0, lambda: s * w, lambda: inner(n - 1) * s + 1.0)

        kept = jax.checkpoint(lambda x: inner(2) * x)(w)
        total = kept + jax.jit(lambda x: inner(1) + x * s)(w)
        return cond(i <= 0, lambda: total, lambda: outer(total * 0.1, i - 1) + total)

    return outer


@program
def over_vectors(rec, cond):
    @rec()
    def outer(w, i):
        rows = jnp.outer(VALUE, VALUE) * w / 25

        @rec()
        def inner(n):
            return cond(n <= 0, lambda: rows[0], lambda: jnp.tanh(rows @ inner(n - 1)))

        return cond(i <= 0, lambda: inner(2).sum(), lambda: outer(w * 0.5, i - 1) + inner(1).sum())

    return outer


@program
def of_types_that_grow(rec, cond):
    @rec()
    def outer(w, i):
        @rec()
        def inner(n, x):
            return cond(n <= 0, lambda: 0, lambda: inner(n - 1, w * x) + x)

        return cond(i <= 0, lambda: inner(2, 1) * w, lambda: outer(w * 0.5, i - 1) + inner(3, 1))

    return outer


@program
def of_an_object_made_there(rec, cond):
    class Scaled:
        def __init__(self, scale):
            self.scale = scale

        @rec()
        def total(self, n):
            def again():
                return self.total(n - 1) * self.scale + 1.0

            return cond(n <= 0, lambda: self.scale * 1.0, again)

    @rec()
    def outer(w, i):
        own = Scaled(jnp.cos(w))
        return cond(i <= 0, lambda: own.total(2), lambda: outer(w * 0.5, i - 1) + own.total(1))

    return outer


@program
def of_recursive_functions_that_are_passed(rec, cond):
    @rec(static_argnames="f")
    def twice(f, n):
        return cond(n <= 0, lambda: f(1), lambda: twice(f, n - 1) + f(n))

    @rec()
    def outer(w, i):
        s = jnp.sin(w)

        @rec()
        def inner(n):
            return cond(n <= 0, lambda: s * 1.0, lambda: inner(n - 1) * w)

        above = functools.partial(lambda by, n: inner(n) * by, s)

        def again():
            return outer(w * 0.5, i - 1) + twice(inner, 2)

        return cond(i <= 0, lambda: twice(above, 1), again)

    return outer


def plain_cond(pred: Any, if_true: Any, if_false: Any) -> Any:
    return if_true() if bool(pred) else if_false()


def recursion(name: str) -> tuple[Any, Any, int]:
    """A program as a recursive function and in plain Python, and where it begins."""
    make = PROGRAMS[name]
    ours = make(lambda **options: jr.rec_fn(**options), jr.cond)
    plain = make(lambda **_: lambda fun: fun, plain_cond)
    at_root = name in ("over_a_tree", "in_a_branch_and_back_again", "in_functions_that_are_passed")
    return ours, plain, 0 if at_root else 2
