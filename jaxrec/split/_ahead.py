"""Lets the caller compute what a call decides by.

A call whose choice reads an array fires a cell for its index, waits for it, and fires that of the
branch it takes: two waves. The caller has a cell that makes the array, and the index can be
computed there, if it is passed on with the array: one wave. Nobody calls a root, so the function
that the user calls is told too whether it is:

    def f(x):                              def f(x, is_told, more):
        return cond(                           return cond(
            norm(x) > 1,                           more if is_told else norm(x) > 1,
            lambda: f(x / 2),                      lambda: f(x / 2, True, norm(x / 2) > 1),
            lambda: x,                             lambda: x,
        )                                      )

It is done where nothing else is computed before the choice, so that no cell is left there, and
where each caller computes what the index is made of. Then no call is made later than before, since
the index is read by the call, not by its caller. A choice behind one that counters decide is
computed for some calls in vain, so there is nothing in it that may take long, show, or fail.

Source: Muchnick, "Advanced Compiler Design and Implementation" (1997), section 18.5, for loops
whose test moves behind their body.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

import numpy as np
from jax.core import ShapedArray

from jaxrec._types import has_derivative
from jaxrec.graph._flops import LOOPS, PRODUCTS, work_of
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
    first_free_id,
    has_call,
    names_of,
    reads,
    shows,
)
from jaxrec.graph._patience import has_to_wait
from jaxrec.graph._renamed import renamed
from jaxrec.graph._unread import without_unread
from jaxrec.split._binding import Binding, bind
from jaxrec.split._cells import split_cells
from jaxrec.split._compared import is_product, summed
from jaxrec.split._outer import find_outers

_PRODUCT_FLOPS = 1e4
"""Products of matrices of so much arithmetic may run for each call site apart; larger ones are
quicker for all at once."""

_MOST_COPIES = 256
"""Operations that are repeated at call sites at most, for each function."""

_ENTRY = 0
_IS_TOLD = Const(np.bool_(True), ShapedArray((), np.dtype(bool)))


@dataclasses.dataclass(frozen=True)
class _Test:
    """What a function decides by.

    Attributes:
        ops: the operations that compute it from its arguments.
        made: what is read of what they make: the indices of choices, and what has no derivative.
    """

    ops: tuple[Op, ...]
    made: tuple[Value, ...]

    @property
    def reads(self) -> set[Atom]:
        """What the operations read: parameters, outer values, and what they make."""
        return {atom for op in self.ops for atom in reads(op)}


def decided_ahead(graph: Graph, binding: Binding) -> Graph:
    """The graph with choices that callers compute; itself where that brings nothing."""
    tests = {}
    for number, function in enumerate(graph.functions):
        test = _test_of(function, binding)
        if test is not None and _callers_compute(graph, binding, number, test):
            tests[number] = test
    while tests:
        told = _Telling(graph, tests).graph()
        late = _with_a_cell_before(told, tests)
        if not late:
            return told
        tests = {number: test for number, test in tests.items() if number not in late}
    return graph


def _test_of(function: Function, binding: Binding) -> _Test | None:
    """What a function computes of its arguments for its first choices, if callers may."""
    first = [op for region in _first_regions(function.body, binding) for op in region.ops]
    choices = [op for op in first if isinstance(op, Switch) and op.index in binding.demanded]
    if function.memo or not choices:
        return None
    needed: set[Atom] = {op.index for op in choices}
    ops: list[Op] = []
    for op in reversed(first):
        if needed.isdisjoint(op.outputs):
            continue
        if not isinstance(op, Prim) or not _is_short(op) or binding.is_load(op):
            return None
        needed.update(op.inputs)
        ops.append(op)
    read = set(_read_by_others(function.body, set(ops)))
    made = tuple(itertools.chain.from_iterable(_told_of(op, read, binding) for op in ops))
    return _Test(tuple(reversed(ops)), made) if all(op.index in made for op in choices) else None


def _first_regions(region: Region, binding: Binding) -> Iterator[Region]:
    """A region, and those inside that the scheduler enters before anything is computed."""
    yield region
    for op in region.ops:
        if isinstance(op, Switch) and has_call(op) and op.index not in binding.demanded:
            for inner in op.regions:
                yield from _first_regions(inner, binding)


def _read_by_others(region: Region, ops: Collection[Op]) -> Iterator[Atom]:
    """What is read in a region but by some of its operations."""
    yield from region.results
    for op in region.ops:
        if op not in ops:
            yield from reads(op)
        if isinstance(op, Switch):
            for inner in op.regions:
                yield from _read_by_others(inner, ops)


def _told_of(op: Op, read: Collection[Atom], binding: Binding) -> list[Value]:
    """What callers can say in the place of an operation: all that is read of it, or nothing."""
    found = [value for value in op.outputs if value in read]
    return [] if any(_stays(value, binding) for value in found) else found


def _stays(value: Value, binding: Binding) -> bool:
    """Whether a value is computed where it is: it has a derivative, is a key, or costs nothing."""
    is_plain = isinstance(value.aval.dtype, np.dtype)
    return not is_plain or has_derivative(value.aval) or binding.is_export(value)


def _is_short(op: Prim) -> bool:
    """Whether an operation may run for each call site apart, and before its call is there."""
    names = set(names_of(op))
    if has_to_wait([op]) or shows(op) or op.eqn.effects or names & LOOPS:
        return False
    return not names & PRODUCTS or sum(w.flops for w in work_of([op])) <= _PRODUCT_FLOPS


def _callers_compute(graph: Graph, binding: Binding, number: int, test: _Test) -> bool:
    """Whether what a test reads is made by the callers, and not by calls that they wait for."""
    read, calls = test.reads, [call for call in graph.calls if call.callee == number]
    pairs = [pair for call in calls for pair in graph.arguments(call) if pair[0] in read]
    passed = [atom for _, atom in pairs if atom in graph.makers]
    # Of a product and a sum XLA makes one operation, which rounds once: calls would be told what
    # does not hold of the numbers that they get.
    sums = summed(graph, test.ops)
    if any(param in sums and is_product(graph, atom) for param, atom in pairs):
        return False
    if len(test.ops) * len(calls) > _MOST_COPIES or all(map(binding.is_control, passed)):
        return False
    return all(isinstance(graph.makers[atom], Prim) for atom in passed)


def _with_a_cell_before(graph: Graph, numbers: Iterable[int]) -> set[int]:
    """Those of the functions that fire a cell before they decide."""
    binding = bind(graph, find_outers(graph))
    blocks = split_cells(graph, binding).blocks

    def fires(region: Region) -> bool:
        has_choice = any(
            isinstance(op, Switch) and op.index in binding.demanded
            for inner in _first_regions(region, binding)
            for op in inner.ops
        )
        return has_choice and blocks[region].levels[0].cell is not None

    bodies = {k: _first_regions(graph.functions[k].body, binding) for k in numbers}
    return {k for k, regions in bodies.items() if any(map(fires, regions))}


class _Telling:
    """Makes the graph in which some functions are told what they decide."""

    def __init__(self, graph: Graph, tests: Mapping[int, _Test]) -> None:
        self._from, self._tests = graph, tests
        self._ids = itertools.count(first_free_id(graph))

    def graph(self) -> Graph:
        functions = tuple(itertools.starmap(self._function, enumerate(self._from.functions)))
        return dataclasses.replace(self._from, functions=functions)

    def _function(self, number: int, function: Function) -> Function:
        test = self._tests.get(number)
        body = self._telling(function.body, frozenset(test.made if test else ()))
        if test is None:
            return dataclasses.replace(function, body=body)
        told = self._new(test.made)
        added, known, ops = told, told, list(body.ops)
        if number == _ENTRY:
            (is_told,), known = self._new([_IS_TOLD]), self._new(test.made)
            added = [is_told, *told]
            copies, results = self._copy(test, {})
            computed = Region(copies, results), Region((), tuple(told))
            ops.insert(0, Switch(is_told, computed, tuple(known)))
        names = dict(zip(test.made, known, strict=True))
        return dataclasses.replace(
            function,
            params=(*function.params, *added),
            param_names=(*function.param_names, *(f"told[{k}]" for k in range(len(added)))),
            body=without_unread(renamed(Region(tuple(ops), body.results), names)),
            told=frozenset(added),
        )

    def _telling(self, region: Region, told: frozenset[Value]) -> Region:
        """A region whose calls pass on what they decide, without what it is `told` itself."""
        left = (op for op in region.ops if told.isdisjoint(op.outputs))
        ops = itertools.chain.from_iterable(self._op(op, told) for op in left)
        return Region(tuple(ops), region.results)

    def _op(self, op: Op, told: frozenset[Value]) -> Iterator[Op]:
        if isinstance(op, Switch):
            regions = tuple(self._telling(region, told) for region in op.regions)
            op = dataclasses.replace(op, regions=regions)
        elif isinstance(op, Call) and op.callee in self._tests:
            copies, results = self._copy(self._tests[op.callee], dict(self._from.arguments(op)))
            yield from copies
            is_told = (_IS_TOLD,) if op.callee == _ENTRY else ()
            op = dataclasses.replace(op, inputs=(*op.inputs, *is_told, *results))
        yield op

    def _copy(
        self, test: _Test, names: dict[Value, Atom]
    ) -> tuple[tuple[Op, ...], tuple[Atom, ...]]:
        """The operations of a test on other arguments, and what is read of what they make."""
        made = [value for op in test.ops for value in op.outputs]
        region = Region(test.ops, test.made)
        copy = renamed(region, {**names, **dict(zip(made, self._new(made), strict=True))})
        return copy.ops, copy.results

    def _new(self, atoms: Iterable[Atom]) -> list[Value]:
        return [Value(next(self._ids), atom.aval) for atom in atoms]
