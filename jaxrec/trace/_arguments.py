"""What calls of a function give for its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from jaxrec._errors import SignatureError
from jaxrec.trace._parameters import name_of, signature_of


class Arguments:
    """The arguments of calls of a function, by the names of its parameters.

    Where a method is meant, `args` begin with the object that it is bound to.

    Attributes:
        signature: of the function.
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.signature = signature_of(fun)
        self._name = name_of(fun)
        kinds = {parameter.kind for parameter in self.signature.parameters.values()}
        by_position = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        self._positional = tuple(self.signature.parameters) if kinds <= by_position else None

    def by_name(self, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call, defaults included.

        Raises:
            SignatureError: the function has other parameters.
        """
        names = self._positional
        if names is not None and not kwargs and len(args) == len(names):  # as in most calls
            return dict(zip(names, args, strict=True))
        try:
            given = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            got = ", ".join(["_"] * len(args) + [f"{name}=_" for name in kwargs])
            raise SignatureError(
                f"{self._name}{self.signature} is called as {self._name}({got}): {error}"
            ) from None
        given.apply_defaults()
        return given.arguments

    def names(self, args: Sequence[Any]) -> list[str]:
        """The parameters for which a call gives arguments by position."""
        return list(self.signature.bind_partial(*args).arguments)

    def by_position(self, args: Sequence[Any], values: dict[str, Any]) -> tuple[Any, ...]:
        """Values of parameters in the places of `args`; None for those that have none."""
        found = {name: values.get(name) for name in self.names(args)}
        return inspect.BoundArguments(self.signature, found).args  # type: ignore[arg-type]

    def axes(
        self, bound: Sequence[Any], args: Sequence[Any], in_axes: Any, mapped: Sequence[str]
    ) -> tuple[Any, ...]:
        """Of the parameters that can be mapped their axes.

        Args:
            bound: the object that a method is bound to.
            args: of the call, without it.
            in_axes: of these, as for `jax.vmap`.
            mapped: names of parameters that are not static.

        Raises:
            SignatureError: axes that are none, or not those of the arguments.
        """
        if isinstance(in_axes, int):
            given = self.names((*bound, *args))[len(bound) :]
            return tuple(in_axes if name in given else None for name in mapped)
        if not isinstance(in_axes, tuple | list):
            raise SignatureError(
                f"in_axes is {in_axes!r} of type {type(in_axes).__name__}, expected an integer, or "
                f"a tuple with an entry for each argument of {self._name}"
            )
        if len(in_axes) != len(args):
            raise SignatureError(
                f"in_axes has {len(in_axes)} entries for the {len(args)} arguments of {self._name}"
            )
        unmapped = (None,) * len(bound)
        axes = self.signature.bind_partial(*unmapped, *in_axes).arguments
        for name, axis in axes.items():
            if name not in mapped and axis is not None:
                raise SignatureError(
                    f"in_axes maps the static argument {name} of {self._name}, which has no axes"
                )
        return tuple(axes.get(name) for name in mapped)

    def check_hashable(self, static: dict[str, Any]) -> None:
        """Checks that static arguments can be compared.

        Raises:
            SignatureError: one cannot.
        """
        for name, value in static.items():
            try:
                hash(value)
            except TypeError:
                is_array = isinstance(value, jax.Array | np.ndarray)
                advice = (
                    "an array is known only when the program runs: leave it out of the static "
                    "arguments, or pass a number of Python"
                    if is_array
                    else "pass a tuple for a list"
                )
                raise SignatureError(
                    f"static argument {name} of {self._name} is of type {type(value).__name__}, "
                    "which is not hashable; static arguments are compared to find the traced "
                    f"program, so {advice}"
                ) from None
