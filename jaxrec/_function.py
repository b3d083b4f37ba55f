"""What a recursive function is as an object of Python: compared, copied, pickled, a method."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self

from jaxrec.primitives._options import Options
from jaxrec.trace._arguments import Arguments
from jaxrec.trace._parameters import name_of


class Function:
    """A function with options, which behaves as functions do where it is no call."""

    __signature__: inspect.Signature  # of a bound method

    def __init__(
        self, fun: Callable[..., Any], options: Options, static: Mapping[str, frozenset[str]]
    ) -> None:
        """`static`: by option the names of the static arguments it gives."""
        self._fun, self._options, self._static_by = fun, options, static
        self._bound: tuple[Any, ...] = ()
        self._taken_from: Self | None = None  # of what a class or its object gives, what it has
        self._owner: type | None = None  # the class that gave it as a plain function
        self._changed_from: tuple[Self, dict[str, Any]] | None = None
        self._arguments = Arguments(fun)

    def __repr__(self) -> str:
        return f"<rec_fn {self._name}>"

    @property
    def _name(self) -> str:
        return name_of(self._fun)

    def __eq__(self, other: object) -> bool:
        """Whether two are one function, or one function as one class or one object gives it."""
        if not isinstance(other, Function) or self._taken_from is None:
            return self is other
        return self._origin == other._origin

    def __hash__(self) -> int:
        return object.__hash__(self) if self._taken_from is None else hash(self._origin)

    @property
    def _origin(self) -> tuple[Any, ...]:
        return id(self._taken_from), self._owner, *map(id, self._bound)

    def __copy__(self) -> Self:
        return self  # as a function

    def __deepcopy__(self, memo: Any) -> Self:
        return self  # which is no part of the object that holds it

    def __reduce__(self) -> str | tuple[Any, ...]:
        """It is pickled by its name, as a function is, and by the options that it was given.

        One that a function made has no name by which others find it: it is what it was made of, for
        whoever pickles functions by their code. It names itself, so that is filled in afterwards.
        """
        module = sys.modules.get(getattr(self._fun, "__module__", ""))
        holder = (*self._bound, self._owner or module)[0]
        is_there = getattr(getattr(holder, self._name, None), "_options", None) is self._options
        if self._changed_from is not None and not is_there:
            return _with_options, self._changed_from
        if self._bound:
            return getattr, (*self._bound, self._name)
        if self._owner is not None:
            return getattr, (self._owner, self._name)
        name = getattr(self._fun, "__qualname__", self._name)
        if "<locals>" not in name:
            return name
        return object.__new__, (type(self),), (self._fun, self._options, self._static_by)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.__init__(*state)

    def _copy(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        return other

    def __get__(self, instance: Any, owner: type | None = None) -> Self:
        method = self._copy()
        method._taken_from = self
        if instance is None:
            method._owner = owner
        else:
            method._bound = (instance,)
            method.__signature__ = self._of_method
        return method

    @functools.cached_property
    def _of_method(self) -> inspect.Signature:
        """The signature less the object that a method is bound to."""
        given = list(self._arguments.signature.parameters.values())
        has_own = given and given[0].kind is not inspect.Parameter.VAR_POSITIONAL
        return self._arguments.signature.replace(parameters=given[1:] if has_own else given)

    def _belongs_to(self, first: Any) -> bool:
        """Whether a first argument is the object, or the class, whose method this is.

        That is where a class gave it as a plain function, and where `classmethod` does not ask it
        for a method: from Python 3.13 on.
        """
        if not isinstance(first, type):
            return self._owner is not None and isinstance(first, self._owner)
        own = (x for base in first.__mro__ for x in vars(base).values())
        functions = (x.__func__ for x in own if isinstance(x, classmethod))
        return any(isinstance(f, Function) and f._fun is self._fun for f in functions)


def _with_options(fun: Any, options: dict[str, Any]) -> Any:
    return fun.with_options(**options)
