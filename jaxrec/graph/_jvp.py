"""The graph that computes the results of another and their derivative in one direction.

Each parameter that moves is followed, behind all parameters of its function, by its tangent, and
so are the results. An operation becomes those that `jax.jvp` makes of it, a call a call of the
function with tangents, a choice one between branches that compute tangents too. So the derivative
is a recursion as any other, with the same calls.

Source: Wengert, "A simple automatic derivative evaluation program" (1964); Pearlmutter & Siskind,
"Reverse-mode AD in a functional framework" (TOPLAS 2008), section 3, for functions that call.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec import _compat
from jaxrec._order import apply_equation, has_reverse_rule, has_rule
from jaxrec._values import replaced
from jaxrec.graph._build import region_of
from jaxrec.graph._ir import (
    Atom,
    Call,
    Function,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
)
from jaxrec.graph._moving import moving, places_moved


@dataclasses.dataclass(frozen=True)
class Jvp:
    """A graph with tangents.

    Attributes:
        graph: its parameters are those of the other graph, the same values, then tangents.
        tangents: of each parameter of the entry function and captured value that has one, which.
        moves: for each result of the entry function whether it has a tangent; those that have one
            follow all results.
        dots: every tangent that is a parameter, or a result of a call or a choice.
    """

    graph: Graph
    tangents: dict[Value, Value]
    moves: tuple[bool, ...]
    dots: frozenset[Value]


def jvp_graph(
    graph: Graph, given: Collection[Value], taken: Sequence[Collection[Atom]] = ()
) -> Jvp | None:
    """The graph of the derivative by some parameters of the entry function and captured values.

    Args:
        graph: the graph.
        given: the parameters and captured values.
        taken: for each derivative taken of its results already what rests, see `Program.taken`.

    Returns:
        The graph, or None where there is an operation whose derivative is not one of operations: it
        has a rule for reverse mode alone, or its derivative needs arrays that are constants.
    """
    if any(function.order for function in graph.functions):
        return None
    try:
        return _Transform(graph, moving(graph, given, taken), taken).graph()
    except _NoOperationsError:
        return None


class _NoOperationsError(Exception):
    """The derivative of an operation needs more than operations."""


class _Transform:
    def __init__(self, graph: Graph, moving: set[Atom], taken: Sequence[Collection[Atom]]) -> None:
        self._from, self._moving, self._taken = graph, moving, taken
        self._tangents: dict[Atom, Atom] = {}
        self._dots: set[Value] = set()
        self._again: dict[Atom, Atom] = {}  # what the operations of a derivative compute besides

    def graph(self) -> Jvp:
        entry = self._from.entry
        captured = self._with_tangents(self._from.captured)
        functions = tuple(map(self._function, self._from.functions))
        known = (*entry.params, *self._from.captured)
        tangents = {v: t for v in known if isinstance(t := self._tangents.get(v), Value)}
        moves = tuple(atom in self._moving for atom in entry.body.results)
        return Jvp(Graph(functions, captured), tangents, moves, frozenset(self._dots))

    def _function(self, function: Function) -> Function:
        params = self._with_tangents(function.params)
        pairs = zip(function.params, function.param_names, strict=True)
        names = [f"d{name}" for param, name in pairs if param in self._moving]
        names = (*function.param_names, *names)
        body = self._region(function.body, self._moved(function.body.results))
        return dataclasses.replace(function, params=params, param_names=names, body=body)

    def _with_tangents(self, values: Sequence[Value]) -> tuple[Value, ...]:
        """Values that an operation makes, or a function takes, and new ones for tangents."""
        made = [v for v in values if v in self._moving]
        dots = [dataclasses.replace(v) for v in made]
        self._tangents.update(zip(made, dots, strict=True))
        self._dots.update(dots)
        return (*values, *dots)

    def _of(self, atoms: Iterable[Atom]) -> tuple[Any, ...]:
        return tuple(self._tangents[atom] for atom in atoms)

    def _at(self, atoms: Iterable[Atom]) -> tuple[Atom, ...]:
        return tuple(self._again.get(atom, atom) for atom in atoms)

    def _moved(self, atoms: Sequence[Atom]) -> list[bool]:
        return [atom in self._moving for atom in atoms]

    def _region(self, region: Region, moved: Sequence[bool]) -> Region:
        """A region with tangents for some results; `moved`: which, though here they may rest."""
        ops = list(itertools.chain.from_iterable(map(self._op, region.ops)))
        dots = list(itertools.compress(region.results, moved))
        more, tangents = self._or_zeros(dots)
        return Region((*ops, *more), (*self._at(region.results), *tangents))

    def _or_zeros(self, atoms: Sequence[Atom]) -> tuple[list[Op], list[Atom]]:
        """The tangents of values that may rest, and the operations that make zeros for those."""
        ops: list[Op] = []
        tangents: list[Atom] = []
        for atom in atoms:
            if atom in self._moving:
                tangents.append(self._tangents[atom])
                continue
            zeros = _region(lambda aval=atom.aval: [jnp.zeros(aval.shape, aval.dtype)], ())
            ops += zeros.ops
            tangents += zeros.results
        return ops, tangents

    def _op(self, op: Op) -> Iterable[Op]:
        if isinstance(op, Call):
            return self._call(op)
        if isinstance(op, Switch):
            moved = self._moved(op.outputs)
            regions = tuple(self._region(region, moved) for region in op.regions)
            (index,) = self._at([op.index])
            return [Switch(index, regions, self._with_tangents(op.outputs))]
        return self._prim(op)

    def _call(self, op: Call) -> list[Op]:
        params = self._from.functions[op.callee].params
        given = list(itertools.compress(op.inputs, self._moved(params)))
        ops, tangents = self._or_zeros(given)
        inputs = (*self._at(op.inputs), *tangents)
        outputs = self._with_tangents(op.outputs)
        return [*ops, dataclasses.replace(op, inputs=inputs, outputs=outputs)]

    def _prim(self, op: Prim) -> tuple[Op, ...]:
        """What `jax.jvp` makes of an operation, or of what earlier derivatives made of it."""
        before = places_moved(op, self._taken) if has_rule(op.eqn) else []
        places = [k for k, moves in enumerate(self._moved(op.inputs)) if moves]
        results = [k for k, moves in enumerate(self._moved(op.outputs)) if moves]
        if not results and not any(before):
            return (dataclasses.replace(op, inputs=self._at(op.inputs)),)
        if not any(before) and has_reverse_rule(op.eqn):
            raise _NoOperationsError

        def run(*operands: Any) -> list[Any]:
            values, dots = operands[: len(op.inputs)], operands[len(op.inputs) :]

            def of_moving(*moving: Any) -> list[Any]:
                return apply_equation(op.eqn, replaced(values, places, moving), before)

            outs, made = jax.jvp(of_moving, [values[k] for k in places], list(dots))
            return [*outs, *(made[k] for k in results)]

        region = _region(run, (*self._at(op.inputs), *self._of(op.inputs[k] for k in places)))
        outs, tangents = region.results[: len(op.outputs)], region.results[len(op.outputs) :]
        self._again.update(zip(op.outputs, outs, strict=True))
        self._tangents.update(zip((op.outputs[k] for k in results), tangents, strict=True))
        return region.ops


def _region(fun: Any, inputs: Sequence[Atom]) -> Region:
    """The operations of a function of arrays."""
    closed = jax.make_jaxpr(fun)(*(atom.aval for atom in inputs))
    region = region_of(_compat.without_dead(closed), inputs)
    if region is None:
        raise _NoOperationsError
    return region
