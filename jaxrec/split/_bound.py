"""How many calls a recursion over the nodes of an array can make.

Under `jit` the tapes have a fixed size, so the number of calls must be bounded before the indices
are known. A function that reads an array at an index among its arguments, or at several, is taken
to visit the elements of that array, its *nodes*, once each, as in a tree:

* if it reads them in every call, each call is a node: at most N calls;
* an index that no further call's index follows from (the label of the node before) names no node,
  if another argument does;
* if it reads them only in some branches, other calls stand for "no node" (an index of -1): then its
  calls are those that its callers make, and each caller makes them from at most N nodes;
* calls that are shared are as many as the arguments that index arrays have values together;
* a helper that runs a loop of another function is no node either, whatever it reads; if it calls
  itself, the number of its iterations must be known.

A function that leads back to itself nowhere needs no guess: its text says how many calls it makes.
Else the bound is a guess about the shape of the data, which the scheduler checks: calls that exceed
it are an error, never a wrong result.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from jaxrec._transitive import transitive
from jaxrec.graph._ir import Atom, Call, Function, Graph, Op, Prim, Region, Switch, Value, walk
from jaxrec.split._binding import Binding

_INDEX_OPS = {"select_n", "add", "sub", "lt", "convert_element_type", "max", "min", "clamp"}


_Read = list[tuple[frozenset[Value], int]]
"""Of a read the arguments that each index follows from, and how many elements it chooses from."""


@dataclasses.dataclass(frozen=True)
class Visits:
    """What a function reads and calls.

    Attributes:
        nodes: how many elements its arguments choose from, in each array that they index.
        always: whether every call reads one of them.
        calls: for each function, the most call sites of it that one frame passes.
        trips: the most frames that one call from another function leads to by calls of itself.
    """

    nodes: tuple[int, ...]
    always: bool
    calls: tuple[int, ...]
    trips: int | None = None


def visits_of(
    graph: Graph, binding: Binding, control: Sequence[Sequence[Value]]
) -> tuple[Visits, ...]:
    """Analyses all functions; `control` are the arguments of each in the control plane."""
    leading = _leading(graph, control)
    return tuple(
        _visits_of_one(graph, function, binding, args, leading)
        for function, args in zip(graph.functions, control, strict=True)
    )


def _visits_of_one(
    graph: Graph,
    function: Function,
    binding: Binding,
    control: Sequence[Value],
    leading: frozenset[Value],
) -> Visits:
    def indexed(ops: Iterable[Op]) -> list[_Read]:
        return list(_indexed(ops, binding, found))

    found = leading.intersection(control)
    everywhere = indexed(walk(function.body))
    if not everywhere:
        found = frozenset(control)
        everywhere = indexed(walk(function.body))
    always = indexed(function.body.ops)
    most = calls_on_path(function.body, lambda callee: callee)
    calls = tuple(most[k] for k in range(len(graph.functions)))
    if function.helper:
        return Visits((), False, calls, function.trips)
    nodes = [math.prod(size for _, size in read) for read in everywhere]
    if function.memo and everywhere:
        nodes = [_combinations(everywhere)]
    return Visits(tuple(dict.fromkeys(nodes)), bool(always), calls)


def _combinations(reads: Iterable[_Read]) -> int:
    """How many different calls there are, from what each argument chooses from."""
    sizes: dict[frozenset[Value], int] = {}
    for origins, size in itertools.chain.from_iterable(reads):
        sizes[origins] = max(size, sizes.get(origins, 0))
    alone = frozenset().union(*(origins for origins in sizes if len(origins) == 1))
    return math.prod(n for origins, n in sizes.items() if len(origins) == 1 or origins - alone)


def most_calls(visits: Sequence[Visits], lanes: int, copies: int) -> int | None:
    """A bound on the calls of an invocation, all functions together; None if there is none.

    Args:
        visits: of each function; the first is the entry.
        lanes: number of roots.
        copies: how many arrays of nodes the lanes have, where they have their own.
    """
    frames = _sum_of_all(most_frames(visits))
    if frames is not None:
        return lanes * frames
    if not any(v.nodes for v in visits):
        return None
    return _sum_of_all(_frames(visits, lanes, copies))


def _sum_of_all(bounds: Sequence[int | None]) -> int | None:
    known = [bound for bound in bounds if bound is not None]
    return sum(known) if len(known) == len(bounds) else None


def most_frames(visits: Sequence[Visits]) -> tuple[int | None, ...]:
    """For each function the most calls of it that one root leads to, itself included.

    None for those that a function that leads back to itself leads to.
    """
    return _frames([Visits((), False, v.calls) for v in visits], 1, 1)


def _frames(visits: Sequence[Visits], lanes: int, copies: int) -> tuple[int | None, ...]:
    """For each function a bound on its calls; None for those that a cycle without nodes leads to.

    A function is counted once those that call it are, so that each takes a single turn however many
    paths lead to it.
    """
    nodes = [copies * max(v.nodes) if v.nodes else None for v in visits]
    callees = [
        [(n, sites) for n, sites in enumerate(v.calls) if sites and not (n == k and v.trips)]
        for k, v in enumerate(visits)
    ]
    totals, waiting = [lanes] + [0] * (len(visits) - 1), [0] * len(visits)
    for k, frames in enumerate(nodes):
        for n, sites in callees[k]:
            totals[n] += sites * (frames or 0)
            waiting[n] += frames is None
    found = [frames if v.always else None for v, frames in zip(visits, nodes, strict=True)]
    ready = [k for k, count in enumerate(waiting) if not count]
    while ready:
        k = ready.pop()
        frames = found[k]
        if frames is None:
            frames = found[k] = totals[k] * (visits[k].trips or 1)
        for n, sites in callees[k] if nodes[k] is None else ():
            totals[n] += sites * frames
            waiting[n] -= 1
            if not waiting[n]:
                ready.append(n)
    return tuple(found)


def calls_on_path(region: Region, kind: Callable[[int], Any]) -> collections.Counter[Any]:
    """The most calls of each kind, by their function, on any path through a region."""
    total: collections.Counter[Any] = collections.Counter()
    for op in region.ops:
        if isinstance(op, Call):
            total[kind(op.callee)] += 1
        elif isinstance(op, Switch):
            inner = (calls_on_path(region, kind) for region in op.regions)
            total += functools.reduce(operator.or_, inner)
    return total


def _leading(graph: Graph, control: Sequence[Sequence[Value]]) -> frozenset[Value]:
    """The arguments that those of further calls follow from, down to themselves."""
    follows: dict[Value, set[Value]] = {}
    for function, args in zip(graph.functions, control, strict=True):
        for arg, sources in _passed(graph, function, args):
            for source in sources:
                follows.setdefault(source, set()).add(arg)

    def after(arg: Value) -> Iterable[Value]:
        return follows.get(arg, ())

    return frozenset(arg for arg in follows if arg in transitive(after(arg), after))


def _passed(
    graph: Graph, function: Function, control: Sequence[Value]
) -> Iterator[tuple[Value, frozenset[Value]]]:
    """Each argument of each call that a function makes, and the own arguments it follows from."""
    origins: dict[Atom, frozenset[Value]] = {arg: frozenset({arg}) for arg in control}

    def of(atoms: Iterable[Atom]) -> frozenset[Value]:
        return frozenset().union(*(origins.get(atom, ()) for atom in atoms))

    def visit(region: Region) -> Iterator[Call]:
        for op in region.ops:
            if isinstance(op, Switch):
                for inner in op.regions:
                    yield from visit(inner)
                for out in op.outputs:
                    origins[out] = of(op.sources(out))
            else:
                if isinstance(op, Call):
                    yield op
                origins.update(dict.fromkeys(op.outputs, of(op.inputs)))

    for call in visit(function.body):
        for arg, atom in graph.arguments(call):
            yield arg, of([atom])


def _indexed(ops: Iterable[Op], binding: Binding, given: Iterable[Value]) -> Iterator[_Read]:
    """The reads of outer arrays at indices made of `given`."""
    origins: dict[Atom, frozenset[Value]] = {arg: frozenset({arg}) for arg in given}
    for op in ops:
        if not isinstance(op, Prim):
            continue
        if op.name in _INDEX_OPS:
            found = frozenset().union(*(origins.get(atom, ()) for atom in op.inputs))
            if found:
                origins.update(dict.fromkeys(op.outputs, found))
        elif op.name == "dynamic_slice":
            array, *starts = op.inputs
            axes = zip(starts, array.aval.shape, strict=True)
            read = [(origins[start], size) for start, size in axes if start in origins]
            if read and binding.is_array(array):
                yield read
