"""Which values move with some others: what a derivative by those is a derivative of."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import jax

from jaxrec import _compat
from jaxrec._order import apply_equation, has_rule
from jaxrec._types import has_derivative
from jaxrec.graph._ir import Atom, Graph, Op, Prim, Switch, Value, is_constant

ALWAYS = frozenset((
    "add", "sub", "mul", "div", "neg", "max", "min", "dot_general", "exp", "log", "sin", "cos",
    "tanh", "logistic", "sqrt", "rsqrt", "select_n", "broadcast_in_dim", "reshape", "transpose",
    "squeeze", "slice", "concatenate", "dynamic_slice", "gather", "reduce_sum",
    "convert_element_type", "pow", "integer_pow", "square", "abs", "log1p", "expm1", "erf",
    "reduce_max", "reduce_min", "cumsum", "pad", "rev", "dynamic_update_slice",
))  # fmt: skip
"""Operations that pass a derivative on whatever they are given; JAX is not asked about the most."""

_Flow = Callable[[Prim, tuple[bool, ...]], Sequence[bool]]
"""Which results of an operation move, if so its operands do."""


def moving(
    graph: Graph, given: Iterable[Value], taken: Sequence[Collection[Atom]] = ()
) -> set[Atom]:
    """The values that move with those given: a fixpoint over all calls.

    Args:
        graph: the graph.
        given: the values that a derivative is taken by.
        taken: for each derivative that was taken before what rested, see `Program.taken`.
    """
    flow = functools.cache(functools.partial(_as_jax, taken)) if ruled(graph) else _at_most
    found: set[Atom] = set(given)
    while True:
        before = len(found)
        for op in graph.ops:
            found.update(v for v in _moved_by(graph, op, found, flow) if has_derivative(v.aval))
        if len(found) == before:
            return found


def ruled(graph: Graph) -> tuple[Prim, ...]:
    """The operations that have derivative rules of the user's."""
    return tuple(op for op in graph.ops if isinstance(op, Prim) and has_rule(op.eqn))


def _moved_by(graph: Graph, op: Op, moving: set[Atom], flow: _Flow) -> Iterator[Value]:
    """The values that move because of an operation: its results, or parameters of what it calls."""
    if isinstance(op, Prim):
        moved = tuple(atom in moving for atom in op.inputs)
        if any(moved):
            yield from (v for v, moves in zip(op.outputs, flow(op, moved), strict=True) if moves)
    elif isinstance(op, Switch):
        yield from (v for v in op.outputs if not moving.isdisjoint(op.sources(v)[1:]))
    else:
        yield from (param for param, atom in graph.arguments(op) if atom in moving)
        results = graph.functions[op.callee].body.results
        yield from (v for v, atom in zip(op.outputs, results, strict=True) if atom in moving)


def _at_most(op: Prim, moved: tuple[bool, ...]) -> Sequence[bool]:
    """All results move. Where no rule looks on, a derivative of zero is as good as none."""
    del moved
    return [not is_constant(op)] * len(op.outputs)


def _as_jax(taken: Sequence[Collection[Atom]], op: Prim, moved: tuple[bool, ...]) -> Sequence[bool]:
    """Those whose derivative JAX does not know to be zero; a rule is applied to no others."""
    if op.name in ALWAYS:
        return [True]

    def run(*values: Any) -> list[Any]:
        return apply_equation(op.eqn, values, places_moved(op, taken))

    with _compat.without_mesh():
        closed = jax.make_jaxpr(run)(*(atom.aval for atom in op.inputs))
        return _compat.moved_results(closed, moved)


def places_moved(op: Prim, resting: Sequence[Collection[Atom]]) -> list[list[int]]:
    """For each of some derivatives the operands of an operation that it is taken by.

    Args:
        op: the operation.
        resting: for each derivative the operands of operations that do not move.
    """

    def moves(atom: Atom, rest: Collection[Atom]) -> bool:
        return isinstance(atom, Value) and has_derivative(atom.aval) and atom not in rest

    return [[k for k, atom in enumerate(op.inputs) if moves(atom, rest)] for rest in resting]
