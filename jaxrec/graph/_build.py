"""From jaxprs with `rec_call` equations to the static tagged graph.

Nested `jit` and closed calls are inlined, `cond` becomes Switch and Merge, and what JAX alone
evaluates (loops, checkpoints and custom derivatives that make no calls) stays one operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec.graph._ir import Atom, Call, Const, Function, Graph, Op, Prim, Region, Switch, Value
from jaxrec.graph._sink import compute_where_read
from jaxrec.trace._call import branches_of, calls_in, makes_calls, rec_call_p
from jaxrec.trace._captures import variables_of
from jaxrec.trace._instance import Instance
from jaxrec.trace._program import TracedProgram

Env = dict[Any, Atom]


def build_graph(program: TracedProgram) -> tuple[Graph, list[Any]]:
    """Builds the graph of a traced program.

    Returns:
        The graph, and the values for its `captured`: arrays or tracers that bodies close over.

    Raises:
        UnsupportedError: a recursive call inside an operation that JAX alone evaluates.
    """
    builder = _Builder(variables=variables_of(x.definition.fun for x in program.instances))
    functions = tuple(builder.function(instance) for instance in program.instances)
    graph = compute_where_read(Graph(functions, tuple(builder.captured)))
    return graph, builder.captured_values


def region_of(closed: ClosedJaxpr, inputs: Sequence[Atom], *, plain: bool = False) -> Region | None:
    """A jaxpr that makes no calls as a region; None if it has arrays of its own.

    Args:
        closed: the jaxpr.
        inputs: what stands for its arguments.
        plain: whether what it computes is all that matters, and not its derivative.
    """
    builder = _Builder(plain=plain)
    region = builder.region(closed, inputs)
    return None if builder.captured else region


class _Builder:
    def __init__(
        self, *, plain: bool = False, variables: Mapping[int, tuple[str, Any]] | None = None
    ) -> None:
        self._variables = variables or {}
        self._called = _compat.called if plain else self._inlined
        self._ids = itertools.count()
        self.captured: list[Value] = []
        self.captured_values: list[Any] = []
        self._captured_by_id: dict[int, Atom] = {}
        self._name = ""
        self._sites = itertools.count()

    def value(self, aval: Any, variable: str = "") -> Value:
        return Value(next(self._ids), ShapedArray(aval.shape, aval.dtype), variable)

    def function(self, instance: Instance) -> Function:
        self._name, self._sites = instance.name, itertools.count()
        closed = instance.jaxpr
        assert closed is not None
        params = tuple(self.value(v.aval) for v in closed.jaxpr.invars)
        body = self.region(closed, params)
        source = instance.definition
        return Function(
            instance.name,
            params,
            instance.names,
            body,
            memo=source.memo,
            helper=source.helper,
            trips=source.trips,
            order=source.order,
        )

    def capture(self, value: Any) -> Atom:
        """A constant of a jaxpr: a scalar literal, or a value from outside the function."""
        if _compat.is_concrete(value) and np.ndim(value) == 0 and not _is_extended(value):
            return _constant(value, _plain_aval(value))
        if id(value) not in self._captured_by_id:
            variable, _ = self._variables.get(id(value), ("", None))
            node = self.value(_compat.aval_of(value), variable)
            self.captured.append(node)
            self.captured_values.append(value)
            self._captured_by_id[id(value)] = node
        return self._captured_by_id[id(value)]

    def region(self, closed: ClosedJaxpr, inputs: Sequence[Atom]) -> Region:
        env = self._scope(closed, inputs)
        ops = list(self.inline(closed.jaxpr, env))
        return Region(tuple(ops), tuple(_read(env, atom) for atom in closed.jaxpr.outvars))

    def _scope(self, closed: ClosedJaxpr, inputs: Sequence[Atom]) -> Env:
        env: Env = dict(zip(closed.jaxpr.invars, inputs, strict=True))
        for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True):
            env[var] = self.capture(const)
        return env

    def inline(self, jaxpr: Jaxpr, env: Env) -> Iterator[Op]:
        for eqn in jaxpr.eqns:
            yield from self.equation(eqn, env)

    def equation(self, eqn: JaxprEqn, env: Env) -> Iterator[Op]:
        inputs = tuple(_read(env, atom) for atom in eqn.invars)
        inner, branches = self._called(eqn), branches_of(eqn, inputs)
        if inner is not None:
            yield from self._inline_call(inner, eqn, inputs, env)
            return
        outputs = tuple(self.value(var.aval) for var in eqn.outvars)
        env.update(zip(eqn.outvars, outputs, strict=True))
        if eqn.primitive is rec_call_p:
            yield Call(next(self._sites), eqn.params["callee"].index, inputs, outputs)
        elif branches:
            regions = tuple(self.region(branch, mine) for branch, mine in branches)
            yield Switch(inputs[0], regions, outputs)
        else:
            self._check_no_call(eqn)
            yield Prim(eqn, inputs, outputs)

    @staticmethod
    def _inlined(eqn: JaxprEqn) -> ClosedJaxpr | None:
        """The jaxpr of a call that has no meaning for derivatives, or that makes calls."""
        always = eqn.primitive.name in _compat.ALWAYS_INLINED
        return _compat.inlined(eqn) if always or makes_calls(eqn) else None

    def _inline_call(
        self, inner: ClosedJaxpr, eqn: JaxprEqn, inputs: Sequence[Atom], env: Env
    ) -> Iterator[Op]:
        scope = self._scope(inner, inputs)
        yield from self.inline(inner.jaxpr, scope)
        for var, atom in zip(eqn.outvars, inner.jaxpr.outvars, strict=True):
            env[var] = _read(scope, atom)

    def _check_no_call(self, eqn: JaxprEqn) -> None:
        callee = next(calls_in(eqn), None)
        if callee is not None:
            raise UnsupportedError(
                f"{self._name} calls {callee.name} recursively inside {eqn.primitive.name}. "
                "Calls may stand in choices, loops, vmap, jit, checkpoint, and functions with "
                "derivative rules of their own; make this one outside and pass its result in."
            )


def _read(env: Env, atom: Any) -> Atom:
    if _compat.is_literal(atom):
        return _constant(atom.val, _plain_aval(atom.val, atom.aval))
    return env[atom]


def _constant(value: Any, aval: ShapedArray) -> Const:
    """A scalar as one of NumPy, which prints itself as a number."""
    return Const(np.asarray(value)[()], aval)


def _plain_aval(value: Any, aval: Any = None) -> ShapedArray:
    aval = _compat.aval_of(value) if aval is None else aval
    return ShapedArray(aval.shape, aval.dtype)


def _is_extended(value: Any) -> bool:
    return not isinstance(_compat.aval_of(value).dtype, np.dtype)
