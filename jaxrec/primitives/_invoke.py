"""From a call by the user to a bound primitive."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec import _compat
from jaxrec._errors import SignatureError, UnsupportedError
from jaxrec._executor import Choice, current_executor
from jaxrec._host_options import default_device
from jaxrec.graph._build import build_graph
from jaxrec.graph._ir import Graph
from jaxrec.invocation._params import Params
from jaxrec.primitives._alike import batched
from jaxrec.primitives._capacity import decide_capacity
from jaxrec.primitives._native import is_native
from jaxrec.primitives._options import Options
from jaxrec.primitives._repeat import NUMBERS, Repeat
from jaxrec.primitives._rules import rec, rec_example
from jaxrec.primitives._traced import Traced, Traces
from jaxrec.schedule._platform import platform_named
from jaxrec.split._program import Program
from jaxrec.split._split import split
from jaxrec.trace._instance import Definition
from jaxrec.trace._pass import Pass
from jaxrec.trace._paths import ROOT, path_of_derivative
from jaxrec.trace._program import TracedProgram
from jaxrec.trace._signature import Signature, leaf_aval, leaf_names, too_large


class Calls(NamedTuple):
    """Every call of a collected invocation; each field has a leading axis `[max_calls]`.

    Attributes:
        args: the arguments, with None for each leaf that is not a control scalar of a call.
        results: the results.
        lane: which lane of `in_axes` made the call.
        valid: which rows are calls.
    """

    args: Any
    results: Any
    lane: jax.Array
    valid: jax.Array


class Invocation:
    """One call of a recursive function from outside."""

    def __init__(
        self,
        definition: Definition,
        args: Sequence[Any],
        options: Options,
        cache: Traces,
        in_axes: Any = None,
        around: Pass | None = None,
    ) -> None:
        self._definition, self._options, self._around = definition, options, around
        self._args = tuple(args)
        self._leaves, self._tree = jax.tree.flatten(self._args)
        unmapped: list[int | None] = [None] * len(self._leaves)
        axes = unmapped if in_axes is None else self._flat_axes(in_axes)
        self._axes = axes
        self._traced = self._find(cache)

    def _flat_axes(self, in_axes: Sequence[Any]) -> list[int | None]:
        """The mapped axis of every argument leaf, from axes of each argument as for `jax.vmap`."""
        pairs = zip(in_axes, self._args, strict=True)
        found = [axis for axes, arg in pairs for axis in _leaves_of(axes, arg)]
        names = leaf_names(self._definition.arg_names, self._args)
        for name, axis in zip(names, found, strict=True):
            if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
                raise SignatureError(
                    f"in_axes has {axis!r} for {name}, expected an integer or None"
                )
        return found

    @property
    def program(self) -> Program:
        """The traced and split program."""
        return self._traced.program

    @property
    def arg_names(self) -> tuple[str, ...]:
        """The names of the arguments that are not static."""
        return self._definition.arg_names

    @property
    def graph(self) -> Graph:
        """The graph of the program, as it was traced."""
        return self._traced.graph

    def _find(self, cache: Traces) -> Traced:
        """What is traced for arguments of these types; tracing it if it is not yet."""
        try:
            types = tuple(map(_compat.aval_of, self._leaves))
        except (TypeError, OverflowError):
            return self._trace(cache)  # says which argument is no array
        definition, axes = self._definition, tuple(self._axes)
        key = definition, self._options.traced_by, self._tree, types, axes, _settings()
        found = cache.current(key)
        if found is not None:
            return found
        traced = self._trace(cache)
        if traced.lasts:
            cache.put([key], traced)
        return traced

    def _trace(self, cache: Traces) -> Traced:
        signature = self._signature()
        found = cache.current(self._key(signature))
        if found is not None:
            return found
        names = leaf_names(self._definition.arg_names, self._args)
        with _compat.without_mesh():
            source = TracedProgram(self._definition, names, signature, self._around)
        try:
            self._check_axes(source.axes, source.collectives)
            graph, captured = build_graph(source)
            closure, others = source.closure(), source.specialised()
        finally:
            source.let_go()
        result = source.entry.result
        assert result is not None
        args = source.entry.args  # a number of Python has taken the type of arrays that follow it
        program = split(graph)
        lasts = not source.axes and all(map(_compat.is_concrete, captured))
        traced = Traced(
            graph,
            program,
            args.strong(),
            tuple(captured),
            result,
            source.has_path,
            lasts,
            closure,
            others,
        )
        if not lasts:
            cache.keep_for_now(traced)
            return traced
        known = cache.current(self._key(args))  # by a call with arrays for its numbers of Python
        cache.put([self._key(signature), self._key(args)], known or traced)
        return known or traced

    def _check_axes(self, used: frozenset[Any], collectives: frozenset[str]) -> None:
        stray = used - set(jax.sharding.get_abstract_mesh().manual_axes)
        if stray:
            raise UnsupportedError(
                f"{self._definition.name} computes with the axis {', '.join(map(repr, stray))} of "
                "a vmap around it, as jax.lax.psum and axis_index do. The lanes of a recursive "
                "function call apart from one another, so they never meet in its body. Use the "
                "axis outside, on arguments or results, or inside the body alone, in a vmap there "
                "and before a choice between calls."
            )
        if collectives:
            raise UnsupportedError(
                f"{self._definition.name} waits in its body for the other devices of a shard_map "
                f"around it ({', '.join(sorted(collectives))}). Each device batches its own calls, "
                "so they would wait for one another without end. Use the collective operation "
                "outside, on arguments or results."
            )

    def _signature(self) -> Signature:
        """The types of the arguments, less their mapped axes."""
        definition = self._definition
        names = leaf_names(definition.arg_names, self._args)
        avals = tuple(
            _without_axis(leaf_aval(x, f"argument {n} of {definition.name}"), a, n)
            for n, x, a in zip(names, self._leaves, self._axes, strict=True)
        )
        return Signature(self._tree, avals)

    def _key(self, signature: Signature) -> Any:
        return self._definition, self._options.traced_by, signature, _settings()

    def call(self) -> Any:
        """Runs the function once."""
        operands, params = self._operands()
        if _compat.maps_now(operands):
            return self._traced.result(rec_example(operands, params))
        return self._traced.first_result(rec(_in_a_lane(operands, params), params))

    def repeat(self, given: int) -> Repeat | None:
        """For a call of a function of scalars: the call over again with other values.

        Args:
            given: how many leaves the arguments have, which are all of them if none has a default.
        """
        traced, is_whole = self._traced, given == len(self._leaves)
        if self.program.native is None or not (traced.lasts and is_whole) or traced.hidden:
            return None
        params = self._params()
        is_here = params.host is None or params.host.is_default
        return Repeat(traced, params, self._leaves) if is_native(params) and is_here else None

    def collect(self) -> tuple[Any, Calls]:
        """Runs the function, mapped over `in_axes`, and reports every call."""
        if any(f.order and not f.helper for f in self.program.graph.functions):
            raise UnsupportedError(
                f"collect of {self._definition.name}: a custom_vjp or custom_jvp in its body makes "
                "recursive calls, which are not calls of the same function, since their "
                "derivatives are those of the rule. Make the calls outside of it and pass their "
                "results in."
            )
        if self._traced.others:
            raise UnsupportedError(
                f"collect of {self._definition.name}: it calls itself with other static arguments "
                f"({'; '.join(self._traced.others)}). With each it is another function, and the "
                "calls of one function are reported. Pass what changes from call to call as an "
                "array, and choose by it with jaxrec.cond or jaxrec.switch."
            )
        operands, params = self._mapped("collect", collect=True)
        params = decide_capacity(params, operands)
        outs = rec(operands, params)
        count = len(self.program.result_avals)
        is_mapped = any(a is not None for a in self._axes)
        results = outs[:count]
        result = self._traced.result(results) if is_mapped else self._traced.first_result(results)
        calls = Calls(
            args=self._args_of_calls(outs[2 * count : -2]),
            results=self._traced.result(outs[count : 2 * count]),
            lane=outs[-2],
            valid=outs[-1],
        )
        return result, calls

    def _args_of_calls(self, control: Sequence[Any]) -> tuple[Any, ...]:
        found = dict(zip(self.program.control, control, strict=True))
        leaves = iter([found.get(k) for k in range(len(self._leaves))])
        trees = self._tree.children()
        return tuple(self._shown(t, [*itertools.islice(leaves, t.num_leaves)]) for t in trees)

    def _shown(self, tree: Any, leaves: Sequence[Any]) -> Any:
        """An argument as calls report it, with None in the places of leaves."""
        try:
            return tree.unflatten(leaves)
        except Exception as error:
            if all(x is None for x in leaves):
                return None
            raise UnsupportedError(
                f"collect of {self._definition.name}: an argument that holds control scalars is of "
                "a class that takes no None for its other leaves, as calls.args has them "
                f"({type(error).__name__}: {error}). Pass the control scalars beside it."
            ) from error

    def known(self, what: str) -> tuple[Params, list[Any]]:
        """The parameters and operands, for a report on their values.

        Raises:
            UnsupportedError: a value is not known. `what` is the name of the report.
        """
        self._check_known(what)
        operands, params = self._mapped(what)
        return params, operands

    def _mapped(self, what: str, collect: bool = False) -> tuple[list[Any], Params]:
        """The operands and parameters, with axes mapped those that `jax.vmap` makes of them.

        Args:
            what: whose `in_axes` they are.
            collect: whether all calls are reported.
        """
        pairs = list(zip(self._leaves, self._axes, strict=True))
        sizes = {jnp.shape(x)[axis] for x, axis in pairs if axis is not None}
        if len(sizes) > 1:
            raise SignatureError(
                f"{what} of {self._definition.name}: in_axes maps axes of different sizes: "
                f"{sorted(sizes)}, expected one size"
            )
        operands, params = self._operands(collect)
        if not sizes:
            return _in_a_lane(operands, params), params
        traced, axes = self._traced, [a if a is None else a % jnp.ndim(x) for x, a in pairs]
        axes += [None] * len(traced.hidden)
        captured = [None] * len(traced.captured)
        dims = [axes[k] for k in traced.outers] + captured + [axes[k] for k in traced.program.roots]
        batch = batched(params, operands, dims, bare=True)
        return batch.operands, batch.params

    def _check_known(self, what: str) -> None:
        names = leaf_names(self._definition.arg_names, self._args)
        given = [
            (f"the value of argument {n}", x) for n, x in zip(names, self._leaves, strict=True)
        ]
        given += [("a value that it closes over", x) for x in self._traced.captured]
        for name, leaf in given:
            if isinstance(leaf, jax.ShapeDtypeStruct) or not _compat.is_concrete(leaf):
                raise UnsupportedError(
                    f"{self._definition.name}.{what}: {name} is not known, "
                    f"got {leaf}. Which calls are made follows from values: pass arrays, outside "
                    "of jit, vmap and grad, those of several examples with in_axes=. From types "
                    f"follows the graph: {self._definition.name}.graph(...)."
                )

    def _operands(self, collect: bool = False) -> tuple[list[Any], Params]:
        """The operands and parameters of one invocation, whose lane has no axis.

        Args:
            collect: whether all calls are reported.
        """
        traced = self._traced
        leaves = [self._as_array(k) for k in range(len(self._leaves))]
        if traced.hidden:
            leaves += self._hidden()
        captured = [_as_array(x, x.dtype) for x in traced.captured]
        places = traced.outers, traced.program.roots
        outers, roots = ([leaves[k] for k in each] for each in places)
        return [*outers, *captured, *roots], self._params(collect)

    def _hidden(self) -> list[Any]:
        """The arguments that are none of the user's."""
        hidden, around = list(map(np.asarray, self._traced.hidden)), self._around
        if around is not None and self._traced.has_path and not around.probing:
            hidden[: len(ROOT)] = path_of_derivative(next(around.derivatives))
        return hidden

    def _as_array(self, k: int) -> Any:
        """The array of a leaf of the arguments."""
        if isinstance(self._leaves[k], jax.ShapeDtypeStruct):
            name = leaf_names(self._definition.arg_names, self._args)[k]
            raise SignatureError(
                f"argument {name} of {self._definition.name} is {self._leaves[k]}, which has a "
                "type but no value. Pass an array; for types alone there are "
                f"{self._definition.name}.graph(...) and jax.eval_shape."
            )
        try:
            return _as_array(self._leaves[k], self._traced.dtypes[k])
        except OverflowError:
            definition, dtype = self._definition, self._traced.dtypes[k]
            name = leaf_names(definition.arg_names, self._args)[k]
            where = f"argument {name} of {definition.name}"
            raise too_large(where, self._leaves[k], dtype) from None

    def _check_shown(self, executor: str) -> None:
        if self.program.graph.shows and executor != "reference":
            raise UnsupportedError(
                f"{self.program.name} prints (jax.debug.print or jax.debug.callback), and on "
                f'executor "{executor}" its calls run in batches and in any order. Call it under '
                'jr.executor("reference"), which runs them one after the other as Python does, or '
                "see every call with jaxrec.collect."
            )

    def _params(self, collect: bool = False) -> Params:
        """The static parameters of one invocation."""
        options, chosen, program = self._options, current_executor(), self.program
        device = default_device() if chosen.host is None else chosen.host.devices[0]
        platform = platform_named(device.platform)
        of = (options.max_calls, collect, chosen, options.policy, options.workers, platform)

        def make() -> Params:
            self._check_shown(chosen.name)
            return Params(
                program=program,
                lanes=1,
                patterns=(None,) * len(program.outers),
                declared=options.max_calls,
                max_calls=None,
                collect=collect,
                executor=chosen.name,
                policy=options.policy,
                host=chosen.host,
                workers=options.workers,
                platform=platform,
            )

        return program.cache.once((Params, of), make)


def _settings() -> tuple[Any, ...]:
    """The settings of JAX that a trace depends on; all executors run the same one."""
    return _compat.settings(without=Choice)


def _as_array(x: Any, dtype: Any) -> Any:
    """An array of a type that is not weak; a number in NumPy's memory, where control reads it."""
    if isinstance(x, NUMBERS):
        return np.array(x, dtype)
    if isinstance(x, jax.Array) and x.dtype == dtype and not getattr(x, "weak_type", False):
        return x  # keys have no mark of weak types
    # A copy: JAX may take over NumPy's memory, which its owner may write to afterwards.
    return jnp.asarray(x.copy() if isinstance(x, np.ndarray) else x, dtype)


def _in_a_lane(operands: Sequence[Any], params: Params) -> list[Any]:
    """The operands of one invocation, with an axis of lanes."""
    first = params.num_outers
    return [*operands[:first], *map(_with_lane, operands[first:])]


def _with_lane(x: Any) -> Any:
    """A root's argument, with an axis of one lane in front."""
    if isinstance(x, np.ndarray) or (_compat.is_batched(x) and _compat.is_known(x)):
        return _compat.on_known(lambda x: x[None], x)
    return _lane_in_front(x)


@functools.partial(jax.jit, inline=True)
def _lane_in_front(x: Any) -> Any:
    return jnp.broadcast_to(x, (1, *x.shape))


def _leaves_of(axes: Any, arg: Any) -> list[int | None]:
    """Broadcasts a prefix pytree of axes to the leaves of an argument."""
    found, prefix = jax.tree.flatten(axes, is_leaf=lambda axis: axis is None)
    try:
        parts = prefix.flatten_up_to(arg)
    except ValueError as error:
        raise SignatureError(
            f"in_axes {axes!r} does not fit its argument, of which it must be a prefix: {error}"
        ) from None
    pairs = zip(found, parts, strict=True)
    return [axis for axis, part in pairs for _ in jax.tree.leaves(part)]


def _without_axis(aval: Any, axis: int | None, name: str) -> Any:
    if axis is None:
        return aval
    if not -aval.ndim <= axis < aval.ndim:
        raise SignatureError(f"in_axes maps axis {axis} of {name}, which has {aval.ndim} axes")
    shape = list(aval.shape)
    del shape[axis]
    return aval.update(shape=tuple(shape))
