"""What JAX does with a primitive: rules of derivatives, of `vmap`, of lowering, and of checks."""

import contextlib
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax._src import checkify as _checkify
from jax._src import dispatch as _dispatch
from jax._src import sharding_impls as _sharding
from jax._src import util as _util
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import mlir as _mlir
from jax.core import ShapedArray
from jax.extend.core import JaxprEqn, Primitive, jaxprs_in_params

from jaxrec._compat._arrays import aval_of, is_concrete
from jaxrec._compat._meshes import without_mesh
from jaxrec._compat._settings import unguarded, with_types_of
from jaxrec._compat._tracers import not_mapped

try:
    from jax.experimental.key_reuse import _core as _key_reuse
except ImportError:  # an experiment of JAX, which may end: then nothing asks
    _key_reuse = None

Zero: Any = vars(_ad)["Zero"]
is_undefined_primal = _ad.is_undefined_primal


def register_jvp(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Sets the forward derivative rule of a primitive."""

    def of_types(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        with with_types_of(primals), unguarded():
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
        with unguarded():
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


def keep_weakly(parameter: type) -> None:
    """Has JAX's caches of types of results keep parameters of a class weakly, as they do jaxprs."""
    _util.weakref_cache_key_types.add(parameter)


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


def register_lowering(
    primitive: Primitive,
    fun: Callable[..., Any],
    among: Callable[..., None] | None = None,
) -> None:
    """Lowers a primitive by tracing a function.

    Args:
        primitive: which.
        fun: a function of its operands and parameters.
        among: is told among how many devices XLA divides the arrays, and the parameters.
    """
    lower = _mlir.lower_fun(fun, multiple_results=True)

    def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
        if among is not None:
            among(devices_of(ctx), **params)
        # What runs inside `shard_map` is a device's own program, in which nothing varies.
        avals_in, avals_out = [list(map(_unsharded, x)) for x in (ctx.avals_in, ctx.avals_out)]
        with without_mesh(), with_types_of(avals_in):
            plain = ctx.replace(avals_in=avals_in, avals_out=avals_out)
            return lower(plain, *operands, **params)

    _mlir.register_lowering(primitive, rule)


def register_lowering_rule(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """Lowers a primitive by a rule of MLIR values, `(context, *operands, **params)`."""
    _mlir.register_lowering(primitive, rule)


def define_impl(primitive: Primitive) -> None:
    """Evaluates a primitive by compiling it alone."""
    primitive.def_impl(functools.partial(_dispatch.apply_primitive, primitive))


def is_compiled_anew(eqn: JaxprEqn) -> bool:
    """Whether JAX may compile an equation, or a derivative of it, each time it is evaluated alone.

    What it makes of code it keeps under that code, and some is new each time: that of derivatives
    of loops, and of operations that are evaluated in a way of their own.
    """
    rule = getattr(eqn.primitive.impl, "func", None)
    return rule is not _dispatch.apply_primitive or any(True for _ in jaxprs_in_params(eqn.params))


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
