"""The name, the parameters and the static arguments of a function that a user gives."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from jaxrec._errors import SignatureError


def name_of(fun: Any) -> str:
    """The name of a function in messages and drawings: on one line, whatever it is."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    name = getattr(fun, "__name__", type(fun).__name__)
    return "".join(c if c.isprintable() else "?" for c in name)


def told_apart(value: Any) -> Any:
    """A static argument as a key: 1, 1.0 and True are equal, as 0.0 and -0.0, but differ."""
    if isinstance(value, tuple | frozenset):
        of = tuple if isinstance(value, tuple) else frozenset
        return type(value), of(map(told_apart, value))
    if isinstance(value, float | complex | np.inexact):
        return type(value), repr(value)  # also of NaN, which does not equal itself
    return type(value), value


def _listed(option: str, value: Any, of: type, title: str) -> list[Any]:
    """One thing, or several of them, as a list."""
    items = [value] if isinstance(value, of) else value
    if not isinstance(items, Iterable) or not all(isinstance(item, of) for item in items):
        raise SignatureError(
            f"{option}={value!r} of {title}: expected {of.__name__}, or a sequence of them"
        )
    return list(items)


def static_names(
    fun: Callable[..., Any], argnums: int | Iterable[int], argnames: str | Iterable[str]
) -> frozenset[str]:
    """The names of the static parameters, given by number and by name as for `jax.jit`.

    Raises:
        SignatureError: there is no such parameter.
    """
    names = list(inspect.signature(fun).parameters)
    title = name_of(fun)
    numbers = _listed("static_argnums", argnums, int, title)
    given = _listed("static_argnames", argnames, str, title)
    for number in numbers:
        if not -len(names) <= number < len(names):
            raise SignatureError(
                f"static_argnums={number} of {title}, which has {len(names)} parameters"
            )
    for name in given:
        if name not in names:
            raise SignatureError(
                f"static_argnames={name!r} of {title}, whose parameters are {', '.join(names)}"
            )
    return frozenset([names[k] for k in numbers] + given)
