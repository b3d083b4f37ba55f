"""Values of one body that another one closes over: arguments that every call passes.

A recursive function that is defined inside a body, or a function that is passed on as a static
argument, may read what that body computes, which is another value in every frame. So it gets such
values as arguments behind those of the user, and a call of it passes them on (lambda lifting).

Source: T. Johnsson, "Lambda lifting: transforming programs to recursive equations" (1985).
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr

from jaxrec import _compat
from jaxrec._equation import bind_equation, run_jaxpr
from jaxrec._errors import UnsupportedError
from jaxrec.trace._code import global_names
from jaxrec.trace._instance import Instance
from jaxrec.trace._parts import MISSING
from jaxrec.trace._reached import read


class Bodies:
    """The bodies that are being traced, one inside the other, and those that have been."""

    def __init__(self) -> None:
        self._running: list[Any] = []
        self._all: list[weakref.ref[Any]] = []

    @contextlib.contextmanager
    def entered(self, trace: Any) -> Iterator[None]:
        """A context in which a body runs, traced by `trace`."""
        self._all.append(weakref.ref(trace))
        self._running.append(trace)
        try:
            yield
        finally:
            self._running.pop()

    def compute(self, value: Any) -> bool:
        """Whether one of them computes a value."""
        return self._of(value) is not None

    def captured(self, instance: Instance, consts: Sequence[Any]) -> Iterator[Any]:
        """What a body that has been traced reads of the bodies around, and is no capture yet.

        Args:
            instance: the function.
            consts: what its body closes over.

        Raises:
            UnsupportedError: one of them belongs to a body that is not around it.
        """
        for value in consts:
            body = self._of(value)
            if body is None or any(value is x for x in instance.captures):
                continue
            if not any(body is trace for trace in self._running):
                caller = f", called by {instance.caller.name}," if instance.caller else ""
                raise UnsupportedError(
                    f"{instance.name}{caller} closes over a value that another recursive function "
                    "has computed in a call that is over, in another branch, or many bodies "
                    "further out; or that an object keeps which bodies change when they are "
                    "traced, such as haiku's stream of random keys. Pass the value to "
                    f"{instance.name} as an argument: what all calls pass on unchanged is not "
                    "copied. A body draws from jaxrec.call_key(key)."
                )
            yield value

    def _of(self, value: Any) -> Any:
        """What traces the body that computes a value; None for values from outside of all."""
        bodies = [body() for body in self._all]
        traces = _compat.traces_behind(value)
        return next((t for t in traces if any(t is body for body in bodies)), None)


def with_captures(body: ClosedJaxpr, captures: Sequence[Any]) -> ClosedJaxpr:
    """A body that has some of its constants as its last arguments.

    Args:
        body: a traced body.
        captures: the values that become arguments.
    """
    if not captures:
        return body
    count = len(body.in_avals)
    places = {id(value): count + k for k, value in enumerate(captures)}

    def run(*args: Any) -> list[Any]:
        consts = [args[places[id(x)]] if id(x) in places else x for x in body.consts]
        return run_jaxpr(ClosedJaxpr(body.jaxpr, consts), args[:count], bind_equation)

    types = [*body.in_avals, *map(_compat.aval_of, captures)]
    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in types))


def names_of(fun: Callable[..., Any], captures: Sequence[Any]) -> list[str]:
    """The variables of a function that hold some values, as far as it names them itself."""
    variables = variables_of([fun])
    named = (variables.get(id(x)) for x in captures)
    return [f"closed_over[{k}]" if x is None else x[0] for k, x in enumerate(named)]


def variables_of(functions: Iterable[Callable[..., Any]]) -> dict[int, tuple[str, Any]]:
    """The variables that functions name, with what they hold, by its `id`; the first of each."""
    found: dict[int, tuple[str, Any]] = {}
    for fun in map(inspect.unwrap, functions):
        if isinstance(fun, FunctionType):
            own = zip(fun.__code__.co_freevars, fun.__closure__ or (), strict=True)
            held = [(name, read(cell, "")) for name, cell in own]
            held += [(n, read(fun.__globals__, n)) for n in sorted(global_names(fun.__code__))]
            for name, value in held:
                found.setdefault(id(value), (name, value))
    found.pop(id(MISSING), None)
    return found
