"""The options of `rec_fn`."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxrec._core import MOST_WORKERS
from jaxrec._errors import SignatureError
from jaxrec._host_options import is_count


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of `rec_fn` that an invocation looks at."""

    out: Any = None
    max_calls: int | None = None
    policy: Callable[..., bool] | None = None
    memo: bool = False
    workers: int = 0

    @functools.cached_property
    def traced_by(self) -> Any:
        """What a trace depends on, as a key."""
        if callable(self.out) and not isinstance(self.out, jax.ShapeDtypeStruct):
            return self.memo, self.out
        leaves, tree = jax.tree.flatten(self.out)
        return self.memo, tree, tuple((tuple(x.shape), x.dtype) for x in leaves)

    def checked(self, name: str) -> Options:
        """These options, numbers of NumPy made those of Python.

        Raises:
            SignatureError: one of the function `name` has a value that means nothing.
        """
        _check(name, vars(self))
        calls = None if self.max_calls is None else int(self.max_calls)
        return dataclasses.replace(self, max_calls=calls, workers=int(self.workers))

    def replace(self, **changed: Any) -> Options:
        """These options with some changed."""
        known = [f.name for f in dataclasses.fields(self)]
        for name in changed:
            if name not in known:
                known += ["static_argnums", "static_argnames"]
                raise SignatureError(f"option {name!r}: expected one of {', '.join(known)}")
        return dataclasses.replace(self, **changed)


def _check(name: str, options: dict[str, Any]) -> None:
    """Checks the options of the function `name`.

    Raises:
        SignatureError: one has a value that means nothing.
    """
    for option, value in options.items():
        accepted, expected = _ACCEPTED.get(option, (None, ""))
        if accepted is not None and not accepted(value):
            raise SignatureError(f"{option}={value!r} of {name}: expected {expected}")


def _is_type(value: Any) -> bool:
    leaves = jax.tree.leaves(value)
    if isinstance(value, type) and not dataclasses.is_dataclass(value):  # such as jnp.float32
        return False
    return callable(value) or all(hasattr(x, "shape") and hasattr(x, "dtype") for x in leaves)


_MOST_CALLS = 10**18
"""Calls that the machine of scalar recursion can count."""

_ACCEPTED: dict[str, tuple[Callable[[Any], bool], str]] = {
    "max_calls": (
        lambda value: value is None or is_count(value, 1, _MOST_CALLS),
        "a positive integer up to 10**18, a bound on the calls of one invocation, or None",
    ),
    "workers": (
        lambda value: is_count(value, 0, MOST_WORKERS),
        f"a number of threads up to {MOST_WORKERS:,}, or 0: jaxrec chooses",
    ),
    "memo": (lambda value: isinstance(value, bool), "True or False"),
    "policy": (
        lambda value: value is None or callable(value),
        "a function as of jax.checkpoint_policies, or None",
    ),
    "out": (_is_type, "a pytree of jax.ShapeDtypeStruct, or a function that gives it"),
}
"""What an option may be, and how to say it."""
