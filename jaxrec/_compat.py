"""The one module that touches JAX internals.

What is here has no public counterpart yet in the versions that jaxrec supports. Everything else in
jaxrec uses public names, and of their objects a few methods that the documentation leaves out.
"""

import contextlib
import functools
import inspect
import math
import pathlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import api as _api
from jax._src import array as _array
from jax._src import checkify as _checkify
from jax._src import config as _config
from jax._src import core as _core
from jax._src import dispatch as _dispatch
from jax._src import lib as _lib
from jax._src import mesh as _mesh
from jax._src import sharding_impls as _sharding
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax._src.interpreters import partial_eval as _pe
from jax.core import ShapedArray, Tracer
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, jaxprs_in_params

try:
    from jax.experimental.key_reuse import _core as _key_reuse
except ImportError:  # an experiment of JAX, which may end: then nothing asks
    _key_reuse = None

_HOME = pathlib.Path(jax.__file__).parent

Zero: Any = vars(_ad)["Zero"]
_trace_context: Any = _config.trace_context
_device_put: Any = vars(_lib)["xla_client"].batched_device_put
_knows_host_value = hasattr(_array.ArrayImpl, "_npy_value")
if hasattr(_mesh, "device_context"):  # from JAX 0.11 on
    _mesh_around, _no_mesh = vars(_mesh)["device_context"], _mesh.empty_concrete_mesh
else:
    _mesh_around, _no_mesh = vars(_config)["device_context"], None
is_undefined_primal = _ad.is_undefined_primal
not_mapped = None
aval_of = jax.typeof


def register_jvp(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Sets the forward derivative rule of a primitive."""

    def of_types(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        with _types_of(primals), _unguarded():
            return rule(primals, tangents, **params)

    _ad.primitive_jvps[primitive] = of_types


def register_transpose(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Sets the transposition rule of a primitive that is linear in some operands."""
    _ad.primitive_transposes[primitive] = rule


def register_batching(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Sets the `vmap` rule of a primitive."""
    _batching.primitive_batchers[primitive] = rule


def register_batching_by_axis(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """The same for a rule that is told the name of the axis first; it may get no mapped operand."""

    def of_axis(axis: Any, operands: Sequence[Any], dims: Sequence[Any], **params: Any) -> Any:
        with _unguarded():
            outs, found = rule(axis.name, axis.size, operands, dims, **params)
        over = axis.explicit_mesh_axis
        if over is not None:
            mesh = next(_mesh_of(x) for x in operands if not aval_of(x).sharding.mesh.empty)
            outs = [_divided(x, dim, over, mesh) for x, dim in zip(outs, found, strict=True)]
        return outs, found

    _batching.fancy_primitive_batchers[primitive] = of_axis


def _divided(value: Any, dim: Any, over: Any, mesh: Any) -> Any:
    """A result with the axis that `vmap` maps over, divided among the devices of a mesh."""
    if dim is not_mapped:
        return value
    spec = [over if axis == dim else None for axis in range(value.ndim)]
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    put = jax.device_put if is_concrete(value) else jax.sharding.reshard
    return put(value, sharding)


def _mesh_of(value: Any) -> Any:
    """The mesh that a value is divided over: of devices where it is known."""
    return (value if is_concrete(value) else aval_of(value)).sharding.mesh


class _Replaced:
    """The `vmap` rule of a primitive of JAX while somebody needs another one.

    Attributes:
        usual: JAX's own rule, for the equations that the other one gives None for.
        users: how many contexts of `batched_by` are open.
    """

    def __init__(self, usual: Callable[..., Any], rule: Callable[..., Any]) -> None:
        self.usual, self._rule, self.users = usual, rule, 0

    def __call__(self, axis: Any, operands: Sequence[Any], dims: Sequence[Any], **kw: Any) -> Any:
        found = self._rule(operands, dims, **kw)
        return self.usual(axis, operands, dims, **kw) if found is None else found


_replacing = threading.Lock()


@contextlib.contextmanager
def batched_by(rules: Mapping[Primitive, Callable[..., Any]]) -> Iterator[None]:
    """A context in which some primitives of JAX are batched by other rules.

    It may be entered in several threads at once, with the same rules. The last one that leaves it
    puts JAX's rules back.

    Args:
        rules: for each primitive, one whose own rule sees the axis too, a function of the operands,
            their mapped axes and the parameters, which gives None for what is JAX's to batch.
            Other threads come upon it too.
    """
    table = _batching.fancy_primitive_batchers
    entries: dict[Primitive, _Replaced] = {}
    with _replacing:
        for primitive, rule in rules.items():
            entry = table[primitive]
            if not isinstance(entry, _Replaced):
                table[primitive] = entry = _Replaced(entry, rule)
            entry.users += 1
            entries[primitive] = entry
    try:
        yield
    finally:
        with _replacing:
            for primitive, entry in entries.items():
                entry.users -= 1
                if not entry.users:
                    table[primitive] = entry.usual


def register_lowering(primitive: Primitive, fun: Callable[..., Any]) -> None:
    """Lowers a primitive by tracing `fun`, a function of its operands and parameters."""
    lower = _mlir.lower_fun(fun, multiple_results=True)

    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        # What runs inside `shard_map` is a device's own program, in which nothing varies.
        avals_in, avals_out = [list(map(_unsharded, x)) for x in (ctx.avals_in, ctx.avals_out)]
        with without_mesh(), _types_of(avals_in):
            plain = ctx.replace(avals_in=avals_in, avals_out=avals_out)
            return lower(plain, *operands, **params)

    _mlir.register_lowering(primitive, rule)


def _types_of(values: Sequence[Any]) -> contextlib.AbstractContextManager[Any]:
    """A context that has 64-bit types if some value has one.

    A pullback may be called outside of the `jax.enable_x64` that it was made in.
    """
    is_wide = any(getattr(x, "dtype", None) in _WIDE and not _is_numpy(x) for x in values)
    return jax.enable_x64(True) if is_wide else contextlib.nullcontext()


_WIDE = frozenset(map(np.dtype, ("int64", "uint64", "float64", "complex128")))


def _is_numpy(value: Any) -> bool:
    """Whether a value is of NumPy, whose types are of 64 bits where nobody asks for them."""
    return isinstance(value, np.ndarray | np.generic)


def register_lowering_rule(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Lowers a primitive by a rule of MLIR values, `(context, *operands, **params)`."""
    _mlir.register_lowering(primitive, rule)


def define_impl(primitive: Primitive) -> None:
    """Evaluates a primitive by compiling it alone."""
    primitive.def_impl(functools.partial(_dispatch.apply_primitive, primitive))


def platforms_of(ctx: Any) -> Sequence[str]:
    """The platforms that a program is lowered for."""
    return ctx.module_context.platforms


def devices_of(ctx: Any) -> int:
    """Among how many devices the arrays of a program are divided that is being lowered."""
    where = ctx.module_context.axis_context
    if isinstance(where, _sharding.ShardingContext):
        return where.num_devices
    own = getattr(where, "manual_axes", ())  # of `shard_map`, which may leave axes to XLA
    axes = where.mesh.shape.items() if own else ()
    return math.prod(size for name, size in axes if name not in own)


def _unsharded(aval: Any) -> Any:
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


def as_if_alone(run: Callable[..., Sequence[Any]], operands: Sequence[Any]) -> list[Any]:
    """Runs a function of known arrays outside of the transformations and of the mesh around.

    Inside of a transformation JAX keeps an entry in the cache of a jitted function for every call.
    `jax_debug_key_reuse` would take tapes of keys for keys, though each wave reads other rows, and
    `jax.transfer_guard` is for transfers of the user's: every call puts tables on the device.
    The types of arrays on a mesh with explicit axes say how they are divided among devices, and
    tapes are none of that mesh. Results have the types that JAX gives the results of operations on
    these operands.
    """
    mesh = _explicit_mesh(operands)
    devices = _mesh_around.swap_local(_no_mesh)
    try:
        with _core.eval_context(), without_mesh(), _types_of(operands), _unguarded():
            made = run(*map(_with_auto_axes, operands))
    finally:
        _mesh_around.set_local(devices)
    return [_in_mesh(x, mesh) for x in made]


def _explicit_mesh(values: Sequence[Any]) -> Any:
    """The mesh around, or the one with explicit axes that a value is divided over."""
    around = jax.sharding.get_abstract_mesh()
    if not around.empty:
        return around
    found = (x.sharding for x in values if _has_explicit_axes(x))
    return next((at.mesh for at in found), around)


def _has_explicit_axes(value: Any) -> bool:
    at = getattr(value, "sharding", None)
    return isinstance(at, jax.sharding.NamedSharding) and not at.mesh.are_all_axes_auto


def is_on_explicit_mesh(value: Any) -> bool:
    """Whether the type of a value says how it is divided over a mesh."""
    at: Any = getattr(aval_of(value), "sharding", None)
    return _has_explicit_axes(aval_of(value)) and not at.mesh.empty


def _with_auto_axes(value: Any) -> Any:
    if not _has_explicit_axes(value):
        return value
    at = value.sharding
    return _with_axes(value, at, (jax.sharding.AxisType.Auto,) * len(at.mesh.axis_names))


def _in_mesh(value: Any, mesh: Any) -> Any:
    at = getattr(value, "sharding", None)
    if mesh.empty or not isinstance(at, jax.sharding.NamedSharding):
        return value
    if at.mesh.axis_names != mesh.axis_names:
        return value
    return _with_axes(value, at, mesh.axis_types)


def _with_axes(value: Any, at: jax.sharding.NamedSharding, types: tuple[Any, ...]) -> Any:
    assert isinstance(at.mesh, jax.sharding.Mesh)
    mesh = jax.sharding.Mesh(at.mesh.devices, at.mesh.axis_names, axis_types=types)
    return jax.device_put(value, jax.sharding.NamedSharding(mesh, at.spec))


def with_axes_of(value: Any, like: Any) -> Any:
    """An array with the type that another one of its shape has on a mesh with explicit axes."""
    return jax.device_put(value, like.sharding) if _has_explicit_axes(like) else value


def without_mesh() -> Any:
    """A context in which programs are traced as if there were one device: their jaxprs are kept."""
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))


def is_of_axis(effect: Any) -> bool:
    """Whether an effect is that of computing with a named axis outside."""
    return isinstance(effect, _core.NamedAxisEffect)


def is_of_debugging(effect: Any) -> bool:
    """Whether an effect is that of `jax.debug.print` or `jax.debug.callback`."""
    return type(effect).__name__ in ("DebugEffect", "OrderedDebugEffect")


def side_effects(jaxpr: Jaxpr) -> set[str]:
    """What a jaxpr does besides computing its results and showing values to whoever debugs it.

    Returns:
        The names of JAX's types of effects.
    """
    others = (e for e in jaxpr.effects if not (is_of_axis(e) or is_of_debugging(e)))
    return {type(e).__name__ for e in others}


def named_axes(jaxpr: Jaxpr) -> set[Any]:
    """The names of axes outside that a jaxpr computes with, those of `vmap` and of `shard_map`."""
    return {e.name for e in jaxpr.effects if isinstance(e, _core.NamedAxisEffect)}


def collectives(jaxpr: Jaxpr) -> set[str]:
    """The names of the operations of a jaxpr that wait for other devices or lanes."""
    found: set[str] = set()
    for eqn in jaxpr.eqns:
        inner = list(jaxprs_in_params(eqn.params))
        found.update(*map(collectives, inner))
        is_named = any(map(is_of_axis, eqn.effects))
        if is_named and not inner and eqn.primitive is not jax.lax.axis_index_p:
            found.add(eqn.primitive.name)
    return found


def is_concrete(value: Any) -> bool:
    """Whether the elements of a value can be read now."""
    return not isinstance(value, Tracer)


def is_uncommitted(value: Any) -> bool:
    """Whether a value is an array of JAX that was not put on a device by name."""
    return type(value) is _array.ArrayImpl and not value.committed


def setting(name: str) -> Any:
    """A setting of JAX as it holds in this thread; `jax.config.values` would copy them all."""
    return getattr(jax.config, name)


def compiled_count(fun: Any) -> int:
    """The programs compiled for a function that `jax.jit` made; 0 for anything else."""
    return fun._cache_size() if hasattr(fun, "_cache_size") else 0


ALWAYS_INLINED = {"jit": "jaxpr", "closed_call": "call_jaxpr"}
"""Equations that only call a jaxpr, by name, and where they keep it."""

_INLINED = {**ALWAYS_INLINED, "checkpoint": "jaxpr", "remat2": "jaxpr"}


def inlined(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The jaxpr of an equation that only calls it, None for other equations."""
    where = _INLINED.get(eqn.primitive.name)
    if where is None:
        return None
    inner = eqn.params[where]
    return inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())


def called(eqn: JaxprEqn) -> ClosedJaxpr | None:
    """The jaxpr that an equation computes, whatever it says of derivatives; None for others."""
    if eqn.primitive.name in ("custom_jvp_call", "custom_vjp_call"):
        return eqn.params["call_jaxpr"]
    return inlined(eqn)


def is_of_jax(eqn: JaxprEqn) -> bool:
    """Whether an equation is a function of JAX whose `custom_jvp` rule is its true derivative.

    One that solves is none: its rule is of functions that the user gives it.
    """
    if eqn.primitive.name != "custom_jvp_call":
        return False
    jaxpr: Any = eqn.params["call_jaxpr"]
    about = getattr(jaxpr, "jaxpr", jaxpr).debug_info
    path = pathlib.Path(str(about.func_filename))  # of what Python did not write, there is none
    if not path.is_relative_to(_HOME) or path.name == "solves.py":
        return False
    module = ".".join((jax.__name__, *path.relative_to(_HOME).with_suffix("").parts))
    function = getattr(sys.modules.get(module), about.func_name, None)
    return isinstance(function, jax.custom_jvp)


def opened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr that holds no value: what it closes over are its first arguments."""
    return ClosedJaxpr(_pe.convert_constvars_jaxpr(closed.jaxpr), ())


def scan_counts(eqn: JaxprEqn) -> tuple[int, int]:
    """How many of the first operands of a `scan` are constants, and how many it carries then."""
    if "num_carry" in eqn.params:  # before JAX 0.11
        return eqn.params["num_consts"], eqn.params["num_carry"]
    constants, carried, _ = eqn.params["ft_in"].unpack()
    return len(constants), len(carried)


def moved_results(closed: ClosedJaxpr, moved: Sequence[bool]) -> Sequence[bool]:
    """Which results have a derivative by some operands that JAX does not know to be zero."""
    return _ad.jvp_jaxpr(closed, moved, instantiate=False)[1]


def without_dead(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr without what no result follows from, also of what its loops stack."""
    results = [True] * len(closed.jaxpr.outvars)
    jaxpr, _ = _pe.dce_jaxpr(closed.jaxpr, results, instantiate=True)
    return ClosedJaxpr(jaxpr, closed.consts)


class Put:
    """Puts NumPy arrays on a device, not committed to it.

    As `jax.device_put`, which takes longer than a short recursion does.
    """

    def __init__(self, device: Any) -> None:
        self._sharding, self._devices = jax.sharding.SingleDeviceSharding(device), [device]

    def __call__(self, value: np.ndarray[Any, Any], aval: ShapedArray) -> jax.Array:
        """An array of JAX; `value` is never written to again, and is what reading it gives."""
        try:
            array = _device_put(aval, self._sharding, [value], self._devices, False)
        except jax.errors.JaxRuntimeError:  # a guard of transfers lets through what it is told of
            return jax.device_put(value)
        value.flags.writeable = False
        if _knows_host_value:  # else reading makes it, which takes longer
            array._npy_value = value
        return array


def current_trace() -> Any:
    """What operations are recorded by now."""
    return _core.trace_ctx.trace


def let_go_of(trace: Any, outer: Any) -> None:
    """Ends traces that an exception has left, from `trace` out to `outer`, which goes on.

    They hold the constants that were read while they were recorded, and one another. JAX itself
    ends a trace only when the traced function returns.
    """
    while trace is not None and trace is not outer:
        if isinstance(trace, _pe.DynamicJaxprTrace):
            trace.invalidate()
        trace = getattr(trace, "parent_trace", None)


def context() -> Any:
    """The settings of JAX and the user contexts that hold in this thread; hashable."""
    return _trace_context()


def settings(without: type) -> tuple[Any, ...]:
    """The same less the named axes around and user contexts whose values are of one type."""
    left_out = _core.AxisEnv, without
    return tuple(x for x in _trace_context() if not isinstance(x, left_out))


def leaves_keys(*primitives: Primitive) -> None:
    """Says that primitives consume no random key that they get: `jax_debug_key_reuse` asks."""
    if _key_reuse is not None:
        rule = _key_reuse.KeyReuseSignature()
        _key_reuse.key_reuse_signatures.update(dict.fromkeys(primitives, rule))


def shows_nan(primitive: Primitive, count: Callable[..., int | None]) -> None:
    """Has `checkify` look for NaN in the results of a primitive.

    Args:
        primitive: which.
        count: how many of its results are the user's, by its parameters; None: all.
    """
    look: Any = _checkify.check_nans
    state = len(inspect.signature(look).parameters) - 2  # 2 arguments; from JAX 0.12 on 3

    def rule(*args: Any, **params: Any) -> Any:
        outs = primitive.bind(*args[state:], **params)
        return look(primitive, *args[:state], outs[: count(**params)]), outs

    _checkify.error_checks[primitive] = rule


@contextlib.contextmanager
def _unguarded() -> Iterator[None]:
    """A context in which keys may be used twice, and values of the host be put on a device."""
    with contextlib.ExitStack() as stack:
        if setting("jax_debug_key_reuse"):
            stack.enter_context(jax.debug_key_reuse(False))
        if setting("jax_transfer_guard_host_to_device"):
            stack.enter_context(jax.transfer_guard_host_to_device("allow"))
        yield


def evaluates_now() -> bool:
    """Whether an operation on known values is carried out at once, and nothing looks on."""
    return _core.trace_ctx.trace is _core.eval_trace and not setting("jax_debug_key_reuse")


def is_staged() -> bool:
    """Whether operations are recorded, also those on known values."""
    trace = _core.trace_ctx.trace
    while trace is not None:
        if isinstance(trace, _pe.DynamicJaxprTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


def traces_behind(value: Any) -> Iterator[Any]:
    """What recorded the operation that a tracer stands for, and what that is inside of."""
    trace = value._trace if isinstance(value, Tracer) else None
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


@contextlib.contextmanager
def without_checks() -> Iterator[None]:
    """A context in which results are not searched for NaN and infinity, in this thread.

    Where `jax_debug_nans` is set for the whole process, JAX would not check the results of compiled
    functions in this thread ever again after `with jax.debug_nans(False)`.
    """
    hook = vars(_api)["_post_hook_state"]
    before = hook.get_local()
    try:
        with jax.debug_nans(False), jax.debug_infs(False):
            yield
    finally:
        hook.set_local(before)


def value_behind(value: Any) -> Any:
    """The value that is differentiated, where a tracer of a derivative stands for it."""
    while isinstance(value, Tracer) and hasattr(value, "primal"):
        value = value.primal
    return value


def is_batched(value: Any) -> bool:
    """Whether a value stands for one example of many that `vmap` maps over."""
    return isinstance(value, _batching.BatchTracer)


def maps_now(values: Iterable[Any]) -> bool:
    """Whether the innermost transformation is a `vmap` that maps over one of the values."""
    trace = _core.trace_ctx.trace
    return isinstance(trace, _batching.BatchTrace) and any(
        is_batched(x) and x._trace.tag is trace.tag for x in values
    )


def mapped_by(value: Any) -> frozenset[Any]:
    """Which of the `vmap`s right around, one inside of another, map over a value."""
    trace, around, found = _core.trace_ctx.trace, set[Any](), set[Any]()
    while isinstance(trace, _batching.BatchTrace):
        around.add(trace.tag)
        trace = trace.parent_trace
    while is_batched(value):
        found.add(value._trace.tag)
        value = value.val
    return frozenset(found & around)


def unbatched(value: Any) -> tuple[Any, Any]:
    """All examples of a value, and the axis that they are along."""
    return (typed(value.val), value.batch_dim) if is_batched(value) else (value, not_mapped)


def unbatched_once(values: Sequence[Any]) -> list[tuple[Any, Any]]:
    """`unbatched` of the values that the innermost `vmap` maps over; the others as they are."""
    depths = [len(list(traces_behind(x))) if is_batched(x) else 0 for x in values]
    pairs = zip(values, depths, strict=True)
    return [unbatched(x) if depth == max(depths) else (x, not_mapped) for x, depth in pairs]


def is_known(value: Any) -> bool:
    """Whether the numbers of a value can be read now, perhaps those of the examples of a `vmap`."""
    while is_batched(value):
        value = value.val
    return is_concrete(value) and isinstance(aval_of(value).dtype, np.dtype) and np.size(value) > 0


def is_folded(values: Any) -> bool:
    """Whether an operation on a pytree of values is evaluated where it would be recorded.

    It is under `jax.ensure_compile_time_eval`, where the values are known.
    """
    if not _config.eager_constant_folding.value:
        return False
    return all(is_known(x) for x in jax.tree.leaves(values) if isinstance(x, Tracer))


def on_known(fun: Callable[[Any], Any], value: Any) -> Any:
    """A function of NumPy arrays on a known value; what it makes of each example is known too.

    An operation of JAX on the examples of a `vmap` becomes a part of the program around.
    """
    if not is_batched(value):
        return fun(np.asarray(value))

    def of_examples(rows: Any) -> Any:
        return np.stack([fun(x) for x in np.moveaxis(rows, value.batch_dim, 0)])

    made = on_known(of_examples, value.val)
    return _batching.BatchTracer(value._trace, made, 0, value.source_info)


def typed(value: Any) -> Any:
    """A value as JAX takes it: `vmap` maps over arrays of NumPy of 64 bits, which it calls 32."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    return np.asarray(value, aval_of(value).dtype)


def _varying(aval: Any) -> frozenset[Any]:
    """The mesh axes over which a value of a type varies; JAX before 0.10.2 calls them `vma`."""
    if hasattr(aval, "mat"):
        return aval.mat.varying
    return getattr(aval, "vma", frozenset())


def common_vma(avals: Sequence[Any]) -> frozenset[Any]:
    """The mesh axes of `shard_map` over which at least one of the values varies."""
    return frozenset().union(*map(_varying, avals))


def with_vma(aval: Any, vma: frozenset[Any]) -> Any:
    """The type of a value that varies over the mesh axes `vma`."""
    if not vma:
        return aval
    if not hasattr(aval, "mat"):
        return aval.update(vma=vma)
    mesh = jax.sharding.get_abstract_mesh()
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*(None,) * aval.ndim))
    return aval.update(sharding=whole, manual_axis_type=aval.mat.update(varying=vma))


def vary_over(value: Any, vma: frozenset[Any]) -> Any:
    """Marks a value as varying over the mesh axes `vma` of `shard_map`."""
    missing = tuple(vma - _varying(aval_of(value)))
    return jax.lax.pcast(value, missing, to="varying") if missing else value


def is_literal(atom: Any) -> bool:
    """Whether an operand of an equation is a constant written in the program."""
    return isinstance(atom, Literal)
