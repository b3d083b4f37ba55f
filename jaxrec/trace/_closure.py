"""What bodies close over, and whether it still is what it was when they were traced.

A trace holds the values that were there when it was made. Whoever assigns a variable anew, updates
a module or redefines a helper means the new value, as everywhere in Python.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import jax

from jaxrec.trace._instance import Identity

_MOST = 1000
"""Values inside of a variable that are looked at; of more, only the object that it holds."""

_MISSING = object()

Function = Callable[..., Any]

_Place = Mapping[str, Any] | CellType | Identity


class Closure:
    """What some functions close over, as it is now.

    That are the variables that they name, of enclosing functions and of their module, with the
    leaves of pytrees and those attributes of other objects that they name. A helper of their module
    that they name counts as they do. Not looked at are attributes of modules, and what is written
    into a NumPy array in place.

    Args:
        functions: those that were traced.
        objects: what they are bound to.
    """

    def __init__(self, functions: Iterable[Function], objects: Iterable[Identity]) -> None:
        reached = list(_reached(functions))
        attributes = frozenset[str]().union(*(_names(fun.__code__) for fun in reached))
        found = {(id(place), name): (place, name) for f in reached for place, name in _places(f)}
        places = [*found.values(), *((x, name) for x in objects for name in attributes)]
        variables = (_Variable(place, name, attributes) for place, name in places)
        self._variables = [v for v in variables if v.may_change]

    def holds(self) -> bool:
        """Whether the functions close over the same now."""
        return all(variable.holds() for variable in self._variables)


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
        self._inside = inside if len(inside) <= _MOST else [self._value]
        self._is_whole = len(self._inside) == 1 and self._inside[0] is self._value

    @property
    def may_change(self) -> bool:
        """Whether there is such a variable: a name may be one of Python's own."""
        return self._value is not _MISSING and not isinstance(self._value, ModuleType)

    def holds(self) -> bool:
        """Whether it holds the same now."""
        value = _read(self._place, self._name)
        if self._is_whole:
            return _is_same(value, self._value)
        inside = _inside(value, self._attributes)
        return len(inside) == len(self._inside) and all(map(_is_same, inside, self._inside))


def _reached(functions: Iterable[Function]) -> Iterator[FunctionType]:
    """The functions, what they wrap, and the helpers of the same module that they name."""
    pending, seen = list(functions), set[int]()
    while pending:
        fun = pending.pop()
        if isinstance(fun, functools.partial):
            pending.append(fun.func)
        pending += filter(None, [getattr(fun, "__wrapped__", None)])
        if not isinstance(fun, FunctionType) or id(fun) in seen:
            continue
        seen.add(id(fun))
        yield fun
        named = (_read(*place) for place in _places(fun))
        own = fun.__globals__
        pending += [x for x in named if isinstance(x, FunctionType) and x.__globals__ is own]


def _places(fun: FunctionType) -> Iterator[tuple[_Place, str]]:
    """The variables that a function names and does not make."""
    yield from ((cell, "") for cell in fun.__closure__ or ())
    yield from ((fun.__globals__, name) for name in _global_names(fun.__code__))


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
    """What may change in a variable: an object, and what it holds."""
    if isinstance(value, (jax.Array, FunctionType, type)) or hasattr(value, "__wrapped__"):
        return [value]
    try:
        leaves = jax.tree.leaves(value)
    except (TypeError, ValueError):  # of a dictionary whose keys have no order
        return [value]
    if len(leaves) != 1 or leaves[0] is not value:
        return leaves
    own = (_attribute(value, name) for name in attributes)
    return [value, *jax.tree.leaves([x for x in own if x is not _MISSING])]


def _attribute(value: Any, name: str) -> Any:
    """What an object has under a name, which may be in a slot; not what its class has."""
    if isinstance(getattr(type(value), name, None), MemberDescriptorType):
        return getattr(value, name, _MISSING)
    return getattr(value, "__dict__", {}).get(name, _MISSING)


def _is_same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    return type(now) is type(before) and isinstance(now, (int, float, str)) and now == before


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _names(code: CodeType) -> set[str]:
    return {name for inner in _codes(code) for name in inner.co_names}


def _global_names(code: CodeType) -> set[str]:
    steps = (step for inner in _codes(code) for step in dis.get_instructions(inner))
    return {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
