"""Native scalar programs: functions that the C++ machine runs wholly, results included.

A graph qualifies if every value that it needs is a scalar or a tiny array, made by operations that
the control machine knows, by calls, or by reading outer arrays. Then a call returns registers: no
tapes, no cells, no schedule.

Values are computed where they are first needed, so what only one branch needs is computed in that
branch. Calls and loops stay in program order; calls that need nothing of one another stand side by
side, which is what lets one worker steal from another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from jaxrec import _core
from jaxrec._transitive import transitive
from jaxrec.graph._inline import is_opaque, without_rules
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
    walk,
)
from jaxrec.split import _native_ops, _scalar
from jaxrec.split._binding import Binding
from jaxrec.split._names import shown_names
from jaxrec.split._native_code import Builder
from jaxrec.split._native_loops import Loop, Loops
from jaxrec.split._native_words import finish
from jaxrec.split._registers import ArrayTable, ControlValues, each, shaped
from jaxrec.split._scalar import DTYPES, Registers
from jaxrec.split._tangents import find_tangents

_MOST_REGISTERS = 1024
_MOST_INSTRUCTIONS = 20_000


@dataclasses.dataclass(frozen=True, eq=False)
class NativeProgram:
    """A program for the native machine.

    Attributes:
        words: the encoded program.
        names: the names that messages use.
        roots: the parameters of the entry function that calls pass, by position.
        outers: the arrays that all calls read, some computed beforehand.
    """

    words: np.ndarray[Any, np.dtype[np.int64]]
    names: str
    roots: tuple[int, ...]
    outers: tuple[Value, ...]


class _NotScalarError(Exception):
    """The graph needs a value that the machine cannot compute, because of an operation if given."""


def compile_native(
    graph: Graph,
    binding: Binding,
    taken: Sequence[Collection[Value]] = (),
    tangents: frozenset[Value] = frozenset(),
) -> NativeProgram | None:
    """Compiles a graph for the native machine, or returns None if it does not qualify.

    Args:
        graph: the graph.
        binding: its planes.
        taken: for each derivative taken of its results what rests, see `Program.taken`.
        tangents: the tangents in a graph that computes derivatives, see `find_tangents`.
    """
    try:
        _check_operations(graph, binding)
        graph = without_rules(graph, taken, binding.derived)
        scope = _Scope(graph, binding, tangents)
        scope.check(_native_ops.is_known)
        compiled = [_compile_function(scope, f) for f in graph.functions]
    except _NotScalarError:
        return None
    entry = graph.entry
    return NativeProgram(
        words=np.asarray(_encode(scope, compiled), np.int64),
        names=shown_names(graph, map(scope.passed, graph.functions), scope.table.values),
        roots=tuple(entry.params.index(p) for p in scope.passed(entry)),
        outers=tuple(scope.table.values),
    )


def unknown_operation(graph: Graph, binding: Binding) -> str | None:
    """An operation of scalars that the machine does not know, if one keeps it from a graph."""
    try:
        _check_operations(graph, binding)
    except _NotScalarError as error:
        scalars = (op.name for op in error.args if all(a.aval.ndim == 0 for a in op.inputs))
        return next(scalars, None)
    return None


def _check_operations(graph: Graph, binding: Binding) -> None:
    """Raises where the machine cannot compute an operation, whatever rules become."""
    _Scope(graph, binding, ()).check(lambda op: _native_ops.is_known(op) or is_opaque(op))


class _Scope:
    """What all functions of a graph share: the arrays that calls read, and what is needed."""

    def __init__(self, graph: Graph, binding: Binding, tangents: Iterable[Value]) -> None:
        self.graph, self.outer_of = graph, binding.outer_of
        self.loops = Loops(graph)
        self.tangents = find_tangents(graph, self.loops, tangents)
        # The others are computed beforehand, where zeros stay too, but in sums as a whole.
        makers = ((v, graph.makers.get(v)) for v in binding.derived & self.tangents)
        own = {v for v, op in makers if isinstance(op, Prim) and _native_ops.is_known(op)}
        own |= _constants(graph, binding.derived)
        self.arrays = dataclasses.replace(binding, derived=binding.derived - own)
        self.deciding = binding.deciding
        self.needed: set[Atom] = set()
        self.table = ArrayTable(self.arrays)

    def passed(self, function: Function) -> list[Value]:
        """The parameters that calls pass in registers."""
        return [p for p in function.params if p not in self.outer_of]

    def check(self, is_known: Callable[[Prim], bool]) -> None:
        """Finds what is needed; raises unless the machine can compute it.

        Args:
            is_known: whether the machine can compute an operation, or may.
        """
        todo: list[Atom] = [p for f in self.graph.functions for p in self.passed(f)]
        for function in self.graph.functions:
            todo += function.body.results
            for op in walk(function.body):
                if isinstance(op, Call):
                    todo += self.arguments(op)
                elif isinstance(op, Switch) and has_call(op):
                    todo.append(op.index)
        self.needed = transitive(todo, lambda atom: self._operands(atom, is_known))

    def arguments(self, op: Call) -> list[Atom]:
        """What a call passes in registers."""
        return [a for p, a in self.graph.arguments(op) if p not in self.outer_of]

    def _operands(self, atom: Atom, is_known: Callable[[Prim], bool]) -> Sequence[Atom]:
        """What a needed value is computed from."""
        if not _scalar.fits(atom.aval):
            raise _NotScalarError
        if isinstance(atom, Const) or self.arrays.is_array(atom):
            return ()
        op = self.loops.makers.get(atom)
        if isinstance(op, Switch):
            return op.sources(atom)
        if not isinstance(op, Prim):
            return ()
        loop = self.loops.of(op)
        if loop is not None:
            return [*loop.inits, *loop.carried, *loop.results]
        if self.arrays.is_load(op):
            return op.inputs[1:]
        if not is_known(op):
            raise _NotScalarError(op)
        return op.inputs


def _constants(graph: Graph, derived: frozenset[Value]) -> set[Value]:
    """The scalars among derived values that follow from constants: known while compiling."""
    found: set[Value] = set()
    for op in graph.ops:
        if not isinstance(op, Prim) or not derived.issuperset(op.outputs):
            continue
        known = all(isinstance(a, Const) or a in found for a in op.inputs)
        scalars = all(a.aval.ndim == 0 for a in (*op.inputs, *op.outputs))
        if known and scalars and _scalar.is_known(op):
            found.update(op.outputs)
    return found


@dataclasses.dataclass(frozen=True, eq=False)
class _Code:
    function: Function
    words: Sequence[int]
    num_registers: int


Finish = Callable[[], None]
"""Emits what comes after a region: moves to merged registers, or the return."""


def _compile_function(scope: _Scope, function: Function) -> _Code:
    compiler = _FunctionCompiler(scope, function)
    compiler.region(function.body, lambda: compiler.return_(function.body.results), is_last=True)
    words, size = finish(compiler.to.code, compiler.to.num_params)
    if size > _MOST_REGISTERS:
        raise _NotScalarError
    return _Code(function, words, size)


class _FunctionCompiler:
    def __init__(self, scope: _Scope, function: Function) -> None:
        self.scope, self.function = scope, function
        params = scope.passed(function)
        self.to = Builder(sum(p.aval.size for p in params))
        self.values = ControlValues(
            scope.loops.makers,
            scope.arrays,
            scope.deciding,
            scope.table,
            self.to,
            tangents=scope.tangents,
        )
        first = 0
        for param in params:
            self._bind(param, shaped(range(first, first + param.aval.size), param))
            first += param.aval.size

    # Calls, choices and loops, in program order.

    def region(self, region: Region, after: Finish, *, is_last: bool) -> None:
        """Emits a region and what comes after it; `is_last`: that is a return."""
        steps = [op for op in region.ops if isinstance(op, Call) or self._is_needed(op)]
        run: list[Call] = []
        for k, op in enumerate(steps):
            if isinstance(op, Call):
                if any(self._waits(atom, run) for atom in op.inputs):
                    self._calls(run)
                run.append(op)
                continue
            loop = self.scope.loops.of(op)
            if loop is not None:
                if any(self._waits(atom, run) for atom in self._read_by(loop)):
                    self._calls(run)
                self._loop(op, loop)
                continue
            self._calls(run)
            assert isinstance(op, Switch)
            if is_last and k == len(steps) - 1:
                self._last_switch(op, after)
                return
            self._switch(op)
        self._calls(run)
        after()

    def _is_needed(self, op: Op) -> bool:
        if isinstance(op, Prim) and self.scope.loops.of(op) is None:
            return False
        return has_call(op) or bool(self._needed_outputs(op))

    def _needed_outputs(self, op: Op) -> dict[int, Value]:
        """The outputs of a choice or of a loop that anybody reads, by position."""
        is_array, needed = self.scope.arrays.is_array, self.scope.needed
        return {k: v for k, v in enumerate(op.outputs) if v in needed and not is_array(v)}

    def _waits(self, atom: Atom, run: Sequence[Call]) -> bool:
        """Whether a value follows from the result of a call that is not emitted yet."""
        pending = {v for call in run for v in call.outputs}
        todo, seen = [atom], set[Atom]()
        while todo:
            atom = todo.pop()
            if atom in pending:
                return True
            if atom not in seen:
                seen.add(atom)
                todo += self.values.operands(atom)
        return False

    def _calls(self, run: list[Call]) -> None:
        """Emits independent calls side by side, behind everything that they need."""
        found = [self._registers(self.scope.arguments(call)) for call in run]
        arguments = [self.to.loaded(given) for given in found]
        for call, given in zip(run, arguments, strict=True):
            results = [r for v in call.outputs for r in each(self._fresh(v))]
            self.to.add("CALL", results, given, (call.callee, call.site))
        run.clear()

    def return_(self, results: Sequence[Atom]) -> None:
        """Emits a return."""
        registers = self._registers(results)
        value = self.to.known(registers[0]) if len(registers) == 1 else None
        if value is not None and not self.function.memo:
            self.to.add("RETURN_IMM", detail=(np.asarray(value).dtype, value))
        else:
            self.to.add("RETURN", (), registers)

    def _last_switch(self, op: Switch, after: Finish) -> None:
        """Each branch goes on to the return by itself, without a merge."""

        def end(region: Region) -> None:
            def bind() -> None:
                for k, value in self._needed_outputs(op).items():
                    self.values.registers[value] = self.values.get(region.results[k])
                after()

            self.region(region, bind, is_last=True)

        self._branches(op, end)

    def _switch(self, op: Switch) -> None:
        merged = {k: self._fresh(v) for k, v in self._needed_outputs(op).items()}
        join = self.to.label()

        def end(region: Region) -> None:
            start = self.to.num_registers

            def move() -> None:
                for k, targets in merged.items():
                    sources = each(self.values.get(region.results[k]))
                    for target, source in zip(each(targets), sources, strict=True):
                        self.to.move(target, source, start)
                self.to.add("JUMP", targets=(join,))

            self.region(region, move, is_last=False)

        self._branches(op, end)
        self.to.place(join)

    def _branches(self, op: Switch, end: Callable[[Region], None]) -> None:
        """Emits the branches; what is computed in one is not there in another."""
        index = self.values.scalar(op.index)
        known = self.to.known(index)
        if known is not None:
            chosen = op.regions[min(max(int(known), 0), len(op.regions) - 1)]
            self._branch(chosen, end)
            return
        regions = [(self.to.label(), region) for region in op.regions]
        if len(regions) == 2:
            if self.to.branch(index, regions[1][0]):
                (_, first), (label, second) = regions
                regions = [(-1, second), (label, first)]
            self._branch(regions.pop(0)[1], end)
        else:
            self.to.add("SWITCH", (), (index,), (), [label for label, _ in regions])
        for label, region in regions:
            self.to.place(label)
            self._branch(region, end)

    def _branch(self, region: Region, end: Callable[[Region], None]) -> None:
        if len(self.to.code) > _MOST_INSTRUCTIONS:
            raise _NotScalarError
        before = dict(self.values.registers)
        end(region)
        self.values.registers = before

    def _read_by(self, loop: Loop) -> list[Atom]:
        """The values that must be there before a loop."""
        is_array, needed = self.scope.arrays.is_array, self.scope.needed
        return [*loop.inits, *(a for a in loop.free if a in needed and not is_array(a))]

    def _loop(self, op: Op, loop: Loop) -> None:
        """Emits a loop; what is computed in a turn is not there behind it."""
        starts = [self.values.get(atom) for atom in self._read_by(loop)]
        own = [self._fresh(v) for v in loop.carried]
        self._fill(own, starts[: len(own)], len(self.to.code))
        before = dict(self.values.registers)
        top = self.to.label()
        self.to.place(top)
        begin = len(self.to.code)
        self.region(loop.cond, lambda: None, is_last=False)
        end = self._leave(loop.cond.results[0])
        self.region(loop.body, lambda: None, is_last=False)
        self._fill(own, [self.values.get(atom) for atom in loop.body.results], begin)
        self.to.add("LOOP", (), _flat(own), (), (top,))
        self.to.place(end)
        self.values.registers = before
        outputs = own[len(own) - len(op.outputs) :]
        self.values.registers.update(zip(op.outputs, outputs, strict=True))

    def _fill(self, own: Sequence[Registers], values: Sequence[Registers], begin: int) -> None:
        """Gives what a loop carries other values; `begin`: of the code that computes them."""
        self.to.copy_all(dict(zip(_flat(own), _flat(values), strict=True)), begin)

    def _leave(self, cond: Atom) -> int:
        """Jumps unless a condition holds; returns the label, to be placed where the loop ends."""
        target = self.to.label()
        if self.to.branch(self.values.scalar(cond), target):
            return target
        end = self.to.label()
        self.to.add("JUMP", targets=(end,))
        self.to.place(target)
        return end

    def _registers(self, atoms: Sequence[Atom]) -> list[int]:
        return _flat([self.values.get(atom) for atom in atoms])

    def _fresh(self, value: Value) -> Registers:
        """New registers for what a call or a choice makes."""
        self._bind(value, self.values.fresh(value))
        return self.values.registers[value]

    def _bind(self, value: Value, registers: Registers) -> None:
        self.values.registers[value] = registers
        if value.aval.dtype == np.dtype(bool):
            for register in each(registers):
                self.to.mark_bool(register)


def _flat(values: Sequence[Registers]) -> list[int]:
    return [register for registers in values for register in each(registers)]


def _encode(scope: _Scope, compiled: Sequence[_Code]) -> list[int]:
    entry = scope.graph.entry
    words = [_core.NATIVE_MAGIC, _core.NATIVE_VERSION, len(scope.table.values)]
    for value in scope.table.values:
        words += [DTYPES[value.aval.dtype.name], value.aval.ndim]
    for atoms in (scope.passed(entry), entry.body.results):
        words.append(len(atoms))
        for atom in atoms:
            words += [DTYPES[atom.aval.dtype.name], atom.aval.size]
    words.append(len(compiled))
    for code in compiled:
        words.append(int(code.function.memo))
        for atoms in (scope.passed(code.function), code.function.body.results):
            types = [DTYPES[a.aval.dtype.name] for a in atoms for _ in range(a.aval.size)]
            words += [len(types), *types]
        words += [code.num_registers, len(code.words), *code.words]
    return words
