"""What bodies close over, and whether it still is what it was when they were traced.

A trace holds the values that were there when it was made. Whoever assigns a variable anew, updates
a module or redefines a helper means the new value, as everywhere in Python.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from jaxrec.trace._instance import Definition, Identity
from jaxrec.trace._parts import BY_IDENTITY, MISSING, WHOLE, Look, has, own
from jaxrec.trace._reached import Place, lasting, places, reached, read

Function = Callable[..., Any]


class Closure:
    """What some functions close over, as it is now.

    That are the variables that they name, of enclosing functions, of their module and of others of
    the user's; the values and the structure of pytrees there; and of objects, in those and in one
    another, and of classes the attributes that they name. Helpers and methods of the user's that
    they name, also in pytrees, count as they do. Not looked at are default arguments, what is
    written into a NumPy array in place, and pytrees of more than a thousand values.

    Args:
        functions: those that were traced.
        objects: what they are bound to.
        classes: of what they are called with.
        is_passing: whether a value is gone when the functions have been traced. Functions and
            objects that hold such values are left out, if they were made by others of these: what
            they name besides, those name too.
    """

    def __init__(
        self,
        functions: Iterable[Function],
        objects: Sequence[Identity],
        classes: Iterable[type] = (),
        is_passing: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        found, shared, attributes = reached(functions, [x.value for x in objects], classes)
        found = lasting(found, attributes, is_passing)
        named = [(place, name) for f in found for place, name in places(f)]
        named = [at for at in named if read(*at) is not MISSING]  # else it is one of Python's own
        distinct = {(id(place), name): (place, name) for place, name in (*named, *shared)}
        of_objects = ((x, name) for x in objects for name in attributes if has(x.value, name))
        looks = Look(attributes), Look(attributes)
        variables = [_Variable(*at, *looks) for at in (*distinct.values(), *of_objects)]
        self._attributes = attributes
        self._variables: list[_Variable] | None = [
            v for v in variables if v.may_change and not v.is_of_object_with(is_passing)
        ]

    def holds(self) -> bool:
        """Whether the functions close over the same now."""
        variables = self._variables  # which another thread may let go of
        look = Look(self._attributes)
        return variables is not None and all(v.holds(look) for v in variables)

    def let_go(self) -> None:
        """Forgets what they close over: what was traced of them is of no use from now on."""
        self._variables = None


def closure_of(
    definitions: Sequence[Definition],
    trees: Iterable[Any] = (),
    is_passing: Callable[[Any], bool] = lambda _: False,
) -> Closure:
    """What some definitions close over, their static arguments included; see `Closure`.

    Args:
        definitions: those that were traced.
        trees: the structures of their arguments.
        is_passing: as for `Closure`.
    """
    functions = [inspect.unwrap(d.fun) for d in definitions]
    static = [value for d in definitions for _, value in d.static]
    objects = [value for value in static if isinstance(value, Identity)]
    objects += [Identity(owner) for f in functions if (owner := _owner(f)) is not None]
    functions += filter(callable, static)
    return Closure(functions, objects, {x for tree in trees for x in _classes_in(tree)}, is_passing)


def _owner(fun: Function) -> Any:
    """The object that a method is bound to, or that is called itself."""
    if isinstance(fun, FunctionType | functools.partial):
        return None
    return fun.__self__ if isinstance(fun, MethodType) else fun


def _classes_in(tree: Any) -> Iterator[type]:
    """The classes of the nodes of a structure."""
    pending = [tree]
    while pending:
        node = pending.pop()
        data = node.node_data()
        if data is not None:
            yield data[0]
            pending += node.children()


class _Variable:
    """A variable, and what it held when it was looked at first.

    Args:
        place: the variables of a module, or of an object, or that of an enclosing function.
        name: its name in the module or the object.
        look: a look at its value.
        again: another one.
    """

    def __init__(self, place: Place, name: str, look: Look, again: Look) -> None:
        self._place, self._name = place, name
        self._value = read(place, name)
        is_function = isinstance(self._value, FunctionType)
        self._code = self._value.__code__ if is_function else None
        found = look.inside(self._value)
        # What differs from itself says nothing.
        comparable = _are_same(found, again.inside(self._value))
        self._inside = found if comparable else [self._value]
        has_parts = len(self._inside) != 1 or self._inside[0] is not self._value
        self._is_whole = is_function or (
            not has_parts
            and (
                self._value is MISSING
                or isinstance(self._value, WHOLE)
                or own(self._value, "__wrapped__") is not None
            )
        )

    @property
    def may_change(self) -> bool:
        """Whether it is no module, whose attributes are variables of their own."""
        return not isinstance(self._value, ModuleType)

    def is_of_object_with(self, is_passing: Callable[[Any], bool]) -> bool:
        """Whether it is of an object, and holds a value that is gone then, see `Closure`."""
        return isinstance(self._place, Identity) and any(map(is_passing, self._inside))

    def holds(self, look: Look) -> bool:
        """Whether it holds the same now; of an object that is gone, nothing can change."""
        if isinstance(self._place, Identity) and self._place.value is None:
            return True
        value = read(self._place, self._name)
        if self._is_whole:
            is_same = _is_same(value, self._value)
            return is_same and (self._code is None or value.__code__ is self._code)
        return _are_same(look.inside(value), self._inside)


def _are_same(now: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(now) == len(before) and all(map(_is_same, now, before))


def _is_same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    if type(now) is not type(before) or isinstance(now, BY_IDENTITY):
        return False
    if isinstance(now, float | complex | np.inexact):  # of zeros the signs differ, and NaN is NaN
        return repr(now) == repr(before)
    try:
        return bool(now == before)
    except Exception:  # whatever the code of an object raises
        return False
