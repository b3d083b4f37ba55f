"""What may change inside of a value: the parts of a pytree, the attributes of an object."""

from __future__ import annotations

import collections
import functools
import inspect
from collections.abc import Iterable
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


def inside(value: Any, attributes: frozenset[str]) -> list[Any]:
    """What may change in a variable: the values and the structure of a pytree, attributes."""
    found: list[Any] = []
    pending, seen = [value], set[int]()
    try:
        while pending:
            x = pending.pop()
            if isinstance(x, BY_IDENTITY) or id(x) in seen:
                found.append(x)
                continue
            level = _level(x)
            if level is not None:
                seen.add(id(x))
                found += [type(x), level[1]]
                pending += reversed(list(level[0]))
            else:
                found.append(x)
                if x is value or not isinstance(x, _OPAQUE):
                    seen.add(id(x))
                    pending += _attributes(x, attributes)
            if len(found) > _MOST:
                return [value]
    except Exception:  # whatever the code of an object raises
        return [value]
    return found


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
    return jax.tree_util.default_registry.flatten_one_level(value)


def has(value: Any, name: str) -> bool:
    """Whether an object has an attribute, or its class has one that its own may come before."""
    return attribute(value, name) is not MISSING or of_class(type(value), name) is not None


def of_class(kind: type, name: str) -> Any:
    """What a class or one that it inherits from has under a name, as it stands there."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _attributes(value: Any, names: frozenset[str]) -> list[Any]:
    """The attributes of an object by these names, less those of functions."""
    if own(value, "__wrapped__") is not None:
        return []
    return [x for name in sorted(names) if (x := attribute(value, name)) is not MISSING]


def attribute(value: Any, name: str) -> Any:
    """What an object has under a name, which may be in a slot, or the data that its class has."""
    default = of_class(type(value), name)
    if isinstance(default, MemberDescriptorType):
        return getattr(value, name, MISSING)
    if default is None or hasattr(type(default), "__get__"):
        default = MISSING
    try:
        return vars(value).get(name, default)
    except Exception:  # it has no dictionary, or hides it
        return default


def own(value: Any, name: str) -> Any:
    """An attribute, without running what an object does when it is asked for one."""
    return inspect.getattr_static(value, name, None)
