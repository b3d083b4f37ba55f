"""Binding-time analysis: which values the control machine computes, and which it must.

Forward: a scalar is *computable* when it follows from control arguments, outer arrays and
constants by operations that the machine knows. Which arguments are control arguments is found by
a fixpoint that starts from all scalars and drops those for which some call site passes a value
that is not computable, unless control *demands* them: see `_demand`.

Backward: integers and booleans that are computable always live in the control plane. Floating
scalars live in the data plane, where they have derivatives, and a copy of them is computed by the
machine only where a predicate or an index needs it.

Source: Jones, Gomard & Sestoft, "Partial evaluation and automatic program generation" (1993),
chapter 8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from jaxrec._transitive import transitive
from jaxrec._types import is_whole
from jaxrec.graph._ir import (
    Atom,
    Call,
    Const,
    Graph,
    Op,
    Prim,
    Region,
    Switch,
    Value,
    has_call,
)
from jaxrec.graph._patience import has_to_wait
from jaxrec.graph._work import decides_work
from jaxrec.split import _scalar
from jaxrec.split._compared import compared, read_by_cells, rounded_in
from jaxrec.split._demand import Demand, find_demand


@dataclasses.dataclass(frozen=True)
class Arrays:
    """The values that all calls read.

    Attributes:
        outer_of: every outer value, with the value it stands for at the root.
        derived: values computed from outer values alone.
    """

    outer_of: dict[Value, Value]
    derived: frozenset[Value]

    def is_array(self, atom: Atom) -> bool:
        """Whether a value is an outer array, or computed from outer arrays alone."""
        return isinstance(atom, Value) and (atom in self.outer_of or atom in self.derived)

    def is_load(self, op: Op) -> bool:
        """Whether an operation reads elements of an outer array at computed indices."""
        if not (isinstance(op, Prim) and op.name == "dynamic_slice"):
            return False
        array = op.inputs[0]
        return self.is_array(array) and array.aval.dtype.name in _scalar.DTYPES


@dataclasses.dataclass(frozen=True)
class Binding(Arrays):
    """The result of the analysis.

    Attributes:
        computable: values that the control machine can compute.
        demanded: values that control needs and that follow from what cells compute.
        imports: those of them that the machine reads from tapes; it computes the others from these.
        deciding: values that decide which calls are made.
        compared: floats that cells take from control, and compute for their derivatives alone.
    """

    computable: frozenset[Value]
    demanded: frozenset[Value] = frozenset()
    imports: frozenset[Value] = frozenset()
    deciding: frozenset[Value] = frozenset()
    compared: frozenset[Value] = frozenset()

    def is_control(self, atom: Atom) -> bool:
        """Whether the control machine can supply a value."""
        if isinstance(atom, Const):
            return _scalar.fits(atom.aval)
        known = atom in self.computable or atom in self.demanded
        return known or (self.is_array(atom) and _scalar.fits(atom.aval))

    def is_export(self, atom: Atom) -> bool:
        """Whether cells take a value from the control plane: an integer scalar of a call."""
        return (
            isinstance(atom, Value)
            and atom in self.computable
            and not atom.aval.shape
            and not np.issubdtype(atom.aval.dtype, np.floating)
        )

    def is_control_switch(self, op: Op) -> bool:
        """Whether the scheduler decides a Switch; a cell decides the others."""
        return isinstance(op, Switch) and self.is_control(op.index)


def bind(graph: Graph, outer_of: dict[Value, Value]) -> Binding:
    """Splits the values of a graph between the planes."""
    arrays = _arrays_of(graph, outer_of)
    rounded, kept = rounded_in(graph), frozenset[Value]()
    again = read_by_cells(graph, rounded)
    while True:
        binding = _bind_keeping(graph, arrays, kept)
        demand = _demand(graph, binding, again)
        if not demand.params:
            binding = dataclasses.replace(
                binding,
                demanded=demand.values,
                imports=demand.imports,
                deciding=_following(graph, _choices(graph)),
            )
            return dataclasses.replace(binding, compared=compared(graph, binding, rounded))
        kept |= demand.params


def _bind_keeping(graph: Graph, arrays: Arrays, kept: frozenset[Value]) -> Binding:
    """The analysis with the parameters `kept` taken for control arguments in any case."""
    assumed = _scalar_params(graph, arrays.outer_of)
    while True:
        computable = _computable(graph, arrays, assumed)
        binding = Binding(arrays.outer_of, arrays.derived, computable)
        dropped = _not_computable_somewhere(graph, binding, assumed) - kept
        if not dropped:
            return binding
        assumed -= dropped


def _scalar_params(graph: Graph, outer_of: dict[Value, Value]) -> set[Value]:
    return {
        param
        for function in graph.functions
        for param in function.params
        if param not in outer_of and not param.aval.shape and _scalar.fits(param.aval)
    }


def _demand(graph: Graph, binding: Binding, again: frozenset[Value]) -> Demand:
    """What control needs beyond what it can compute, and where it takes it from.

    The machine could compute more if it had every scalar argument and every scalar result of a
    call or of a choice between cells. Where a choice needs such a value, or an operation on such
    values, the machine computes it from imports of them, since it would take a cell more to do so;
    where it needs any other result of a cell, or one that cells read `again`, it imports that.
    """
    results = {
        value
        for op in graph.ops
        if isinstance(op, Call) or decides_work(op)
        for value in op.outputs
        if not value.aval.shape and _scalar.fits(value.aval)
    }
    seeds = _scalar_params(graph, binding.outer_of) | results
    wide = _computable(graph, binding, seeds)
    return find_demand(graph, binding, wide - again)


def _arrays_of(graph: Graph, outer_of: dict[Value, Value]) -> Arrays:
    """The outer values, and those computed from them alone that may be computed for nothing."""
    found: set[Value] = set()
    surely = set(graph.entry.body.ops)
    for op in graph.ops:
        if isinstance(op, Prim) and not op.eqn.effects and op.inputs:
            known = [a for a in op.inputs if isinstance(a, Const) or a in outer_of or a in found]
            if len(known) == len(op.inputs) and (op in surely or not has_to_wait([op])):
                found.update(op.outputs)
    return Arrays(outer_of, frozenset(found))


def _computable(graph: Graph, arrays: Arrays, assumed: set[Value]) -> frozenset[Value]:
    found = set(assumed)

    def small(atom: Atom) -> bool:
        if isinstance(atom, Const):
            return _scalar.fits(atom.aval)
        return atom in found or (arrays.is_array(atom) and _scalar.fits(atom.aval))

    def visit(region: Region) -> None:
        for op in region.ops:
            if isinstance(op, Switch):
                for inner in op.regions:
                    visit(inner)
                for value in op.outputs:
                    if _scalar.fits(value.aval) and all(map(small, op.sources(value))):
                        found.add(value)
            elif isinstance(op, Prim) and not arrays.derived.issuperset(op.outputs):
                if arrays.is_load(op):
                    if all(map(small, op.inputs[1:])) and _scalar.fits(op.outputs[0].aval):
                        found.update(op.outputs)
                elif _scalar.is_known(op) and all(map(small, op.inputs)):
                    found.update(op.outputs)

    for function in graph.functions:
        visit(function.body)
    return frozenset(found)


def _not_computable_somewhere(graph: Graph, binding: Binding, assumed: set[Value]) -> set[Value]:
    return {
        param
        for call in graph.calls
        for param, atom in graph.arguments(call)
        if param in assumed and not binding.is_control(atom)
    }


def needed_control(graph: Graph, binding: Binding, exports: Iterable[Value]) -> frozenset[Value]:
    """The values that the control machine must compute.

    They are for choices, for what cells read, and for who looks at the arguments of calls.
    """
    start: list[Atom] = list(exports)
    start += [p for p in graph.entry.params if binding.is_control(p) and is_whole(p.aval)]
    switches = [op for op in graph.ops if isinstance(op, Switch)]
    start += [op.index for op in switches if binding.is_control_switch(op)]

    def sources(value: Value) -> Sequence[Atom]:
        return () if value in binding.imports else graph.sources(value)

    def is_made(atom: Atom) -> bool:
        return isinstance(atom, Value) and not binding.is_array(atom)

    return frozenset(transitive(start, sources, is_made))


def counting(graph: Graph, binding: Binding) -> frozenset[Value]:
    """The values of control that the number of calls follows from.

    They decide which are made, or tell those that are equal.
    """
    shared = [p for f in graph.functions if f.memo for p in f.params if not p.aval.shape]
    return _following(graph, [*_choices(graph), *filter(binding.is_control, shared)])


def _choices(graph: Graph) -> list[Atom]:
    """What decides which calls are made.

    An index that it follows from must be in range; others read what JAX reads.
    """
    return [op.index for op in graph.ops if isinstance(op, Switch) and has_call(op)]


def _following(graph: Graph, start: Iterable[Atom]) -> frozenset[Value]:
    """Some values and those that they follow from."""

    def sources(value: Value) -> Sequence[Atom]:
        op = graph.makers.get(value)
        if not isinstance(op, Call):
            return graph.sources(value)
        return [graph.functions[op.callee].body.results[op.outputs.index(value)]]

    return frozenset(transitive(start, sources, lambda atom: isinstance(atom, Value)))
