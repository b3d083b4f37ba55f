"""A recursive-descent evaluator of arithmetic expressions: mutual recursion over tokens.

    expression -> term { ("+" | "-") term }
    term       -> factor { ("*" | "/") factor }
    factor     -> number | "(" expression ")" | "-" factor

Where a part ends is a result of the call that reads it, and decides what the caller reads next. The
numbers are arrays, so that an expression has derivatives with respect to them.
"""

import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrec as jr

NUMBER, PLUS, MINUS, TIMES, OVER, OPEN, CLOSE, END = range(8)
_SIGNS = {"+": PLUS, "-": MINUS, "*": TIMES, "/": OVER, "(": OPEN, ")": CLOSE}


class Tokens(NamedTuple):
    """An expression: the kind of every token, and the value of those that are numbers."""

    kind: jax.Array
    value: jax.Array


class Read(NamedTuple):
    """What has been read: its value, and the position behind it."""

    value: jax.Array
    end: jax.Array


_READ = Read._make(jax.ShapeDtypeStruct((), dtype) for dtype in (jnp.float32, jnp.int32))


def tokenize(text: str, length: int) -> Tokens:
    """The tokens of an expression, with ends behind them up to `length`."""
    words = re.findall(r"\d+\.?\d*|[-+*/()]", text)
    kind = np.full(length, END, np.int32)
    value = np.zeros(length, np.float32)
    kind[: len(words)] = [_SIGNS.get(word, NUMBER) for word in words]
    value[: len(words)] = [0.0 if word in _SIGNS else float(word) for word in words]
    return Tokens(jnp.asarray(kind), jnp.asarray(value))


@jr.rec_fn(out=_READ)
def expression(tokens: Tokens, at: jax.Array) -> Read:
    """Reads an expression."""
    first = term(tokens, at)
    return more_terms(tokens, first.end, first.value)


@jr.rec_fn(out=_READ)
def more_terms(tokens: Tokens, at: jax.Array, value: jax.Array) -> Read:
    """Adds and subtracts the terms that follow."""

    def read(sign: float) -> Read:
        following = term(tokens, at + 1)
        return more_terms(tokens, following.end, value + sign * following.value)

    def other() -> Read:
        return jr.cond(tokens.kind[at] == MINUS, lambda: read(-1.0), lambda: Read(value, at))

    return jr.cond(tokens.kind[at] == PLUS, lambda: read(1.0), other)


@jr.rec_fn(out=_READ)
def term(tokens: Tokens, at: jax.Array) -> Read:
    """Reads a term."""
    first = factor(tokens, at)
    return more_factors(tokens, first.end, first.value)


@jr.rec_fn(out=_READ)
def more_factors(tokens: Tokens, at: jax.Array, value: jax.Array) -> Read:
    """Multiplies by and divides by the factors that follow."""

    def times() -> Read:
        following = factor(tokens, at + 1)
        return more_factors(tokens, following.end, value * following.value)

    def over() -> Read:
        following = factor(tokens, at + 1)
        return more_factors(tokens, following.end, value / following.value)

    def other() -> Read:
        return jr.cond(tokens.kind[at] == OVER, over, lambda: Read(value, at))

    return jr.cond(tokens.kind[at] == TIMES, times, other)


@jr.rec_fn(out=_READ)
def factor(tokens: Tokens, at: jax.Array) -> Read:
    """Reads a number, an expression in brackets, or a factor with a sign."""

    def bracket() -> Read:
        inner = expression(tokens, at + 1)
        return Read(inner.value, inner.end + 1)

    def negative() -> Read:
        inner = factor(tokens, at + 1)
        return Read(-inner.value, inner.end)

    def other() -> Read:
        return jr.cond(tokens.kind[at] == MINUS, negative, bracket)

    def number() -> Read:
        return Read(tokens.value[at], at + 1)

    return jr.cond(tokens.kind[at] == NUMBER, number, other)
