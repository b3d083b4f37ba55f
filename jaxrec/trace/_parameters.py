"""The name, the parameters and the static arguments of a function that a user gives."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
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
    items = [value] if isinstance(value, of) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(item, of) for item in items):
        raise SignatureError(
            f"{option}={value!r} of {title}: expected {of.__name__}, or a sequence of them"
        )
    return items


def signature_of(fun: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function.

    Raises:
        SignatureError: Python does not know them.
    """
    try:
        return inspect.signature(fun)
    except ValueError:
        raise SignatureError(
            f"Python does not know the parameters of {name_of(fun)}, which is not written in it. "
            "Decorate a function that calls it instead."
        ) from None


def static_names(fun: Callable[..., Any], **options: Any) -> dict[str, frozenset[str]]:
    """The names of the static parameters that each option gives.

    Args:
        fun: the function.
        **options: `static_argnums` and `static_argnames`, as for `jax.jit`; those that are given.

    Raises:
        SignatureError: there is no such parameter.
    """
    names, title = list(signature_of(fun).parameters), name_of(fun)
    return {
        option: frozenset(_STATIC[option](option, value, names, title))
        for option, value in options.items()
    }


def _numbered(option: str, value: Any, names: list[str], title: str) -> Iterator[str]:
    for number in _listed(option, value, int, title):
        if not -len(names) <= number < len(names):
            raise SignatureError(f"{option}={number} of {title}, which has {len(names)} parameters")
        yield names[number]


def _named(option: str, value: Any, names: list[str], title: str) -> Iterator[str]:
    for name in _listed(option, value, str, title):
        if name not in names:
            raise SignatureError(
                f"{option}={name!r} of {title}, whose parameters are {', '.join(names)}"
            )
        yield name


_STATIC = {"static_argnums": _numbered, "static_argnames": _named}
