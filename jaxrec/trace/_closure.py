"""What bodies close over, and whether it still is what it was when they were traced.

A trace holds the values that were there when it was made. Whoever assigns a variable anew, updates
a module or redefines a helper means the new value, as everywhere in Python.
"""

from __future__ import annotations

import collections
import dis
import functools
import inspect
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from types import (
    CellType,
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

from jaxrec.trace._instance import Definition, Identity

_MOST = 1000
"""Values inside of a variable that are looked at; of more, only the object that it holds."""

_BODIES = 1000
"""Bodies of which it is kept what they name."""

_MISSING = object()

_BY_IDENTITY = (jax.Array, np.ndarray, CodeType, type)
"""Types whose values are the same only if they are one object."""

_WHOLE = (*_BY_IDENTITY, bool, int, float, complex, str, bytes, type(None), np.generic)
"""Types whose values have nothing inside that could change."""

_MAPPINGS = (dict, MappingProxyType, collections.UserDict, collections.ChainMap)

_OPAQUE = (*_WHOLE, FunctionType, ModuleType)
"""Types whose values have no methods that count."""

Function = Callable[..., Any]

_Place = Mapping[str, Any] | CellType | Identity


class Closure:
    """What some functions close over, as it is now.

    That are the variables that they name, of enclosing functions and of their module; the values
    and the structure of pytrees there; and of objects, in those and in one another, of classes and
    of modules the attributes that they name. Helpers and methods of the same module that they name,
    also in pytrees, count as they do. Not looked at are default arguments, what is written into a
    NumPy array in place, and pytrees of more than `_MOST` values.

    Args:
        functions: those that were traced.
        objects: what they are bound to.
        is_passing: whether a value is gone when the functions have been traced. Functions and
            objects that hold such values are left out, if they were made by others of these: what
            they name besides, those name too.
    """

    def __init__(
        self,
        functions: Iterable[Function],
        objects: Sequence[Identity],
        is_passing: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        reached, attributes = _reached(functions, [x.value for x in objects])
        reached = _lasting(reached, attributes, is_passing)
        found = {(id(place), name): (place, name) for f in reached for place, name in _places(f)}
        for space in _spaces((_read(*place) for place in found.values()), attributes):
            data = [name for name in attributes if _is_data(vars(space).get(name, _MISSING))]
            found |= {(id(space), name): (vars(space), name) for name in data}
        own = ((x, name) for x in objects for name in attributes if _has(x.value, name))
        places = [*found.values(), *own]
        variables = [_Variable(place, name, attributes) for place, name in places]
        lasting = (v for v in variables if not v.is_of_object_with(is_passing))
        self._variables: list[_Variable] | None = [v for v in lasting if v.may_change]

    def holds(self) -> bool:
        """Whether the functions close over the same now."""
        variables = self._variables  # which another thread may let go of
        return variables is not None and all(map(_Variable.holds, variables))

    def let_go(self) -> None:
        """Forgets what they close over: what was traced of them is of no use from now on."""
        self._variables = None


def closure_of(
    definitions: Sequence[Definition], is_passing: Callable[[Any], bool] = lambda _: False
) -> Closure:
    """What some definitions close over, their static arguments included; see `Closure`."""
    functions = [inspect.unwrap(d.fun) for d in definitions]
    static = [value for d in definitions for _, value in d.static]
    objects = [value for value in static if isinstance(value, Identity)]
    return Closure([*functions, *filter(callable, static)], objects, is_passing)


class _Variable:
    """A variable, and what it held when it was looked at first.

    Args:
        place: the variables of a module, or of an object, or that of an enclosing function.
        name: its name in the module or the object.
        attributes: those of objects that are looked at.
    """

    def __init__(self, place: _Place, name: str, attributes: frozenset[str]) -> None:
        self._place, self._name, self._attributes = place, name, attributes
        self._value = _read(place, name)
        inside = _inside(self._value, attributes)
        # What differs from itself says nothing.
        comparable = _are_same(inside, _inside(self._value, attributes))
        self._inside = inside if comparable else [self._value]
        has_parts = len(self._inside) != 1 or self._inside[0] is not self._value
        self._is_whole = not has_parts and (
            self._value is _MISSING
            or isinstance(self._value, _WHOLE)
            or _own(self._value, "__wrapped__") is not None
        )

    @property
    def may_change(self) -> bool:
        """Whether there is such a variable: a name may be one of Python's own, or of a class."""
        if isinstance(self._value, ModuleType):
            return False
        return self._value is not _MISSING or isinstance(self._place, Identity)

    def is_of_object_with(self, is_passing: Callable[[Any], bool]) -> bool:
        """Whether it is of an object, and holds a value that is gone then, see `Closure`."""
        return isinstance(self._place, Identity) and any(map(is_passing, self._inside))

    def holds(self) -> bool:
        """Whether it holds the same now; of an object that is gone, nothing can change."""
        if isinstance(self._place, Identity) and self._place.value is None:
            return True
        value = _read(self._place, self._name)
        if self._is_whole:
            return _is_same(value, self._value)
        return _are_same(_inside(value, self._attributes), self._inside)


def _reached(
    functions: Iterable[Function], objects: Iterable[Any]
) -> tuple[list[FunctionType], frozenset[str]]:
    """The functions, what they wrap, and helpers and methods of their module that they name.

    Returns:
        The functions, and all names of attributes in them.
    """
    pending, things = list(functions), list(objects)
    found: dict[int, Any] = {}
    names, modules = {"__call__"}, set[int]()
    while pending:
        fun = pending.pop()
        found[id(fun)] = fun
        wrapped = _own(fun, "__wrapped__")
        pending += [x for x in (wrapped, *_behind(fun)) if x is not None]
        if isinstance(fun, FunctionType):
            modules = modules or {id(fun.__globals__)}
            names |= _names(fun.__code__)
            values = [_read(*place) for place in _places(fun)]
            values = [x for v in values for x in _inside(v, frozenset(names))]
            things += [x for x in values if not isinstance(x, _OPAQUE)]
            pending += [x for x in values if id(x) not in found and _is_of(modules, x)]
        pending = [x for x in pending if id(x) not in found]
        if not pending:
            kinds = dict.fromkeys(map(type, things))
            methods = [x for kind in kinds for x in _methods(kind, names)]
            pending = [x for x in methods if _is_of(modules, x) and id(x) not in found]
    return [x for x in found.values() if isinstance(x, FunctionType)], frozenset(names)


def _lasting(
    functions: Sequence[FunctionType],
    attributes: frozenset[str],
    is_passing: Callable[[Any], bool],
) -> list[FunctionType]:
    """Some functions less those, made by others of them, that lead to what is gone soon."""
    inner = {code for f in functions for code in _codes(f.__code__) if code is not f.__code__}
    holds = {
        id(f): [x for place in _places(f) for x in _inside(_read(*place), attributes)]
        for f in functions
        if f.__code__ in inner
    }
    gone = {k for k, values in holds.items() if any(map(is_passing, values))}
    while more := {
        k for k, values in holds.items() if k not in gone and any(_leads(x, gone) for x in values)
    }:
        gone |= more
    return [f for f in functions if id(f) not in gone]


def _leads(value: Any, functions: set[int]) -> bool:
    """Whether a value is one of some functions, or wraps or binds one."""
    while value is not None and id(value) not in functions:
        inner = (*_behind(value), _own(value, "__wrapped__"))[0]
        value = None if inner is value else inner
    return value is not None


def _methods(of: type, names: Container[str]) -> list[Any]:
    """What a class and those that it inherits from have under some names, or Python calls."""
    return [
        x
        for base in of.__mro__
        for name, x in vars(base).items()
        if name in names or (name.startswith("__") and name.endswith("__"))
    ]


def _behind(fun: Any) -> tuple[Any, ...]:
    """What a callable or a descriptor calls, where it is no function itself."""
    match fun:
        case functools.partial() | functools.cached_property():
            return (fun.func,)
        case MethodType() | staticmethod() | classmethod():
            return (fun.__func__,)
        case property():
            return (fun.fget,)
    return ()


def _is_of(modules: set[int], value: Any) -> bool:
    """Whether a value is a function of one of some modules, or wraps or binds one."""
    while value is not None:
        if isinstance(value, FunctionType) and id(value.__globals__) in modules:
            return True
        inner = (*_behind(value), _own(value, "__wrapped__"))[0]
        value = None if inner is value else inner
    return False


def _own(value: Any, name: str) -> Any:
    """An attribute, without running what an object does when it is asked for one."""
    return inspect.getattr_static(value, name, None)


def _places(fun: FunctionType) -> Iterator[tuple[_Place, str]]:
    """The variables that a function names and does not make."""
    yield from ((cell, "") for cell in fun.__closure__ or ())
    yield from ((fun.__globals__, name) for name in _global_names(fun.__code__))


def _spaces(values: Iterable[Any], names: frozenset[str]) -> list[ModuleType | type]:
    """The modules and classes among some values, and classes that these inherit from or name."""
    found: dict[int, ModuleType | type] = {}
    pending = [x for x in values if isinstance(x, ModuleType | type)]
    while pending:
        x = pending.pop()
        if id(x) in found:
            continue
        found[id(x)] = x
        if isinstance(x, type):
            inner = (vars(x).get(name) for name in names)
            pending += [*x.__bases__, *(y for y in inner if isinstance(y, type))]
    return list(found.values())


def _is_data(value: Any) -> bool:
    """Whether what a module or a class has is there and no part of a program."""
    return not (
        value is _MISSING
        or isinstance(value, ModuleType)
        or callable(value)
        or hasattr(type(value), "__get__")
    )


def _read(place: _Place, name: str) -> Any:
    if isinstance(place, Identity):
        return _attribute(place.value, name)
    if not isinstance(place, CellType):
        return place.get(name, _MISSING)
    try:
        return place.cell_contents
    except ValueError:  # nothing is assigned
        return _MISSING


def _inside(value: Any, attributes: frozenset[str]) -> list[Any]:
    """What may change in a variable: the values and the structure of a pytree, attributes."""
    found: list[Any] = []
    pending, seen = [value], set[int]()
    try:
        while pending:
            x = pending.pop()
            if isinstance(x, _BY_IDENTITY) or id(x) in seen:
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


def _has(value: Any, name: str) -> bool:
    """Whether an object has an attribute, or its class has one that its own may come before."""
    if _attribute(value, name) is not _MISSING:
        return True
    default = _of_class(type(value), name)
    is_method = isinstance(default, FunctionType | property) or _own(default, "__wrapped__")
    return not (default is None or is_method)


def _of_class(kind: type, name: str) -> Any:
    """What a class or one that it inherits from has under a name, as it stands there."""
    return next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)


def _attributes(value: Any, names: frozenset[str]) -> list[Any]:
    """The attributes of an object by these names, less those of functions."""
    if _own(value, "__wrapped__") is not None:
        return []
    return [x for name in sorted(names) if (x := _attribute(value, name)) is not _MISSING]


def _attribute(value: Any, name: str) -> Any:
    """What an object has under a name, which may be in a slot, or the data that its class has."""
    default = _of_class(type(value), name)
    if isinstance(default, MemberDescriptorType):
        return getattr(value, name, _MISSING)
    if default is None or hasattr(type(default), "__get__"):
        default = _MISSING
    try:
        return vars(value).get(name, default)
    except Exception:  # it has no dictionary, or hides it
        return default


def _are_same(now: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(now) == len(before) and all(map(_is_same, now, before))


def _is_same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    if type(now) is not type(before) or isinstance(now, _BY_IDENTITY):
        return False
    if isinstance(now, float | complex | np.inexact):  # of zeros the signs differ, and NaN is NaN
        return repr(now) == repr(before)
    try:
        return bool(now == before)
    except Exception:  # whatever the code of an object raises
        return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=_BODIES)
def _names(code: CodeType) -> frozenset[str]:
    return frozenset(name for inner in _codes(code) for name in inner.co_names)


@functools.lru_cache(maxsize=_BODIES)
def _global_names(code: CodeType) -> frozenset[str]:
    steps = (step for inner in _codes(code) for step in dis.get_instructions(inner))
    return frozenset(x.argval for x in steps if x.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
