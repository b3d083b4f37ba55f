"""The invocation of a recursive function as JAX primitives.

    rec           outer values, roots' arguments -> results
    rec_forward   the same, and the residuals: schedule, value tapes, residual tapes
    rec_linear    operands, residuals, tangents -> tangents of the results; linear in the tangents
    rec_backward  operands, residuals, cotangents -> cotangents of the operands

The derivative rule of `rec` runs `rec_forward` and stages `rec_linear`, whose transpose is
`rec_backward`: so forward mode, reverse mode and rematerialisation all work, and the cotangents of
parameters are summed inside one schedule however many roots there are.

The residuals are a cache: mathematically `rec_linear` and `rec_backward` are functions of the
operands, which they also take. That is what makes the other rules simple. Batching recomputes the
residuals with more lanes, since a tape has no axis for `vmap` to see; and derivatives of these
primitives go through `replay`, which JAX differentiates, and take the residuals as constants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive

from jaxrec import _compat
from jaxrec.executors._reference_lanes import run_reference
from jaxrec.lowering._forward import results, run_forward
from jaxrec.lowering._replay import replay
from jaxrec.primitives._batching import Batch
from jaxrec.primitives._params import Params, bound, decide_capacity, is_plannable, plan_inputs
from jaxrec.primitives._results import differentiable, outcome, outcome_types
from jaxrec.schedule._layout import flat_tables, table_types, unflatten_tables
from jaxrec.schedule._plan import LanePattern, plan_in_program
from jaxrec.transpose._backward import (
    Backward,
    Want,
    has_cotangent,
    residual_cell,
    residual_tapes,
    run_backward,
    settle_residuals,
)

rec_p = Primitive("rec")
rec_forward_p = Primitive("rec_forward")
rec_linear_p = Primitive("rec_linear")
rec_backward_p = Primitive("rec_backward")
for _primitive in (rec_p, rec_forward_p, rec_linear_p, rec_backward_p):
    _primitive.multiple_results = True


@dataclasses.dataclass(frozen=True)
class Wrt:
    """Which operands are differentiated.

    Attributes:
        positions: of the operands.
        lanes: for each, how lanes index its cotangent apart; None for the operand's own layout.
        stack: leading axes of every tangent or cotangent, for several on one schedule.
    """

    positions: tuple[int, ...]
    lanes: tuple[LanePattern | None, ...]
    stack: int = 0


# rec


def rec(operands: Sequence[Any], params: Params) -> list[Any]:
    """Invokes a recursive function; see the head of this file."""
    vma = _compat.common_vma([_compat.aval_of(x) for x in operands])
    return rec_p.bind(*(_compat.vary_over(x, vma) for x in operands), params=params)


@rec_p.def_impl
def _rec_impl(*operands: Any, params: Params) -> list[Any]:
    if params.executor == "reference":
        return run_reference(params, operands)
    params = decide_capacity(params, operands)
    return _compiled("rec", _run_rec, params)(*operands)


def _compiled(kind: str, fun: Any, params: Params, wrt: Wrt | None = None) -> Any:
    """The jitted program of a primitive, made once for its parameters."""
    cache, key = params.program.cache, (kind, params, wrt)
    if key not in cache:
        how = {"params": params} if wrt is None else {"params": params, "wrt": wrt}
        name = f"{kind}_{params.program.name}"

        def run(*operands: Any) -> list[Any]:
            return fun(*operands, **how)

        run.__name__ = run.__qualname__ = name
        cache[key] = jax.jit(run)
    return cache[key]


def _run_rec(*operands: Any, params: Params) -> list[Any]:
    params = decide_capacity(params, operands)
    layout = params.layout()
    tables = plan_in_program(params.program, layout, plan_inputs(params, operands))
    at = bound(params, layout, tables, operands)
    if params.executor == "reference":
        return outcome(at, replay(at))
    tapes, _ = run_forward(at)
    return outcome(at, results(at, tapes))


@rec_p.def_abstract_eval
def _rec_types(*avals: Any, params: Params) -> list[ShapedArray]:
    if params.collect:
        params = decide_capacity(params, avals)
    vma = _compat.common_vma(avals)
    return [_compat.with_vma(a, vma) for a in outcome_types(params)]


_compat.register_lowering(rec_p, _run_rec)


def _rec_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, params: Params) -> Any:
    positions = tuple(
        k
        for k, t in enumerate(tangents)
        if type(t) is not _compat.Zero
        and has_cotangent(_compat.aval_of(primals[k]))
        # A floating control scalar that has a derivative is a data argument too.
        and not params.num_outers <= k < params.first_data
    )
    if not positions:
        outs = rec_p.bind(*primals, params=params)
        return outs, [_zero_tangent(x) for x in outs]
    if params.executor == "reference":
        return _reference_jvp(primals, tangents, positions, params)
    params = decide_capacity(params, primals)
    wrt = Wrt(positions, (None,) * len(positions))
    made = rec_forward_p.bind(*primals, params=params, wrt=wrt)
    count = len(outcome_types(params))
    outs, residuals = made[:count], made[count:]
    given = [tangents[k] for k in positions]
    dots = iter(rec_linear_p.bind(*primals, *residuals, *given, params=params, wrt=wrt))
    carries = differentiable(params)
    return outs, [next(dots) if c else _zero_tangent(x) for x, c in zip(outs, carries, strict=True)]


def _zero_tangent(x: Any) -> Any:
    aval = _compat.aval_of(x)
    return _compat.Zero(aval.to_tangent_aval())


def _reference_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], positions: Sequence[int], params: Params
) -> Any:
    """Differentiates the interpreter, or under `jit` the replay with waves of one call."""

    def run(*changed: Any) -> list[Any]:
        operands = list(primals)
        for k, x in zip(positions, changed, strict=True):
            operands[k] = x
        if is_plannable(params, operands):
            return run_reference(params, operands)
        return _run_rec(*operands, params=params)

    given = [primals[k] for k in positions], [tangents[k] for k in positions]
    outs, dots = jax.jvp(run, *given)
    carries = differentiable(params)
    return outs, [t if c else _zero_tangent(x) for x, t, c in zip(outs, dots, carries, strict=True)]


_compat.register_jvp(rec_p, _rec_jvp)


def _rec_batch(operands: Sequence[Any], dims: Sequence[Any], *, params: Params) -> Any:
    batch = Batch(params, operands, dims)
    outs = rec(batch.operands, batch.params)
    return batch.split_outcome(outs)


_compat.register_batching(rec_p, _rec_batch)


# rec_forward


def _backward(params: Params, wrt: Wrt, avals: Sequence[Any]) -> Backward:
    """The differentiated cells, made once for their types."""
    types = tuple((a.shape, a.dtype) for a in avals[: params.num_outers])
    cache, key = params.program.cache, ("cells", params, wrt.positions, types)
    if key not in cache:
        outers = [k for k in wrt.positions if k < params.num_outers]
        layout = params.layout(readers=True)
        shapes = [jax.ShapeDtypeStruct(*t) for t in types]
        cache[key] = Backward(
            params.program, layout, params.patterns, shapes, outers, params.policy
        )
    return cache[key]


def _run_forward(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    backward = _backward(params, wrt, [_compat.aval_of(x) for x in operands])
    tables = plan_in_program(params.program, backward.layout, plan_inputs(params, operands))
    at = bound(params, backward.layout, tables, operands)
    tapes, kept = run_forward(at, residual_cell(backward), residual_tapes(backward))
    flat = [x for tape in settle_residuals(at, kept) for x in tape]
    return [*outcome(at, results(at, tapes)), *flat_tables(tables), *tapes, *flat]


@rec_forward_p.def_impl
def _forward_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    return _compiled("rec_forward", _run_forward, params, wrt)(*operands)


@rec_forward_p.def_abstract_eval
def _forward_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    with _compat.without_mesh():
        types = [*outcome_types(params), *_residual_types(params, wrt, avals)]
    return [_compat.with_vma(a, vma) for a in types]


def _residual_types(params: Params, wrt: Wrt, avals: Sequence[Any]) -> list[ShapedArray]:
    backward = _backward(params, wrt, avals)
    layout, program = backward.layout, params.program
    types = [ShapedArray(t.shape, t.dtype) for t in flat_tables(table_types(program, layout))]
    for rows, aval in zip(layout.value_rows, program.classes, strict=True):
        types.append(ShapedArray((rows, *aval.shape), aval.dtype))
    for spec in program.cells:
        rows = layout.cell_rows[spec.cell.index]
        for aval in backward.residual_types(spec):
            types.append(ShapedArray((rows, *aval.shape), aval.dtype))
    return types


_compat.register_lowering(rec_forward_p, _run_forward)


def _forward_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    outs = rec_forward_p.bind(*primals, params=params, wrt=wrt)
    count = len(outcome_types(params))
    _, dots = _rec_jvp(primals, tangents, params=params)
    return outs, [*dots, *(_zero_tangent(x) for x in outs[count:])]


_compat.register_jvp(rec_forward_p, _forward_jvp)


def _forward_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    batch = Batch(params, operands, dims)
    outs, out_dims = batch.split_outcome(rec(batch.operands, batch.params))
    types = _residual_types(params, wrt, batch.one_example())
    blank = [jnp.zeros(a.shape, a.dtype) for a in types]
    return [*outs, *blank], [*out_dims, *(_compat.not_mapped for _ in blank)]


_compat.register_batching(rec_forward_p, _forward_batch)


# rec_linear


def _split_residuals(
    params: Params, backward: Backward, residuals: Sequence[Any]
) -> tuple[Any, list[Any], list[list[Any]]]:
    like = table_types(params.program, backward.layout)
    count = len(flat_tables(like))
    tables = unflatten_tables(like, residuals[:count])
    rest = iter(residuals[count:])
    tapes = [next(rest) for _ in params.program.classes]
    kept = [[next(rest) for _ in backward.residual_types(s)] for s in params.program.cells]
    return tables, tapes, kept


class _Call:
    """The operands of `rec_linear` or `rec_backward`, taken apart."""

    def __init__(self, operands: Sequence[Any], params: Params, wrt: Wrt, given: int) -> None:
        self.params, self.wrt = params, wrt
        self.primals = list(operands[: params.num_operands])
        self.residuals = list(operands[params.num_operands : len(operands) - given])
        self.given = list(operands[len(operands) - given :])

    def results_of(self, changed: Sequence[Any], run: Any) -> list[Any]:
        """The differentiable results of `run` on the operands with those of `wrt` replaced."""
        operands = list(self.primals)
        for k, x in zip(self.wrt.positions, changed, strict=True):
            operands[k] = x
        backward = self.backward()
        tables, _, _ = _split_residuals(self.params, backward, self.residuals)
        outs = run(bound(self.params, backward.layout, tables, operands))
        return [x for x in outs if has_cotangent(x)]

    def backward(self) -> Backward:
        return _backward(self.params, self.wrt, [_compat.aval_of(x) for x in self.primals])

    @property
    def changed(self) -> list[Any]:
        return [self.primals[k] for k in self.wrt.positions]


def _forward_results(at: Any) -> list[Any]:
    return results(at, run_forward(at)[0])


def _run_linear(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    call = _Call(operands, params, wrt, len(wrt.positions))

    def run(*changed: Any) -> list[Any]:
        return call.results_of(changed, _forward_results)

    def once(*given: Any) -> list[Any]:
        return jax.jvp(run, call.changed, list(given))[1]

    return _over_stack(once, wrt.stack)(*call.given)


def _over_stack(fun: Any, axes: int) -> Any:
    """Maps a function over the leading axes of all its arguments."""
    for _ in range(axes):
        fun = jax.vmap(fun)
    return fun


@rec_linear_p.def_impl
def _linear_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    return _compiled("rec_linear", _run_linear, params, wrt)(*operands)


@rec_linear_p.def_abstract_eval
def _linear_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    pairs = zip(outcome_types(params), differentiable(params), strict=True)
    return [_compat.with_vma(_stacked(a, avals, wrt), vma) for a, c in pairs if c]


def _stacked(aval: ShapedArray, avals: Sequence[Any], wrt: Wrt) -> ShapedArray:
    return ShapedArray((*avals[-1].shape[: wrt.stack], *aval.shape), aval.dtype)


_compat.register_lowering(rec_linear_p, _run_linear)


def _linear_transpose(cts: Any, *operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    known = [x for x in operands if not _compat.is_undefined_primal(x)]
    avals = [x.aval if _compat.is_undefined_primal(x) else _compat.aval_of(x) for x in operands]
    types = _linear_types(*avals, params=params, wrt=wrt)
    full = [
        jnp.zeros(a.shape, a.dtype) if type(ct) is _compat.Zero else ct
        for ct, a in zip(cts, types, strict=True)
    ]
    vma = _compat.common_vma([_compat.aval_of(x) for x in [*known, *full]])
    full = [_compat.vary_over(x, vma) for x in full]
    found = rec_backward_p.bind(*known, *full, params=params, wrt=wrt)
    return [None] * len(known) + list(found)


_compat.register_transpose(rec_linear_p, _linear_transpose)


def _linear_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    call = _Call(primals, params, wrt, len(wrt.positions))

    def run(operands: list[Any], given: list[Any]) -> list[Any]:
        def at(*changed: Any) -> list[Any]:
            return _with_operands(call, operands).results_of(changed, replay)

        def once(*given: Any) -> list[Any]:
            return jax.jvp(at, [operands[k] for k in wrt.positions], list(given))[1]

        return _over_stack(once, wrt.stack)(*given)

    return _jvp_of_replay(run, call, tangents)


def _with_operands(call: _Call, primals: list[Any]) -> _Call:
    """The same call on other operands."""
    other = _Call([], call.params, call.wrt, 0)
    other.primals, other.residuals, other.given = primals, call.residuals, call.given
    return other


def _jvp_of_replay(run: Any, call: _Call, tangents: Sequence[Any]) -> Any:
    """Differentiates a function of operands and given values; residuals are constants."""
    count = call.params.num_operands
    start = len(tangents) - len(call.given)
    values = [*call.primals, *call.given]
    moved = [*tangents[:count], *tangents[start:]]
    active = [
        k
        for k, t in enumerate(moved)
        if type(t) is not _compat.Zero and has_cotangent(_compat.aval_of(values[k]))
    ]

    def of_active(*changed: Any) -> list[Any]:
        full = list(values)
        for k, x in zip(active, changed, strict=True):
            full[k] = x
        return run(full[:count], full[count:])

    return jax.jvp(of_active, [values[k] for k in active], [moved[k] for k in active])


_compat.register_jvp(rec_linear_p, _linear_jvp)


def _linear_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    given = len(wrt.positions)
    count = params.num_operands
    if all(d is _compat.not_mapped for d in dims[: len(dims) - given]):
        return _stack_given(rec_linear_p, operands, dims, given, params, wrt)
    moving = list(zip(wrt.positions, operands[-given:], dims[-given:], strict=True))
    apart = [k for k, _, d in moving if d is not _compat.not_mapped]
    batch = Batch(params, operands[:count], dims[:count], _size(operands, dims), apart)
    tangents = [_lay_out(batch, k, x, d, wrt.stack) for k, x, d in moving]
    residuals = _fresh_residuals(batch, wrt)
    outs = rec_linear_p.bind(*batch.operands, *residuals, *tangents, params=batch.params, wrt=wrt)
    reports = _collect_lanes(batch, wrt, residuals)

    def split(*outs: Any) -> list[Any]:
        return batch.split_linear(outs, reports)[0]

    return _over_stack(split, wrt.stack)(*outs), [wrt.stack] * len(outs)


def _lay_out(batch: Batch, k: int, x: Any, dim: Any, stack: int) -> Any:
    """Lays out a tangent of operand `k`, below the stacked axes."""
    if dim is not _compat.not_mapped:
        x, dim = jnp.moveaxis(x, dim, stack), 0
    return _over_stack(lambda x: batch.operand(k, x, dim), stack)(x)


_compat.register_batching(rec_linear_p, _linear_batch)


def _size(operands: Sequence[Any], dims: Sequence[Any]) -> int:
    return next(
        x.shape[d] for x, d in zip(operands, dims, strict=True) if d is not _compat.not_mapped
    )


def _stack_given(
    primitive: Primitive, operands: Any, dims: Any, given: int, params: Params, wrt: Wrt
) -> tuple[list[Any], list[int]]:
    """Batches over tangents or cotangents alone: the same schedule, one more leading axis."""
    fixed, moving = operands[:-given], operands[-given:]
    size = _size(moving, dims[-given:])
    fronted = [
        jnp.broadcast_to(x, (size, *x.shape)) if d is _compat.not_mapped else jnp.moveaxis(x, d, 0)
        for x, d in zip(moving, dims[-given:], strict=True)
    ]
    deeper = dataclasses.replace(wrt, stack=wrt.stack + 1)
    outs = primitive.bind(*fixed, *fronted, params=params, wrt=deeper)
    return outs, [0] * len(outs)


def _fresh_residuals(batch: Batch, wrt: Wrt) -> list[Any]:
    made = rec_forward_p.bind(*batch.operands, params=batch.params, wrt=wrt)
    return made[len(outcome_types(batch.params)) :]


def _collect_lanes(batch: Batch, wrt: Wrt, residuals: Sequence[Any]) -> tuple[Any, Any] | None:
    """The lane of each reported call and their number, of a batched invocation."""
    if not batch.params.collect:
        return None
    avals = [_compat.aval_of(x) for x in batch.operands]
    backward = _backward(batch.params, wrt, avals)
    tables, _, _ = _split_residuals(batch.params, backward, residuals)
    return tables.calls_lane, tables.num_calls


# rec_backward


def _run_backward(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    call = _Call(operands, params, wrt, sum(differentiable(params)))
    backward = call.backward()
    tables, tapes, kept = _split_residuals(params, backward, call.residuals)
    pairs = list(zip(wrt.positions, wrt.lanes, strict=True))
    outers = [(k, p) for k, p in pairs if k < params.num_outers]
    roots = [k for k, _ in pairs if k >= params.num_outers]
    want = Want(
        tuple(k for k, _ in outers),
        tuple(k - params.first_data for k in roots),
        tuple(p for _, p in outers),
    )
    at = bound(params, backward.layout, tables, call.primals)

    def once(*given: Any) -> list[Any]:
        outer_cts, root_cts = run_backward(at, backward, tapes, kept, given, want)
        return [*outer_cts, *root_cts]

    return _over_stack(once, wrt.stack)(*call.given)


@rec_backward_p.def_impl
def _backward_impl(*operands: Any, params: Params, wrt: Wrt) -> list[Any]:
    return _compiled("rec_backward", _run_backward, params, wrt)(*operands)


@rec_backward_p.def_abstract_eval
def _backward_types(*avals: Any, params: Params, wrt: Wrt) -> list[ShapedArray]:
    vma = _compat.common_vma(avals)
    types = []
    for k, pattern in zip(wrt.positions, wrt.lanes, strict=True):
        own = k < params.num_outers and params.patterns[k] is None
        lead = (pattern[1],) if own and pattern is not None else ()
        aval = ShapedArray((*lead, *avals[k].shape), avals[k].dtype)
        types.append(_stacked(aval, avals, wrt))
    return [_compat.with_vma(a, vma) for a in types]


_compat.register_lowering(rec_backward_p, _run_backward)


def _backward_jvp(primals: Any, tangents: Any, *, params: Params, wrt: Wrt) -> Any:
    if any(p is not None and params.patterns[k] is None for k, p in zip(*_parts(wrt), strict=True)):
        return _backward_by_lane_jvp(primals, tangents, params, wrt)
    call = _Call(primals, params, wrt, sum(differentiable(params)))

    def run(operands: list[Any], given: list[Any]) -> list[Any]:
        def at(*changed: Any) -> list[Any]:
            return _with_operands(call, operands).results_of(changed, replay)

        _, pull = jax.vjp(at, *(operands[k] for k in wrt.positions))
        return _over_stack(lambda *cts: list(pull(list(cts))), wrt.stack)(*given)

    return _jvp_of_replay(run, call, tangents)


def _parts(wrt: Wrt) -> tuple[tuple[int, ...], tuple[LanePattern | None, ...]]:
    return wrt.positions, wrt.lanes


def _backward_by_lane_jvp(primals: Any, tangents: Any, params: Params, wrt: Wrt) -> Any:
    """With cotangents kept apart by lane: differentiates with outer values repeated by lane."""
    call = _Call(primals, params, wrt, sum(differentiable(params)))
    apart = {k: p for k, p in zip(*_parts(wrt), strict=True) if p is not None}
    patterns = tuple(apart.get(k, p) for k, p in enumerate(params.patterns))
    wide = dataclasses.replace(params, patterns=patterns)

    def run(operands: list[Any], given: list[Any]) -> list[Any]:
        repeated = [
            jnp.broadcast_to(x, (apart[k][1], *x.shape)) if k in apart else x
            for k, x in enumerate(operands)
        ]

        def at(*changed: Any) -> list[Any]:
            full = list(repeated)
            for k, x in zip(wrt.positions, changed, strict=True):
                full[k] = x
            tables, _, _ = _split_residuals(params, call.backward(), call.residuals)
            layout = call.backward().layout
            outs = replay(bound(wide, layout, tables, full))
            return [x for x in outs if has_cotangent(x)]

        _, pull = jax.vjp(at, *(repeated[k] for k in wrt.positions))
        return _over_stack(lambda *cts: list(pull(list(cts))), wrt.stack)(*given)

    return _jvp_of_replay(run, call, tangents)


_compat.register_jvp(rec_backward_p, _backward_jvp)


def _backward_batch(operands: Any, dims: Any, *, params: Params, wrt: Wrt) -> Any:
    given = sum(differentiable(params))
    count = params.num_operands
    if all(d is _compat.not_mapped for d in dims[: len(dims) - given]):
        return _stack_given(rec_backward_p, operands, dims, given, params, wrt)
    size = _size(operands, dims)
    apart = [k for k in wrt.positions if k < params.num_outers and params.patterns[k] is not None]
    batch = Batch(params, operands[:count], dims[:count], size, apart)
    lanes = tuple(
        batch.cotangent_lanes(k, p) for k, p in zip(wrt.positions, wrt.lanes, strict=True)
    )
    wide = Wrt(wrt.positions, lanes, wrt.stack)
    residuals = _fresh_residuals(batch, wrt)
    cts = _lay_out_cotangents(batch, wrt, residuals, operands[-given:], dims[-given:])
    outs = rec_backward_p.bind(*batch.operands, *residuals, *cts, params=batch.params, wrt=wide)

    def split(*outs: Any) -> list[Any]:
        parts = zip(wrt.positions, outs, wrt.lanes, strict=True)
        return [batch.split_operand(k, x, p) for k, x, p in parts]

    return _over_stack(split, wrt.stack)(*outs), [wrt.stack] * len(outs)


def _lay_out_cotangents(
    batch: Batch, wrt: Wrt, residuals: Sequence[Any], given: Sequence[Any], dims: Sequence[Any]
) -> list[Any]:
    """Lays out cotangents of the results, below the stacked axes."""
    reports = _collect_lanes(batch, wrt, residuals)
    fronted = [
        x if d is _compat.not_mapped else jnp.moveaxis(x, d, wrt.stack)
        for x, d in zip(given, dims, strict=True)
    ]
    axes = [d if d is _compat.not_mapped else 0 for d in dims]

    def lay_out(*cts: Any) -> list[Any]:
        return batch.like_results(cts, axes, reports)

    return _over_stack(lay_out, wrt.stack)(*fronted)


_compat.register_batching(rec_backward_p, _backward_batch)
