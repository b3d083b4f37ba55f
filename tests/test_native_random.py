"""Random scalar programs on the native machine, against plain Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import is_native
from zoo import JAXREC, PYTHON

OPERATIONS = (
    jnp.add,
    jnp.subtract,
    jnp.multiply,
    jnp.maximum,
    jnp.bitwise_xor,
    lambda a, b: jnp.where(a < b, a, -b),
    lambda a, b: a // (b % 5 + 1),
    lambda a, b: jax.lax.shift_right_arithmetic(a, b & 7),
)

expressions = st.recursive(
    st.sampled_from(["n", "x"]) | st.integers(-3, 3),
    lambda inner: (
        st.tuples(st.sampled_from(OPERATIONS), inner, inner)
        | st.tuples(st.integers(1, 2), st.integers(0, 1), inner)
        | st.tuples(st.booleans(), inner, st.integers(-2, 4), inner, inner)
        | st.tuples(st.just("loop"), st.integers(0, 2) | st.sampled_from(["n", "x"]), inner, inner)
    ),
    max_leaves=6,
)
"""Operations, calls with a smaller n of which one result is taken, choices, perhaps of values that
are made before, and loops.
"""


def evaluate(expression: Any, lang: Any, f: Any, n: Any, x: Any) -> Any:
    """A random expression of n, x and calls of f."""

    def value(inner: Any, x: Any = x) -> Any:
        return evaluate(inner, lang, f, n, x)

    match expression:
        case "n" | "x":
            return n if expression == "n" else x
        case int():
            return jnp.int32(expression)
        case (int(step), int(which), inner):
            return f(n - step, value(inner))[which]
        case (operation, a, b):
            return operation(value(a), value(b))
        case ("loop", turns, a, b):
            end = turns if isinstance(turns, int) else value(turns) & 3
            return lang.fori_loop(0, end, lambda k, y: value(b, y ^ k), value(a))
        case (False, test, bound, a, b):
            return lang.cond(value(test) < bound, lambda: value(a), lambda: value(b))
        case (_, test, bound, a, b):
            made = value(a), value(b)
            return lang.cond(value(test) < bound, lambda: made[0], lambda: made[1])


def random_function(lang: Any, first: Any, second: Any) -> Any:
    @lang.rec_fn
    def random(n, x):
        def inner():
            a = evaluate(first, lang, random, n, x)
            return a, evaluate(second, lang, random, n, a ^ x)

        return lang.cond(n <= 0, lambda: (x, n), inner)

    return random


@settings(max_examples=25, deadline=None, derandomize=True)
@given(expressions, expressions)
def test_random_programs(first, second):
    native, python = (random_function(lang, first, second) for lang in (JAXREC, PYTHON))
    assert is_native(native, 1, 2)
    want = [python(jnp.int32(n), jnp.int32(5)) for n in range(4)]
    for lanes in (4, 300):  # one after another, and in lockstep
        got = jax.vmap(lambda n: native(n, 5))(jnp.arange(lanes) % 4)
        np.testing.assert_array_equal(got, np.tile(np.transpose(want), lanes // 4))
