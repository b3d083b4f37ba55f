"""What runs where some functions run: helpers, methods and classes that they lead to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import jax

from jaxrec.trace._code import chains, codes, global_names, names
from jaxrec.trace._instance import Identity
from jaxrec.trace._libraries import is_library, is_of_library
from jaxrec.trace._parts import MISSING, WHOLE, Look, attribute, of_class, own

Place = Mapping[str, Any] | CellType | Identity
"""Where a variable is: those of a module or of a class, one of a function, or an object."""

_MAKING = frozenset(("__init__", "__new__", "__del__"))
"""Methods that run where an object is made, or goes."""


class Reached(NamedTuple):
    """What some functions lead to.

    Attributes:
        functions: those, what they wrap, and helpers and methods that they name.
        shared: attributes, by place and name, of modules and classes that they name or have
            objects of; those of a class may be of one that it inherits from.
        attributes: all names of attributes in them.
    """

    functions: list[FunctionType]
    shared: list[tuple[Place, str]]
    attributes: frozenset[str]


def reached(
    functions: Iterable[Callable[..., Any]], objects: Iterable[Any], classes: Iterable[type]
) -> Reached:
    """What functions lead to that are called with some objects, and objects of some classes.

    Functions of libraries are not followed, but for those of the module of the first one.
    """
    search = _Search(functions, objects, classes)
    while search.pending or search.is_new:
        if search.pending:
            search.follow()
        else:
            search.look()
    return search.result()


class _Search:
    """What was found so far, and the functions that are still to be followed."""

    def __init__(
        self,
        functions: Iterable[Callable[..., Any]],
        objects: Iterable[Any],
        classes: Iterable[type],
    ) -> None:
        self.pending = list(functions)
        self._objects, self._passed = list(objects), list(classes)
        self._found: dict[int, Any] = {}
        self._functions: list[FunctionType] = []
        self._variables: dict[Any, tuple[Place, str]] = {}
        self._attributes = frozenset({"__call__"})
        self._values: list[Any] = []
        self._classes: list[type] = []
        self.is_new = True

    def follow(self) -> None:
        """Takes the functions that were found last, and looks at the variables that they name."""
        more = [x for x in self._take() if isinstance(x, FunctionType)]
        self._functions += more
        self._attributes = self._attributes.union(*(names(f.__code__) for f in more))
        named = {(id(place), name): (place, name) for f in more for place, name in places(f)}
        self._variables |= named
        look = Look(self._attributes)
        self._find(x for at in named.values() for x in look.inside(read(*at)))
        self.is_new = True

    def look(self) -> None:
        """Looks at all variables, objects and classes, for the attributes that are named by now."""
        look, before = Look(self._attributes), self._classes
        held = [read(*at) for at in self._variables.values()]
        held += [x for kind in before for name, x in vars(kind).items() if name in self._attributes]
        self._values = [x for v in (*held, *self._objects) for x in look.inside(v)]
        self._classes = _classes((*self._values, *self._passed), self._attributes)
        named = {x for x in self._values if isinstance(x, type)}
        methods = (
            x for kind in self._classes for x in _methods(kind, self._attributes, kind in named)
        )
        self._find((*self._values, *methods))
        self.is_new = len(self._classes) > len(before)

    def result(self) -> Reached:
        """What was found."""
        modules = {id(x): x for x in self._values if isinstance(x, ModuleType)}
        spaces: list[Mapping[str, Any]] = [vars(x) for x in modules.values()]
        data: list[tuple[Place, str]] = [
            (space, name)
            for space in spaces
            if not is_library(space)
            for name in self._attributes.intersection(space)
        ]
        data += [
            (vars(kind), name)
            for kind in self._classes
            for name in self._attributes
            if of_class(kind, name) is not None
        ]
        return Reached(self._functions, data, self._attributes)

    def _take(self) -> Iterator[Any]:
        """What is still to be followed, with what it wraps or binds."""
        while self.pending:
            fun = self.pending.pop()
            if id(fun) not in self._found:
                self._found[id(fun)] = fun
                self.pending += [
                    x for x in (own(fun, "__wrapped__"), *behind(fun)) if x is not None
                ]
                yield fun

    def _find(self, values: Iterable[Any]) -> None:
        home = self._functions[0].__globals__ if self._functions else {}
        self.pending = [x for x in values if id(x) not in self._found and _is_followed(x, home)]


def places(fun: FunctionType) -> Iterator[tuple[Place, str]]:
    """The variables that a function names and does not make, those of modules included."""
    cells = dict(zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True))
    yield from ((cell, "") for cell in cells.values())
    yield from ((fun.__globals__, name) for name in global_names(fun.__code__))
    for root, *rest in chains(fun.__code__):
        value = read(cells[root], "") if root in cells else read(fun.__globals__, root)
        for name in rest:
            if not isinstance(value, ModuleType) or is_library(vars(value)):
                break
            yield vars(value), name
            value = read(vars(value), name)


def read(place: Place, name: str) -> Any:
    """What a variable holds."""
    if isinstance(place, Identity):
        return attribute(place.value, name)
    if not isinstance(place, CellType):
        return place.get(name, MISSING)
    try:
        return place.cell_contents
    except ValueError:  # nothing is assigned
        return MISSING


def lasting(
    functions: Sequence[FunctionType],
    attributes: frozenset[str],
    is_passing: Callable[[Any], bool],
) -> list[FunctionType]:
    """Some functions less those, made by others of them, that lead to what is gone soon."""
    inner = {code for f in functions for code in codes(f.__code__) if code is not f.__code__}
    look = Look(attributes)
    holds = {
        id(f): [x for place in places(f) for x in look.inside(read(*place))]
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
    return any(id(x) in functions for x in _inward(value))


def _classes(values: Iterable[Any], attributes: frozenset[str]) -> list[type]:
    """The classes among values and of values, with those that they inherit from or name."""
    found: dict[type, None] = {}
    pending = list(filter(None, map(_class, values)))
    while pending:
        kind = pending.pop()
        if kind not in found and not is_of_library(kind):
            found[kind] = None
            inner = (vars(kind).get(name) for name in attributes)
            pending += [*kind.__bases__, *(x for x in inner if isinstance(x, type))]
    return list(found)


def _class(value: Any) -> type | None:
    if isinstance(value, type):
        return value
    return None if isinstance(value, (*WHOLE, FunctionType, ModuleType)) else type(value)


def _methods(of: type, attributes: frozenset[str], is_named: bool) -> list[Any]:
    """What a class has under some names, or Python calls; of one not named, that of its objects."""
    return [
        x
        for name, x in vars(of).items()
        if name in attributes
        or (name.startswith("__") and name.endswith("__") and (is_named or name not in _MAKING))
    ]


def behind(fun: Any) -> tuple[Any, ...]:
    """What a callable or a descriptor calls, where it is no function itself."""
    match fun:
        case functools.partial() | functools.partialmethod() | functools.cached_property():
            return (fun.func,)
        case jax.custom_vjp():
            return tuple(filter(None, (fun.fwd, fun.bwd)))
        case jax.custom_jvp():
            return tuple(filter(None, (fun.jvp,)))
        case MethodType() | staticmethod() | classmethod():
            return (fun.__func__,)
        case property():
            return (fun.fget,)
    return ()


def _inward(value: Any) -> Iterator[Any]:
    """A value, what it wraps or binds, what that does, and so on."""
    while value is not None:
        yield value
        inner = (*behind(value), own(value, "__wrapped__"))[0]
        value = None if inner is value else inner


def _is_followed(value: Any, home: Mapping[str, Any]) -> bool:
    """Whether a value is a function of the user's or of a module, or wraps or binds one."""
    spaces = (x.__globals__ for x in _inward(value) if isinstance(x, FunctionType))
    return any(space is home or not is_library(space) for space in spaces)
