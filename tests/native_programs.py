"""Scalar recursive programs, each in the languages of the zoo and with arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from zoo import Language, forest

from jaxrec.split._binding import bind
from jaxrec.split._native import NativeProgram, compile_native
from jaxrec.split._outer import find_outers

PROGRAMS: dict[str, tuple[Callable[[Language], Any], tuple[Any, ...]]] = {}


def scalar(*args: Any) -> Callable[[Any], Any]:
    def register(build: Any) -> Any:
        PROGRAMS[build.__name__] = build, args
        return build

    return register


def native_of(fun: Any, *args: Any) -> NativeProgram | None:
    """What the native machine runs for a call with such arguments, if it does."""
    graph = fun.graph(*args)
    return compile_native(graph, bind(graph, find_outers(graph)))


def is_native(fun: Any, *args: Any) -> bool:
    """Whether a call with such arguments is run by the native machine."""
    return native_of(fun, *args) is not None


@scalar(10)
def fib(lang: Language) -> Any:
    @lang.rec_fn
    def fib(n):
        return lang.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

    return fib


@scalar(2, 2)
def ack(lang: Language) -> Any:
    """An argument that is another call's result."""

    @lang.rec_fn
    def ack(m, n):
        def more():
            return lang.cond(n == 0, lambda: ack(m - 1, 1), lambda: ack(m - 1, ack(m, n - 1)))

        return lang.cond(m == 0, lambda: n + 1, more)

    return ack


@scalar(6, 4, 2)
def tak(lang: Language) -> Any:
    @lang.rec_fn
    def tak(x, y, z):
        def inner():
            return tak(tak(x - 1, y, z), tak(y - 1, z, x), tak(z - 1, x, y))

        return lang.cond(y >= x, lambda: z, inner)

    return tak


@scalar(30)
def primes(lang: Language) -> Any:
    """How many primes there are up to n: a function of scalars calls another one."""

    @lang.rec_fn
    def has_divisor(n, d):
        return lang.cond(
            d * d > n,
            lambda: False,
            lambda: lang.cond(n % d == 0, lambda: True, lambda: has_divisor(n, d + 1)),
        )

    @lang.rec_fn
    def primes(n):
        def more():
            return primes(n - 1) + lang.cond(has_divisor(n, 2), lambda: 0, lambda: 1)

        return lang.cond(n < 2, lambda: 0, more)

    return primes


@scalar(252, 198)
def gcd(lang: Language) -> Any:
    @lang.rec_fn
    def gcd(a, b):
        return lang.cond(b == 0, lambda: a, lambda: gcd(b, a % b))

    return gcd


@scalar(27)
def collatz(lang: Language) -> Any:
    @lang.rec_fn
    def collatz(n):
        def step():
            return 1 + collatz(jnp.where(n % 2 == 0, n // 2, 3 * n + 1))

        return lang.cond(n <= 1, lambda: 0, step)

    return collatz


@scalar(9)
def even(lang: Language) -> Any:
    """Mutual recursion, and a result that is a truth value."""

    @lang.rec_fn
    def even(n):
        return lang.cond(n == 0, lambda: True, lambda: odd(n - 1))

    @lang.rec_fn
    def odd(n):
        return lang.cond(n == 0, lambda: False, lambda: even(n - 1))

    return even


@scalar(0.5, 9)
def horner(lang: Language) -> Any:
    """Floating-point arithmetic on an outer scalar."""

    @lang.rec_fn
    def horner(x, n):
        return lang.cond(n == 0, lambda: 1.0, lambda: 1.0 / (n + x * horner(x, n - 1)))

    return horner


@scalar(7)
def many_results(lang: Language) -> Any:
    """Results of three types; a branch passes a call's results on in another order."""

    @lang.rec_fn
    def many(n):
        def inner():
            a, b, flag = many(n - 1)
            c, d, _ = many(n - 3)
            return lang.cond(
                flag,
                lambda: (c + 1, b - d, jnp.logical_not(flag)),
                lambda: (a + c, b * 0.5, jnp.logical_not(flag)),
            )

        return lang.cond(n <= 0, lambda: (n, 0.25, n == 0), inner)

    return many


@scalar(forest(), 0)
def tree_statistics(lang: Language) -> Any:
    """Outer arrays read by index: sum, largest and depth."""

    @lang.rec_fn
    def statistics(tree, i):
        def node():
            a, b, c = statistics(tree, tree.left[i])
            d, e, f = statistics(tree, tree.right[i])
            return a + d, jnp.maximum(b, e), 1 + jnp.maximum(c, f)

        def leaf():
            return tree.token[i], tree.token[i] * 3, 0

        return lang.cond(tree.left[i] < 0, leaf, node)

    return statistics


@scalar(jnp.arange(12, dtype=jnp.int32).reshape(3, 4) % 5, 0, 0)
def grid_paths(lang: Language) -> Any:
    """A matrix read by two indices, negative ones too; a choice among three."""

    @lang.rec_fn
    def paths(grid, row, column):
        here = grid[row, column] + grid[-1, -column - 1]
        both = (row < 2) * 1 + (column < 3) * 2

        def down():
            return here + paths(grid, row + 1, column)

        def right():
            return here + paths(grid, row, column + 1)

        def best():
            return here + jnp.minimum(paths(grid, row + 1, column), paths(grid, row, column + 1))

        return lang.switch(both, [lambda: here, down, right, best])

    return paths


@scalar(5)
def call_in_a_predicate(lang: Language) -> Any:
    @lang.rec_fn
    def asks(n):
        def inner():
            return lang.cond(asks(n - 1) % 2 == 0, lambda: asks(n - 2) + n, lambda: asks(n - 3) * 2)

        return lang.cond(n <= 0, lambda: n + 3, inner)

    return asks


@scalar(4, jnp.array([1, 0], jnp.int32))
def tiny_arrays(lang: Language) -> Any:
    """Fibonacci numbers by a vector that a matrix of constants multiplies."""

    @lang.rec_fn
    def power(n, pair):
        return lang.cond(
            n == 0,
            lambda: pair,
            lambda: power(n - 1, jnp.stack([pair.sum(), pair[0]])) + jnp.flip(pair),
        )

    return power


@scalar(6, 2)
def merged_in_the_middle(lang: Language) -> Any:
    """Choices whose results go on into calls, arithmetic and other choices."""

    @lang.rec_fn
    def merged(n, k):
        def inner():
            step = lang.cond(n % 3 == 0, lambda: 2, lambda: 1)
            first = merged(n - step, k)
            scaled = lang.cond(first > 4, lambda: first - k, lambda: merged(n - 2, k + step))
            return merged(n - 3, scaled % 4) + 2 * scaled - step

        return lang.cond(n <= 0, lambda: k - n, inner)

    return merged


@scalar(9)
def chosen(lang: Language) -> Any:
    """Choices between values that were made before, by calls and by choices."""

    @lang.rec_fn
    def chosen(n):
        def inner():
            a, b = chosen(n - 1), chosen(n - 2)
            x = lang.cond(n > 4, lambda: a, lambda: b)
            y = lang.cond(n % 2 == 0, lambda: x, lambda: lang.cond(a > b, lambda: b, lambda: n))
            return lang.cond(y > 3, lambda: x, lambda: y) + chosen(n - 3)

        return lang.cond(n < 3, lambda: n * n, inner)

    return chosen


@scalar(12, 4)
def operations(lang: Language) -> Any:
    """Integer operations with and without constants, on either side."""

    @lang.rec_fn
    def operations(n, m):
        def inner():
            a = operations(n - 1, m ^ n)
            b = (7 - n) * a + (a // (m - 2)) - jax.lax.rem(a, jnp.int32(5))
            c = (b << 2) | (b >> 1) & ~m
            return jnp.clip(jnp.where(b > 100 - c, c, -b), -1000, 5000) + jnp.abs(a) ** 2 % 97

        return lang.cond(n == 0, lambda: m, inner)

    return operations


@scalar(10)
def no_choice_at_the_root(lang: Language) -> Any:
    """A function that is not recursive itself, with a constant argument and a constant result."""
    inner = fib(lang)

    @lang.rec_fn
    def outside(n):
        return inner(n) - inner(7), 3, n

    return outside


@scalar(9, 5)
def divisors(lang: Language) -> Any:
    """A loop that ends by its values, which calls and their arguments follow from."""

    @lang.rec_fn
    def divisors(n, x):
        def inner():
            a, _ = jax.lax.while_loop(
                lambda pair: pair[1] != 0, lambda pair: (pair[1], pair[0] % pair[1]), (n, x % 7 + 1)
            )
            left = divisors(n - 1, a + x)
            return lang.cond(a > 1, lambda: left - a, lambda: left + divisors(n - 2, x - a))

        return lang.cond(n < 2, lambda: x, inner)

    return divisors


@scalar(4, jnp.array([3, 1, 4, 1, 5], jnp.int32))
def loops_in_loops(lang: Language) -> Any:
    """Loops that are counted, by a number or by a value, and read an array; one has no turn."""

    @lang.rec_fn
    def nested(n, w):
        def row(i, total):
            below = jax.lax.fori_loop(0, i, lambda k, s: s + w[k] * n, total)
            return jax.lax.cond(below % 2 == 0, lambda: below, lambda: below + w[i])

        def inner():
            total = jax.lax.fori_loop(0, w.shape[0], row, 0)
            none = jax.lax.fori_loop(n, 2, lambda k, s: s * 2 + k, nested(n - 1, w))
            return total - none + w[n]

        return lang.cond(n == 0, lambda: w[0], inner)

    return nested


@scalar(6, jnp.float32(0.5), jnp.uint8(250))
def carried(lang: Language) -> Any:
    """What a loop carries changes places, wraps around, is an array, or stays as it is."""

    @lang.rec_fn
    def carried(n, x, small):
        def turn(state):
            k, a, b, flag, byte, pair, same = state
            return k + 1, b, a * 0.5 + same, ~flag, byte + jnp.uint8(k), pair[::-1] + a, same

        def inner():
            start = (0, x, x + 1, n > 2, small, jnp.stack([x, -x]), x)
            _, a, b, flag, byte, pair, same = jax.lax.while_loop(
                lambda state: (state[0] < n) | ((state[1] > 3) & (state[0] < 9)), turn, start
            )
            value, count = carried(n - 1, jnp.where(flag, a, b), byte)
            return value + pair[0] - pair[1] * same, count + byte

        return lang.cond(n == 0, lambda: (x, small), inner)

    return carried


@scalar(3, jnp.array([0.5, -1.5, 2.0, 4.0], jnp.float32))
def loops_over_arrays(lang: Language) -> Any:
    """Loops over the elements of an array, forward and backward, and of a small value."""

    @lang.rec_fn
    def over(n, w):
        def inner():
            def turn(total, x):
                k, value = x
                return total * 0.5 + value * k, None

            below = over(n - 1, w)
            up, _ = jax.lax.scan(turn, below, (jnp.arange(4), w))
            pair = jnp.stack([up, below, up - below])
            down, _ = jax.lax.scan(lambda a, x: (a - x * x, None), 1.0, pair, reverse=True)
            back, _ = jax.lax.scan(turn, down, (jnp.arange(4), w), reverse=True)
            return back + up

        return lang.cond(n == 0, lambda: w[n], inner)

    return over


@scalar(4, 3, 5)
def arguments_of_a_loop(lang: Language) -> Any:
    """Arguments that only a loop reads, in every turn and before others are computed."""

    @lang.rec_fn
    def turned(n, a, b):
        def turn(k, s):
            t = s * a + 1
            u = t * b - s
            v = u ^ (t + 7)
            return v - (u * t)

        def inner():
            return jax.lax.fori_loop(0, 5, turn, n) + turned(n - 1, n, n)

        return lang.cond(n < 1, lambda: 0, inner)

    return turned


@scalar(7)
def loops_between_calls(lang: Language) -> Any:
    """Loops that nobody reads, that read calls before them, and that calls stand beside."""

    @lang.rec_fn
    def between(n):
        def inner():
            first = between(n - 1)
            steps = jax.lax.fori_loop(0, 3, lambda k, s: s + k * n, 0)
            second = between(n - 2)
            jax.lax.fori_loop(0, n, lambda k, s: s - k, second)
            after = jax.lax.fori_loop(0, second & 3, lambda k, s: s ^ (first + k), steps)
            return lang.cond(after > 5, lambda: after - between(n - 3), lambda: first - second)

        return lang.cond(n < 3, lambda: n, inner)

    return between
