"""What may change inside of a value: the parts of a pytree, the attributes of an object."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterable, Mapping
from types import (
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import jax
import numpy as np

from jaxrec.trace._libraries import is_library, is_standard

MISSING = object()
"""What stands where there is no variable and no attribute."""

BY_IDENTITY = (jax.Array, np.ndarray, CodeType, type)
"""Types whose values are the same only if they are one object."""

WHOLE = (*BY_IDENTITY, bool, int, float, complex, str, bytes, type(None), np.generic)
"""Types whose values have nothing inside that could change."""

_MOST = 1000
"""Values inside of a variable that are looked at; of more, only the object that it holds."""

_MAPPINGS = (dict, MappingProxyType, collections.UserDict, collections.ChainMap)

_OPAQUE = (*WHOLE, FunctionType, ModuleType)
"""Types whose values have no attributes that count."""


class Look:
    """A look at values and what is inside of them, each looked at once.

    Args:
        attributes: the names of the attributes that are looked at.
    """

    def __init__(self, attributes: frozenset[str]) -> None:
        self._attributes = attributes
        self._seen: dict[int, tuple[Any, list[Any]]] = {}
        self._of_classes: dict[type, tuple[frozenset[str], bool]] = {}

    def inside(self, value: Any) -> list[Any]:
        """What may change in a value: itself, or its parts and structure, and attributes.

        Code of a library, which is not followed, may read all attributes of what it belongs to. Of
        what has very many parts it is the value alone.
        """
        seen = self._seen.get(id(value))
        if seen is None:
            try:
                seen = value, self._inside(value)
            except Exception:  # whatever the code of an object raises
                seen = value, [value]
            self._seen[id(value)] = seen
        return seen[1]

    def _inside(self, value: Any) -> list[Any]:
        found: list[Any] = []
        pending, seen = [(value, False)], dict[int, bool]()
        while pending:
            x, is_read = pending.pop()  # whether code of a library may read all that it has
            if isinstance(x, WHOLE) or seen.get(id(x)) in (True, is_read):
                found.append(x)
                continue
            is_read = seen[id(x)] = is_read or self._of_class(type(x))[1]
            level, is_open = _level(x), x is value or not isinstance(x, _OPAQUE)
            if level is not None:
                structure, parts = [type(x), level[1]], list(level[0])
            else:
                structure, parts = [x], self._parts(x, is_read) if is_open else []
            if len(found) + len(pending) + len(parts) > _MOST:
                structure, parts = [x], []
            found += structure
            pending += ((part, is_read) for part in reversed(parts))
        return found

    def _parts(self, value: Any, are_all: bool) -> list[Any]:
        """The attributes of an object, less those of functions; all, if it makes some up."""
        if own(value, "__wrapped__") is not None:
            return []
        names = self._of_class(type(value))[0].union(_variables(value))
        if not are_all and of_class(type(value), "__getattr__") is None:
            names &= self._attributes
        return [x for name in sorted(names) if (x := attribute(value, name)) is not MISSING]

    def _of_class(self, kind: type) -> tuple[frozenset[str], bool]:
        """The attributes that a class has for its objects, and whether a library has made one."""
        if kind not in self._of_classes:
            has = (self._attributes.intersection(vars(base)) for base in kind.__mro__)
            names = frozenset[str]().union(*has)
            of_library = any(_is_code_of_library(of_class(kind, name)) for name in names)
            self._of_classes[kind] = names, of_library
        return self._of_classes[kind]


def _is_code_of_library(value: Any) -> bool:
    """Whether something in a class is a method or a property that a library makes.

    Objects of Python's own modules, as loggers, know of very much and seldom of arrays.
    """
    code = value.fget if isinstance(value, property) else value
    if not isinstance(code, FunctionType):
        return False
    return is_library(code.__globals__) and not is_standard(code.__globals__)


def _level(value: Any) -> tuple[Iterable[Any], Any] | None:
    """The parts of a value and how it is structured, or None."""
    if isinstance(value, _MAPPINGS):  # in their own order, which JAX does not keep
        return value.values(), tuple(value)
    if isinstance(value, list | collections.deque):
        return value, None
    if isinstance(value, FunctionType):
        return (value.__code__,), value
    if isinstance(value, MethodType):
        return (value.__func__, value.__self__), None
    if isinstance(value, functools.partial):
        return (value.func, *value.args, *value.keywords.values()), tuple(value.keywords)
    if isinstance(value, staticmethod | classmethod):
        return (value.__func__,), value
    if isinstance(value, property):
        return (value.fget,), value
    return jax.tree_util.default_registry.flatten_one_level(value)


def has(value: Any, name: str) -> bool:
    """Whether an object has an attribute, or its class has one that its own may come before."""
    return attribute(value, name) is not MISSING or of_class(type(value), name) is not None


def of_class(kind: type, name: str) -> Any:
    """What a class or one that it inherits from has under a name, as it stands there."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def attribute(value: Any, name: str) -> Any:
    """What an object has under a name, which may be in a slot, or the data that its class has."""
    default = of_class(type(value), name)
    if isinstance(default, MemberDescriptorType):
        return getattr(value, name, MISSING)
    if default is None or hasattr(type(default), "__get__"):
        default = MISSING
    return _variables(value).get(name, default)


def _variables(value: Any) -> Mapping[str, Any]:
    """The variables of an object; none if it has no dictionary, or hides it."""
    try:
        found = vars(value)
    except Exception:  # whatever the code of an object raises
        return {}
    return found if isinstance(found, dict | MappingProxyType) else {}


def own(value: Any, name: str) -> Any:
    """An attribute as it stands in an object or its class, not one that is made when asked for."""
    if isinstance(value, type):
        return of_class(value, name)
    found = _variables(value).get(name)
    return of_class(type(value), name) if found is None else found
