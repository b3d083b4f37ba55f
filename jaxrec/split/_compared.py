"""Floats that control decides by and cells compute too, though not to the last bit.

The machine rounds after every operation. XLA need not: it makes one operation of a product and a
sum, a product of a division by a constant, and has functions of its own. A call that decides by a
number and then computes with another one, next to it, would take the root of a negative number.
So cells take such a number from control, and compute it for its derivative alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from jaxrec._jaxprs import MOVES
from jaxrec._transitive import transitive
from jaxrec._types import is_whole
from jaxrec.graph._ir import Atom, Graph, Op, Prim, Switch, Value, walk

if TYPE_CHECKING:
    from jaxrec.split._binding import Binding

_SEEN_THROUGH = MOVES | {"dynamic_slice", "neg", "convert_element_type", "stop_gradient"}
"""Operations that XLA sees through when it looks for a product behind a sum."""

_SUMS = {"add", "sub", "add_any", "reduce_sum"}

_EXACT = (
    _SEEN_THROUGH
    | {"add", "sub", "add_any"}
    | {"mul", "max", "min", "abs", "sign", "floor", "ceil", "select_n", "clamp"}
)
"""Operations with one result for given operands, unless XLA makes one of two of them."""


def compared(graph: Graph, binding: Binding, rounded: frozenset[Value]) -> frozenset[Value]:
    """The scalars that control decides by, of those that cells might compute otherwise."""
    return rounded & {v for v in _deciding(graph, binding) if not v.aval.shape}


def _deciding(graph: Graph, binding: Binding) -> set[Value]:
    """The floats in the control plane that integers and booleans there follow from."""
    start = [
        atom
        for op in graph.ops
        if isinstance(op, Prim)
        and any(is_whole(v.aval) and binding.is_control(v) for v in op.outputs)
        for atom in op.inputs
    ]

    def decides(atom: Atom) -> bool:
        return _is_float(atom) and binding.is_control(atom) and atom not in binding.demanded

    return transitive(start, graph.sources, decides)


def rounded_in(graph: Graph) -> frozenset[Value]:
    """The floats that XLA may compute to other last bits than the machine does."""
    found: set[Value] = set()
    while True:
        before = len(found)
        for op in graph.ops:
            if isinstance(op, Prim):
                if _rounds(graph, op, found):
                    found.update(filter(_is_float, op.outputs))
            elif isinstance(op, Switch):
                found.update(
                    v for v in op.outputs if _is_float(v) and not found.isdisjoint(op.sources(v))
                )
        for param, atoms in graph.passed.items():
            if _is_float(param) and not found.isdisjoint(atoms):
                found.add(param)
        if len(found) == before:
            return frozenset(found)


def read_by_cells(graph: Graph, values: frozenset[Value]) -> frozenset[Value]:
    """Those of some floats that more follows from than what they are compared with."""
    pending: list[Atom] = []
    for function in graph.functions:
        pending += function.body.results
        for op in walk(function.body):
            if isinstance(op, Prim):
                is_test = all(is_whole(out.aval) for out in op.outputs)
                pending += [] if is_test or values.issuperset(op.outputs) else op.inputs
            elif isinstance(op, Switch):
                pending += [atom for region in op.regions for atom in region.results]
            else:
                pending += op.inputs

    def sources(value: Value) -> Iterable[Atom]:
        op = graph.makers.get(value)
        return op.inputs if isinstance(op, Prim) else ()

    return frozenset(transitive(pending, sources, values.__contains__))


def _rounds(graph: Graph, op: Prim, rounded: set[Value]) -> bool:
    if op.name not in _EXACT:
        return any(isinstance(a, Value) for a in op.inputs)
    if any(a in rounded for a in op.inputs):
        return True
    return op.name in _SUMS and any(is_product(graph, a) for a in op.inputs)


def is_product(graph: Graph, atom: Atom) -> bool:
    """Whether XLA may make one operation of a value and of a sum that it is in."""
    op = graph.makers.get(_behind_moves(graph, atom))
    return isinstance(op, Prim) and op.name in ("mul", "integer_pow", "square")


def summed(graph: Graph, ops: Iterable[Op]) -> set[Atom]:
    """What the sums among some operations add up, as it was before it was moved."""
    sums = (op for op in ops if isinstance(op, Prim) and op.name in _SUMS)
    return {_behind_moves(graph, atom) for op in sums for atom in op.inputs}


def _behind_moves(graph: Graph, atom: Atom) -> Any:
    op = graph.makers.get(atom) if isinstance(atom, Value) else None
    while isinstance(op, Prim) and op.name in _SEEN_THROUGH:
        atom = op.inputs[0]
        op = graph.makers.get(atom) if isinstance(atom, Value) else None
    return atom


def _is_float(value: Atom) -> bool:
    return isinstance(value, Value) and jnp.issubdtype(value.aval.dtype, jnp.floating)
