"""From jaxprs with `rec_call` equations to the static tagged graph.

Nested `jit`, `checkpoint` and closed calls are inlined, `cond` becomes Switch and Merge, and what
JAX alone evaluates (loops, custom derivatives) stays one operation.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec.graph._ir import Atom, Call, Const, Function, Graph, Op, Prim, Region, Switch, Value
from jaxrec.primitives._call import rec_call_p
from jaxrec.trace._program import Instance, TracedProgram

_INLINED = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "core_call": "call_jaxpr"}
_REMAT = {"checkpoint": "jaxpr", "remat2": "jaxpr", "remat": "jaxpr"}

Env = dict[Any, Atom]


def build_graph(program: TracedProgram) -> tuple[Graph, list[Any]]:
    """Builds the graph of a traced program.

    Returns:
        The graph, and the values for its `captured`: arrays or tracers that bodies close over.

    Raises:
        UnsupportedError: a recursive call inside a loop or a custom derivative.
    """
    builder = _Builder()
    functions = tuple(builder.function(instance) for instance in program.instances)
    return Graph(functions, tuple(builder.captured)), builder.captured_values


class _Builder:
    def __init__(self) -> None:
        self._ids = itertools.count()
        self.captured: list[Value] = []
        self.captured_values: list[Any] = []
        self._captured_by_id: dict[int, Atom] = {}
        self._name = ""
        self._sites = itertools.count()

    def value(self, aval: Any) -> Value:
        return Value(next(self._ids), ShapedArray(aval.shape, aval.dtype))

    def function(self, instance: Instance) -> Function:
        self._name, self._sites = instance.name, itertools.count()
        closed = instance.jaxpr
        assert closed is not None
        params = tuple(self.value(v.aval) for v in closed.jaxpr.invars)
        body = self.region(closed, params)
        return Function(instance.name, params, instance.names, body)

    def capture(self, value: Any) -> Atom:
        """A constant of a jaxpr: a scalar literal, or a value from outside the function."""
        if _compat.is_concrete(value) and np.ndim(value) == 0 and not _is_extended(value):
            return Const(np.asarray(value)[()], _plain_aval(value))
        if id(value) not in self._captured_by_id:
            node = self.value(_compat.aval_of(value))
            self.captured.append(node)
            self.captured_values.append(value)
            self._captured_by_id[id(value)] = node
        return self._captured_by_id[id(value)]

    def region(self, closed: ClosedJaxpr, inputs: Sequence[Atom]) -> Region:
        env: Env = dict(zip(closed.jaxpr.invars, inputs, strict=True))
        ops = list(self.inline(closed.jaxpr, closed.consts, env))
        return Region(tuple(ops), tuple(_read(env, atom) for atom in closed.jaxpr.outvars))

    def inline(self, jaxpr: Jaxpr, consts: Sequence[Any], env: Env) -> Iterator[Op]:
        for var, const in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self.capture(const)
        for eqn in jaxpr.eqns:
            yield from self.equation(eqn, env)

    def equation(self, eqn: JaxprEqn, env: Env) -> Iterator[Op]:
        inputs = tuple(_read(env, atom) for atom in eqn.invars)
        name = eqn.primitive.name
        inner = self._inlined(eqn)
        if inner is not None:
            yield from self._inline_call(inner, eqn, inputs, env)
            return
        outputs = tuple(self.value(var.aval) for var in eqn.outvars)
        env.update(zip(eqn.outvars, outputs, strict=True))
        if eqn.primitive is rec_call_p:
            yield Call(next(self._sites), eqn.params["callee"].index, inputs, outputs)
        elif name == "cond":
            yield Switch(inputs[0], self._branches(eqn.params, inputs[1:]), outputs)
        else:
            self._check_no_call(eqn)
            yield Prim(eqn, inputs, outputs)

    def _branches(self, params: Mapping[str, Any], inputs: Sequence[Atom]) -> tuple[Region, ...]:
        return tuple(self.region(branch, inputs) for branch in params["branches"])

    def _inlined(self, eqn: JaxprEqn) -> ClosedJaxpr | None:
        name = eqn.primitive.name
        if name in _INLINED:
            inner = eqn.params[_INLINED[name]]
        elif name in _REMAT and _calls(eqn):
            inner = eqn.params[_REMAT[name]]
        else:
            return None
        return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())

    def _inline_call(
        self, inner: ClosedJaxpr, eqn: JaxprEqn, inputs: Sequence[Atom], env: Env
    ) -> Iterator[Op]:
        scope: Env = dict(zip(inner.jaxpr.invars, inputs, strict=True))
        yield from self.inline(inner.jaxpr, inner.consts, scope)
        for var, atom in zip(eqn.outvars, inner.jaxpr.outvars, strict=True):
            env[var] = _read(scope, atom)

    def _check_no_call(self, eqn: JaxprEqn) -> None:
        callee = next(_calls(eqn), None)
        if callee is not None:
            raise UnsupportedError(
                f"{self._name} calls {callee.name} recursively inside {eqn.primitive.name}. "
                "A recursive call inside a loop or a custom derivative is not supported: write the "
                "loop as a recursion (a rec_fn that calls itself once a step)."
            )


def _calls(eqn: JaxprEqn) -> Iterator[Instance]:
    if eqn.primitive is rec_call_p:
        yield eqn.params["callee"]
    for jaxpr in jaxprs_in_params(eqn.params):
        for inner in jaxpr.eqns:
            yield from _calls(inner)


def _read(env: Env, atom: Any) -> Atom:
    if _compat.is_literal(atom):
        return Const(atom.val, _plain_aval(atom.val, atom.aval))
    return env[atom]


def _plain_aval(value: Any, aval: Any = None) -> ShapedArray:
    aval = _compat.aval_of(value) if aval is None else aval
    return ShapedArray(aval.shape, aval.dtype)


def _is_extended(value: Any) -> bool:
    return not isinstance(_compat.aval_of(value).dtype, np.dtype)
