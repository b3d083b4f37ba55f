"""Tracing that is given up before its end, to begin another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from jaxrec import _compat
from jaxrec.trace._instance import Definition, Instance
from jaxrec.trace._signature import Signature, differences

T = TypeVar("T")


class Interruption(Exception):
    """A body need not be traced further.

    Attributes:
        trace: what was being traced.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.trace = _compat.current_trace()


class Unresolved(Interruption):
    """A branch needs the result type of a function for which none is known yet."""


class Postponed(Interruption):
    """The result type of a function is to be inferred first, from where Python's stack is short."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance.name)
        self.instance = instance


class Answers:
    """The result types of functions whose probes were postponed, for when they are met again."""

    def __init__(self) -> None:
        self._known: dict[tuple[Definition, Signature], Instance] = {}
        self._places: set[Any] = set()

    def to(self, instance: Instance, waiting: Sequence[Instance]) -> Signature | None:
        """The result type of a function; None if it has to be probed here nevertheless.

        A function that a body makes is a new one each time the body runs, so what was found of the
        last one does not answer for it: postponing its probe again would never end.

        Args:
            instance: the function.
            waiting: those of which the result type is unknown as long as others are probed.

        Raises:
            Postponed: it is to be inferred first.
            Unresolved: it waits for others.
        """
        # What one closes over may have changed by its being traced: it is still the one.
        key = instance.definition, instance.args
        same = self._known.get(key)
        if same is not None and same.result is not None:
            return same.result
        if same in waiting:
            raise Unresolved
        place = tuple((x.name, x.args) for x in instance.chain())
        if same is None and place in self._places:
            return None
        self._places.add(place)
        self._known[key] = instance
        raise Postponed(instance)


class Widened(Interruption):
    """A call passes a stronger type where the first call passed a Python number."""

    def __init__(self, instance: Instance, after: Signature, names: Sequence[str]) -> None:
        super().__init__(instance.name)
        self.instance, self.after = instance, after
        changed = differences(instance.args, after, names)
        self.lines = [f"{instance.name}: {x}" for x in changed]


def to_end(transform: Callable[[Callable[..., Any]], T], fun: Callable[..., Any]) -> T:
    """`transform(fun)`, whose trace of `fun` ends even where `fun` is interrupted.

    JAX never lets go of a trace that an exception leaves. Those in between, of transformations in
    the body, are left by one.

    Raises:
        Interruption: `fun` was interrupted.
    """
    raised: list[Interruption] = []

    def run(*args: Any) -> Any:
        try:
            return fun(*args)
        except Interruption as interruption:
            _compat.let_go_of(interruption.trace, _compat.current_trace())
            # Less the frames, which refer to what is traced.
            raised.append(interruption.with_traceback(None))
            return []

    out = transform(run)
    if raised:
        raise raised[0]
    return out
