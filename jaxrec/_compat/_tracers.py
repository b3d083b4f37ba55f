"""What records an operation, and the values that tracers stand for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import config as _config
from jax._src import core as _core
from jax._src.interpreters import ad as _ad
from jax._src.interpreters import batching as _batching
from jax._src.interpreters import partial_eval as _pe
from jax.core import Tracer

from jaxrec._compat._arrays import aval_of, is_concrete, typed
from jaxrec._compat._settings import setting

not_mapped = None


def current_trace() -> Any:
    """What operations are recorded by now."""
    return _core.trace_ctx.trace


def let_go_of(trace: Any, outer: Any) -> None:
    """Ends traces that an exception has left, from `trace` out to `outer`, which goes on.

    They hold the constants that were read while they were recorded, and one another. JAX itself
    ends a trace only when the traced function returns.
    """
    for left in _outward(trace, [outer]):
        if isinstance(left, _pe.DynamicJaxprTrace):
            left.invalidate()


def evaluates_now() -> bool:
    """Whether an operation on known values is carried out at once, and nothing looks on."""
    return _core.trace_ctx.trace is _core.eval_trace and not setting("jax_debug_key_reuse")


def is_staged() -> bool:
    """Whether operations are recorded, also those on known values."""
    return any(isinstance(t, _pe.DynamicJaxprTrace) for t in _outward(current_trace()))


def differentiates_inside(traces: Sequence[Any]) -> bool:
    """Whether a derivative is taken of what is recorded now, inside of one of some traces."""
    derivatives = _ad.JVPTrace | _ad.LinearizeTrace
    return any(isinstance(t, derivatives) for t in _outward(current_trace(), traces))


def traces_behind(value: Any) -> Iterator[Any]:
    """What recorded the operation that a tracer stands for, and what that is inside of."""
    return _outward(value._trace if isinstance(value, Tracer) else None)


def _outward(trace: Any, ends: Sequence[Any] = ()) -> Iterator[Any]:
    """A trace, and what it is inside of, up to one of some others."""
    while trace is not None and not any(trace is end for end in ends):
        yield trace
        trace = getattr(trace, "parent_trace", None)


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
