"""The static tagged dataflow graph.

One node a construct of the recursive program, however deep it recurses at run time:

    Prim      a JAX operation
    Call_i    pushes the label i of its call site on the tag and enters the callee
    Return_i  pops it: the results of the call, written as the results of the Call node
    Switch    sends its operands to the region that the index chooses
    Merge     the results of a Switch, whichever region made them

A tag is the call path: the sequence of call-site labels from the root. The graph is static:
recursion never expands it, since all call sites of a function enter the same body.

Source: Kostopoulou et al., "Tagged static dataflow graphs" (2022), section 3; Arvind & Nikhil,
"Executing a program on the MIT tagged-token dataflow architecture" (1990).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive

from jaxrec import _compat, _jaxprs


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """A value of the graph: made once in the text, once per frame at run time.

    Attributes:
        id: its number in the graph.
        aval: its type.
        variable: of a value from outside, the user's variable that holds it, if it is known.
    """

    id: int
    aval: ShapedArray
    variable: str = ""

    def __repr__(self) -> str:
        return f"%{self.id}"


@dataclasses.dataclass(frozen=True, eq=False)
class Const:
    """A scalar constant written in the program."""

    value: Any
    aval: ShapedArray

    @property
    def array(self) -> jax.Array:
        """As an array of its type, which may be of 64 bits where a body alone has such types."""
        with _compat.with_types_of([self.aval]):
            return jnp.asarray(self.value, self.aval.dtype)

    def __repr__(self) -> str:
        return str(self.value)


Atom = Value | Const


@dataclasses.dataclass(frozen=True, eq=False)
class Prim:
    """A JAX operation, with the equation that it came from."""

    eqn: JaxprEqn
    inputs: tuple[Atom, ...]
    outputs: tuple[Value, ...]

    @property
    def name(self) -> str:
        """The name of the JAX primitive."""
        return self.eqn.primitive.name

    @functools.cached_property
    def is_compiled_anew(self) -> bool:
        """Whether JAX may compile it each time it is evaluated alone, and it does nothing else."""
        return not self.eqn.effects and _compat.is_compiled_anew(self.eqn)

    @functools.cached_property
    def in_derivative(self) -> frozenset[Primitive]:
        """The JAX operations that it is and holds, where a derivative is taken."""
        from jaxrec.graph._derived import primitives_in_derivative

        return frozenset(primitives_in_derivative(self.eqn))

    @functools.cached_property
    def flow(self) -> frozenset[tuple[int, int]]:
        """Pairs of an operand and a result that its derivative flows to."""
        from jaxrec.graph._flow import flow

        return flow(self)


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
    """A call site: Call_i on the way in, Return_i on the way out."""

    site: int
    callee: int
    inputs: tuple[Atom, ...]
    outputs: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Switch:
    """A choice between regions; its outputs are the Merge."""

    index: Atom
    regions: tuple[Region, ...]
    outputs: tuple[Value, ...]

    def sources(self, output: Value) -> list[Atom]:
        """What an output follows from: the index, and the result of each region."""
        k = self.outputs.index(output)
        return [self.index, *(region.results[k] for region in self.regions)]


Op = Prim | Call | Switch


@dataclasses.dataclass(frozen=True, eq=False)
class Region:
    """A straight run of operations; values of the enclosing region are in scope."""

    ops: tuple[Op, ...]
    results: tuple[Atom, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Function:
    """A recursive function at one signature.

    Attributes:
        name: as the user wrote it.
        params: its parameters.
        param_names: their names, as the user writes them.
        body: what a call runs.
        memo: whether calls with equal arguments are one call.
        helper: whether it runs a loop of another function, and so stands for no node of its own.
        trips: of a helper that calls itself, the most frames of it that one call from elsewhere
            leads to; None if that is not known.
        order: how many derivative rules its calls stand inside of; it has no derivative before so
            many have been taken.
        told: parameters that its callers compute beside the user's, to say what it decides.
    """

    name: str
    params: tuple[Value, ...]
    param_names: tuple[str, ...]
    body: Region
    memo: bool = False
    helper: bool = False
    trips: int | None = None
    order: int = 0
    told: frozenset[Value] = frozenset()


@dataclasses.dataclass(frozen=True, eq=False)
class Graph:
    """A group of mutually recursive functions and the values they close over.

    Attributes:
        functions: the functions; the first is the one that the user called.
        captured: values from outside the functions (closures), shared by all calls.
    """

    functions: tuple[Function, ...]
    captured: tuple[Value, ...]

    @property
    def entry(self) -> Function:
        """The function that the user called."""
        return self.functions[0]

    @functools.cached_property
    def ops(self) -> tuple[Op, ...]:
        """The operations of all functions, those in branches behind their choices."""
        return tuple(op for function in self.functions for op in walk(function.body))

    @functools.cached_property
    def makers(self) -> dict[Value, Op]:
        """The operation that each value is a result of."""
        return {value: op for op in self.ops for value in op.outputs}

    @functools.cached_property
    def calls(self) -> tuple[Call, ...]:
        """Every call that a function makes."""
        return tuple(op for op in self.ops if isinstance(op, Call))

    @functools.cached_property
    def told(self) -> frozenset[Value]:
        """The parameters that callers compute to say what functions decide."""
        return frozenset().union(*(function.told for function in self.functions))

    @functools.cached_property
    def shows(self) -> bool:
        """Whether a function prints for whoever debugs it."""
        return any(shows(op) for function in self.functions for op in function.body.ops)

    @functools.cached_property
    def passed(self) -> dict[Value, list[Atom]]:
        """What the calls pass for each parameter, a call after another."""
        found: dict[Value, list[Atom]] = {}
        for call in self.calls:
            for param, atom in self.arguments(call):
                found.setdefault(param, []).append(atom)
        return found

    def sources(self, value: Value) -> Sequence[Atom]:
        """What a value follows from within calls and from caller to callee; not from results."""
        op = self.makers.get(value)
        if op is None:
            return self.passed.get(value, ())
        if isinstance(op, Switch):
            return op.sources(value)
        return op.inputs if isinstance(op, Prim) else ()

    def arguments(self, call: Call) -> Iterator[tuple[Value, Atom]]:
        """Each parameter of the function that is called, and what the call passes for it."""
        return zip(self.functions[call.callee].params, call.inputs, strict=True)

    def __str__(self) -> str:
        from jaxrec.graph._print import format_graph

        return format_graph(self)

    def __repr__(self) -> str:
        return str(self)

    def dot(self) -> str:
        """Returns the graph in the DOT language of Graphviz."""
        from jaxrec.graph._dot import to_dot

        return to_dot(self)

    def _repr_svg_(self) -> str:
        from jaxrec.graph._draw import graph_svg

        return graph_svg(self)


def values_of(graph: Graph) -> Iterator[Value]:
    """Every value of a graph."""
    yield from graph.captured
    for function in graph.functions:
        yield from function.params
        for op in walk(function.body):
            yield from op.outputs


def first_free_id(graph: Graph) -> int:
    """The least number that no value of a graph has, nor one above it."""
    return 1 + max((value.id for value in values_of(graph)), default=0)


def walk(region: Region) -> Iterator[Op]:
    """Yields every operation of a region and of the regions inside it, in program order."""
    for op in region.ops:
        yield from within(op)


def within(op: Op) -> Iterator[Op]:
    """Yields an operation and those of the regions inside it, in program order."""
    yield op
    if isinstance(op, Switch):
        for region in op.regions:
            yield from walk(region)


def names_of(op: Op) -> Iterator[str]:
    """The names of the JAX operations that an operation is and holds, those in loops included."""
    return (eqn.primitive.name for eqn in equations_of(op))


def equations_of(op: Op) -> Iterator[JaxprEqn]:
    """The JAX operations that an operation is and holds, those in loops included."""
    for inner in within(op):
        if isinstance(inner, Prim):
            yield from _jaxprs.within(inner.eqn)


def reads(op: Op) -> tuple[Atom, ...]:
    """The operands that an operation itself reads, without those of its inner regions."""
    return (op.index,) if isinstance(op, Switch) else op.inputs


def free_atoms(op: Op) -> Iterator[Atom]:
    """Every operand of an operation, those of its inner regions included."""
    yield from reads(op)
    if isinstance(op, Switch):
        for region in op.regions:
            yield from region_atoms(region)


def region_atoms(region: Region) -> Iterator[Atom]:
    """Every operand that is read anywhere in a region, its results included."""
    for op in region.ops:
        yield from free_atoms(op)
    yield from region.results


def is_constant(op: Op) -> bool:
    """Whether derivatives take what an operation makes for a constant."""
    return isinstance(op, Prim) and op.name == "stop_gradient"


def shows(op: Op) -> bool:
    """Whether an operation prints, or calls a function of Python, for whoever debugs the program.

    That is `jax.debug.print` and `jax.debug.callback`, which return nothing.
    """
    prims = (inner for inner in within(op) if isinstance(inner, Prim))
    return any(_compat.is_of_debugging(effect) for prim in prims for effect in prim.eqn.effects)


def has_call(op: Op) -> bool:
    """Whether an operation is a call or holds one."""
    return any(isinstance(inner, Call) for inner in within(op))
