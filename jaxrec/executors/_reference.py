"""The definitional interpreter of the graph: what a recursive function means.

One call at a time, in the order of plain Python recursion, no batching and no schedule. A call is
a Python generator that yields the calls it makes, so depth is bounded by memory, not by Python's
stack. Control values are read as they are needed; arrays may be tracers, so the interpreter is
differentiable by JAX.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxrec import _compat
from jaxrec._errors import JaxRecError, RecursionLimitError
from jaxrec._order import apply_equation, still
from jaxrec._types import is_whole
from jaxrec.graph._ir import (
    Atom,
    Call,
    Const,
    Function,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    has_call,
)
from jaxrec.graph._moving import places_moved
from jaxrec.schedule._limits import Limits, format_path, itself_text, limit_text
from jaxrec.split._cache import Cache
from jaxrec.split._names import unnamed

_WRAPPED = {(1 << bits) - 1 for bits in (8, 16, 32)}
"""What -1, as of a leaf that has no children, is in an unsigned type."""

Env = dict[Value, Any]
Frame = Generator[tuple[Call, list[Any]], list[Any], list[Any]]


class Made(NamedTuple):
    """A call that was made; its results are None until it returns."""

    function: int
    args: list[Any]
    results: list[Any] | None


class _Open(NamedTuple):
    """A call that has not returned: its place in `Interpreter.calls`, and its call site."""

    frame: Frame
    number: int
    site: int | None


class Interpreter:
    """Runs the functions of a graph.

    Attributes:
        calls: the calls made, in the order of their start.
    """

    def __init__(
        self,
        graph: Graph,
        captured: Sequence[Any],
        limits: Limits,
        cache: Cache,
        taken: Sequence[Collection[Value]] = (),
    ) -> None:
        self._graph, self._limits, self._taken = graph, limits, taken
        self._cache = cache
        self._captured = dict(zip(graph.captured, captured, strict=True))
        self._open: list[_Open] = []
        self._shared: dict[tuple[Any, ...], int] = {}
        self.calls: list[Made] = []

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Calls the entry function."""
        results: Any = self._call(0, None, list(args))
        while self._open:
            try:
                op, values = self._open[-1].frame.send(results)
            except StopIteration as done:
                results = self._leave(done.value)
            else:
                results = self._call(op.callee, op.site, values)
        return results

    def _call(self, function: int, site: int | None, values: list[Any]) -> list[Any] | None:
        """Begins a call, or returns the results of an equal one if the function is shared."""
        if self._graph.functions[function].memo:
            key = (function, *map(_identity, values))
            number = self._shared.setdefault(key, len(self.calls))
            if number < len(self.calls):
                return self._again(number, site, values)
        self._enter(function, site, values)
        return None

    def _again(self, number: int, site: int | None, values: list[Any]) -> list[Any]:
        function, _, results = self.calls[number]
        if results is None:
            self._enter(function, site, values)
            name = self._running.name
            raise RecursionLimitError(itself_text(name, self._path(), self._shown_args()))
        return results

    def _enter(self, function: int, site: int | None, values: list[Any]) -> None:
        definition = self._graph.functions[function]
        named = {**self._captured, **dict(zip(definition.params, values, strict=True))}
        inputs = still(list(named.values()), self._ahead(definition))
        env: Env = dict(zip(named, inputs, strict=True))
        self._open.append(_Open(self._region(definition.body, env), len(self.calls), site))
        self.calls.append(Made(function, values, None))
        if len(self._open) > self._limits.depth:
            self._without_end(f"nested more than {self._limits.depth} calls deep")
        if len(self.calls) > self._limits.calls:
            self._without_end(f"made more than {self._limits.calls} calls without ending")

    def _leave(self, results: list[Any]) -> list[Any]:
        number = self._open.pop().number
        self.calls[number] = self.calls[number]._replace(results=results)
        return results

    def _region(self, region: Region, env: Env) -> Frame:
        for op in region.ops:
            env.update(zip(op.outputs, (yield from self._op(op, env)), strict=True))
        return [_read(env, atom) for atom in region.results]

    def _op(self, op: Op, env: Env) -> Frame:
        if isinstance(op, Call):
            return (yield op, [_read(env, a) for a in op.inputs])
        if isinstance(op, Switch):
            index = _read(env, op.index)
            if not (_compat.is_concrete(index) or has_call(op)):
                return self._choice(index, op, env)
            chosen = min(max(int(index), 0), len(op.regions) - 1)
            return (yield from self._region(op.regions[chosen], dict(env)))
        values = [_read(env, a) for a in op.inputs]
        self._check_index(op, values)
        try:
            return self._applied(op, self._running)(*values)
        except Exception as error:
            path = format_path(self._path())
            error.add_note(f"This is from a call of {self._running.name}. Call path: {path}.")
            raise

    def _applied(self, op: Prim, function: Function) -> Callable[..., list[Any]]:
        """An operation as a function of arrays, which JAX compiles once."""

        def make() -> Callable[..., list[Any]]:
            taken = places_moved(op, self._taken[function.order :])
            ahead = self._ahead(function)
            return lambda *values: apply_equation(op.eqn, values, taken, ahead)

        if not op.is_compiled_anew:
            return make()
        return self._cache.once(("operation", op), lambda: jax.jit(make()))

    def _choice(self, index: Any, op: Switch, env: Env) -> list[Any]:
        """The results of a choice that differs from example to example of a `vmap` around."""

        def run(region: Region) -> list[Any]:
            try:
                next(self._region(region, dict(env)))
            except StopIteration as done:
                return done.value
            raise AssertionError(f"{self._running.name} makes a call inside a choice without calls")

        return jax.lax.switch(index, [functools.partial(run, region) for region in op.regions])

    def _ahead(self, function: Function) -> int:
        """How often a derivative is taken before the first of a function."""
        return max(function.order - len(self._taken), 0)

    def _check_index(self, op: Prim, values: Sequence[Any]) -> None:
        """A read of one element by an index that is out of range is an error, not a clamp."""
        if op.name != "dynamic_slice" or not all(map(_compat.is_concrete, values[1:])):
            return
        shape, index = np.shape(values[0]), [int(x) for x in values[1:]]
        for axis, (start, size) in enumerate(zip(index, op.eqn.params["slice_sizes"], strict=True)):
            whole = size == shape[axis] > 1  # which a slice is cut to fit, as JAX cuts it
            if not whole and not 0 <= start <= shape[axis] - size:
                self._out_of_range(self._name_of(op.inputs[0]), index, shape, axis)

    # Errors, in the words of the core.

    def _out_of_range(
        self, array: str, index: Sequence[int], shape: tuple[int, ...], axis: int
    ) -> None:
        sizes = f"{shape[0]} elements" if len(shape) == 1 else f"shape {shape}"
        # To one that counts from the end the size of the axis was added.
        written = [k - size if k < 0 else k for k, size in zip(index, shape, strict=True)]
        element = f"{array.rpartition('.')[2]}[{', '.join(map(str, written))}]"
        wraps = written[axis] in _WRAPPED and written[axis] != shape[axis]  # or it is off by one
        why = f": -1 is {written[axis]} where the type is unsigned" if wraps else ""
        raise JaxRecError(
            f"{self._running.name} read {element}, which is out of range for an array of "
            f"{sizes} (axis {axis}). Call path: "
            f"{format_path(self._path())}. Check where the index into {array} comes from{why}."
        )

    def _without_end(self, what: str) -> None:
        name = self._graph.entry.name
        raise RecursionLimitError(limit_text(name, what, self._path(), self._shown_args()))

    def _shown_args(self) -> str:
        function = self._running
        args = zip(function.params, function.param_names, self.calls[-1].args, strict=True)
        return ", ".join(
            f"{name}={x}"
            for param, name, x in args
            if param not in function.told and _compat.is_concrete(x) and is_whole(x)
        )

    @property
    def _running(self) -> Any:
        return self._graph.functions[self.calls[self._open[-1].number].function]

    def _path(self) -> list[str]:
        names = [self._graph.functions[self.calls[o.number].function].name for o in self._open]
        sites = ["" if o.site is None else f"[{o.site}]" for o in self._open]
        return [name + site for name, site in zip(names, sites, strict=True)]

    def _name_of(self, atom: Atom) -> str:
        names = dict(zip(self._running.params, self._running.param_names, strict=True))
        return names.get(atom) or unnamed(self._graph, atom)


def _is_scalar(value: Any) -> bool:
    """Whether a value is a number that is known."""
    aval = _compat.aval_of(value)
    return _compat.is_concrete(value) and not aval.shape and isinstance(aval.dtype, np.dtype)


def _identity(value: Any) -> Any:
    """Equal for two arguments that are the same: scalars by value, other arrays by identity."""
    return (value.dtype.name, value.tobytes()) if _is_scalar(value) else id(value)


def _read(env: Env, atom: Atom) -> Any:
    if isinstance(atom, Const):
        return atom.array
    return env[atom]
