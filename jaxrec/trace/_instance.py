"""What a traced program is made of: definitions, and their instances at argument types."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from jax.extend.core import ClosedJaxpr

from jaxrec.trace._signature import Signature

if TYPE_CHECKING:
    from jaxrec.trace._closure import Closure


class Identity:
    """A static argument that equals only itself: the object that a method is bound to.

    It keeps the object until it is told not to.
    """

    def __init__(self, value: Any) -> None:
        self._hash = id(value)
        self._get: Callable[[], Any] = lambda: value

    def let_go(self, gone: Callable[[Any], None]) -> None:
        """Keeps the object no longer, if it allows that, and calls `gone` when it is gone."""
        with contextlib.suppress(TypeError):
            self._get = weakref.ref(self.value, gone)

    @property
    def value(self) -> Any:
        """The object; None once it is gone."""
        return self._get()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return False
        return self is other or (self.value is not None and self.value is other.value)

    def __hash__(self) -> int:
        return self._hash


@dataclasses.dataclass(frozen=True)
class Definition:
    """A Python function with its static arguments bound: what is specialised on.

    Attributes:
        name: as errors and the graph name it.
        fun: called with the dynamic arguments.
        key: equal for two definitions that are the same function.
        out: the declared result type, a function of the arguments giving it, or None.
        arg_names: the names of the dynamic arguments.
        memo: whether calls with equal arguments are one call.
        helper: whether it stands for a loop of the user's code and not for a function.
        trips: of a helper that calls itself, how often each call from elsewhere runs it at most.
        order: how many derivative rules its calls stand inside of. What a rule computes beforehand
            has no derivative of that order: it is another function than the one called elsewhere.
        static: the names and values of the static arguments.
    """

    name: str
    fun: Callable[..., Any] = dataclasses.field(compare=False)
    key: Any
    out: Any = dataclasses.field(compare=False)
    arg_names: tuple[str, ...] = dataclasses.field(compare=False)
    memo: bool = dataclasses.field(default=False, compare=False)
    helper: bool = dataclasses.field(default=False, compare=False)
    trips: int | None = dataclasses.field(default=None, compare=False)
    order: int = 0
    static: tuple[tuple[str, Any], ...] = dataclasses.field(default=(), compare=False)

    def inside(self, rules: int) -> Definition:
        """The function as it is called inside so many more derivative rules."""
        return dataclasses.replace(self, order=self.order + rules) if rules else self


@dataclasses.dataclass(eq=False)
class Instance:
    """A definition at one argument signature, and what tracing has found out about it.

    Attributes:
        index: its number in the program.
        definition: the function.
        args: the types of its arguments.
        names: the names of its arguments, one a leaf.
        closure: what it closes over where it is called first; None for helpers and the entry.
        caller: the instance in whose body the first call of it was found; None for the entry.
        result: the type of its result, once known.
        captures: values of the bodies around its call, which calls pass on behind the arguments.
        jaxpr: its body, once traced; its last arguments are the captures.
        calls: the functions called in it, each with what the call looks like, see `call`.
        left: what it closed over where it was called first, if it was left to be traced later.
    """

    index: int
    definition: Definition
    args: Signature
    names: tuple[str, ...]
    closure: Closure | None = None
    caller: Instance | None = None
    result: Signature | None = None
    captures: list[Any] = dataclasses.field(default_factory=list)
    jaxpr: ClosedJaxpr | None = None
    calls: list[tuple[Instance, Any]] = dataclasses.field(default_factory=list)
    left: Closure | None = None

    @property
    def name(self) -> str:
        """The user's name for the function."""
        return self.definition.name

    def is_settled(self) -> bool:
        """Whether its body is traced, with calls as the functions called are known now."""
        if self.jaxpr is None or len(self.jaxpr.in_avals) != self.call[0]:
            return False
        return all(made == x.call for x, made in self.calls)

    def capture(self, values: Iterable[Any]) -> None:
        """Adds to the captures what is not among them."""
        known = {id(x) for x in self.captures}
        self.captures += [x for x in values if id(x) not in known]

    @property
    def call(self) -> Any:
        """What a call of it looks like: how many operands it has, and the types of its results."""
        count = len(self.args.avals) + len(self.captures)
        return count, None if self.result is None else self.result.avals

    def chain(self) -> Iterator[Instance]:
        """This instance and its callers up to the entry, by first calls."""
        link: Instance | None = self
        while link is not None:
            yield link
            link = link.caller

    @property
    def specialised(self) -> int:
        """How many functions of its name call one another, up to this one."""
        return sum(x.name == self.name for x in self.chain())

    def let_go(self) -> None:
        """Forgets what leads to the user's values, once the graph is built.

        JAX keeps equations that it has traced in its caches, and with them what they call.
        """
        self.caller = self.closure = self.left = self.jaxpr = None
        self.captures, self.calls = [], []
        self.definition = Definition(self.name, _gone, None, None, self.definition.arg_names)

    def __repr__(self) -> str:
        return self.name


def _gone(*_: Any) -> Any:
    raise AssertionError("a function is not traced again by an instance that was let go")
