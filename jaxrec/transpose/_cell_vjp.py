"""The backward pass of one cell, cut in two.

The cell is batched with its outer values unbatched, and differentiated as a whole; so the
cotangent of a weight is already one contraction over the rows. Its backward jaxpr is then cut by
dead-code elimination:

    loop   what the cotangents of the tape inputs need: runs wave by wave, in reverse
    after  what only the cotangents of the outer values need: runs once, over the whole tape

What `loop` computes and `after` needs is the *cut*: it is written to a tape of its own. For a
Tree-LSTM the cut is the cotangent of the pre-activations, and `after` is one large matrix product.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn, Var, jaxpr_as_fun

from jaxrec import _compat
from jaxrec._errors import UnsupportedError
from jaxrec._values import replaced
from jaxrec.executors._choice import inside_a_cell
from jaxrec.split._patience import jaxpr_has_to_wait
from jaxrec.transpose._equations import (
    enlarging,
    needed,
    reachable,
    repeatable,
    row_axes,
    row_axis,
)
from jaxrec.transpose._packing import Packing

Policy = Callable[..., bool] | None


@dataclasses.dataclass(frozen=True)
class Operands:
    """The operands of a batched cell, flat, and which of them cotangents are asked for.

    Attributes:
        avals: types at one width: outer values, control scalars, tape inputs.
        outers: how many of them are outer values.
        wrt_outers: positions of the outer values to differentiate.
        wrt_inputs: positions of the tape inputs to differentiate.
        carries: for each output of the cell, whether it has a cotangent.
    """

    avals: tuple[Any, ...]
    outers: int
    wrt_outers: tuple[int, ...]
    wrt_inputs: tuple[int, ...]
    carries: tuple[bool, ...]

    @property
    def wrt(self) -> tuple[int, ...]:
        """All differentiated positions."""
        return self.wrt_outers + self.wrt_inputs


@dataclasses.dataclass(frozen=True)
class TracedCell:
    """The forward and the backward jaxpr of a cell at one width, nested calls inlined.

    Attributes:
        operands: what the cell takes.
        forward: operands to outputs and the leaves of the vjp function.
        backward: leaves and output cotangents to operand cotangents.
        outputs: number of outputs of the cell.
    """

    operands: Operands
    forward: ClosedJaxpr
    backward: ClosedJaxpr
    outputs: int


def trace_cell(
    fun: Callable[..., list[Any]], operands: Operands, policy: Policy = None
) -> TracedCell:
    """Differentiates a cell at one width.

    Args:
        fun: the batched cell, a function of its flat operands.
        operands: what it takes, with at least two rows: JAX treats axes of size 1 apart, and the
            cut must be the same at every width.
        policy: which intermediate results to keep, as for `jax.checkpoint`.
    """
    trees: list[Any] = []
    counts: list[int] = []

    def forward(*values: Any) -> list[Any]:
        def of_wrt(*changed: Any) -> list[Any]:
            outs = fun(*replaced(values, operands.wrt, changed))
            return [x for x, carries in zip(outs, operands.carries, strict=True) if carries]

        outs = fun(*values)
        kept = jax.checkpoint(of_wrt, policy=_on_tapes(policy or _keeps_products))
        _, vjp = jax.vjp(kept, *(values[p] for p in operands.wrt))
        leaves, tree = jax.tree.flatten(vjp)
        trees.append(tree)
        counts.append(len(outs))
        return [*outs, *leaves]

    traced_forward = _inline(jax.make_jaxpr(forward)(*operands.avals))
    outputs = counts[-1]
    types = traced_forward.out_avals
    cotangents = [a for a, c in zip(types[:outputs], operands.carries, strict=True) if c]

    def backward(leaves: list[Any], cts: list[Any]) -> Any:
        with inside_a_cell():
            return list(jax.tree.unflatten(trees[-1], leaves)(list(cts)))

    leaves = [_shape(a) for a in types[outputs:]]
    traced = jax.make_jaxpr(backward)(leaves, [_shape(a) for a in cotangents])
    return TracedCell(operands, traced_forward, _inline(traced), outputs)


def _on_tapes(policy: Callable[..., Any]) -> Callable[..., Any]:
    """The policy, checked to ask for nothing but keeping or not."""

    def keeps(primitive: Any, *avals: Any, **params: Any) -> Any:
        kept = policy(primitive, *avals, **params)
        if hasattr(kept, "dst"):
            raise UnsupportedError(
                f"policy= offloads the result of {primitive.name} to {kept.dst}; residuals of "
                "recursive calls stay where the calls run. Keep them, or compute them again: "
                "jax.checkpoint_policies.save_only_these_names."
            )
        return kept

    return keeps


def _keeps_products(primitive: Any, *avals: Any, **params: Any) -> bool:
    """The default policy: keeps matrix products; none of complex numbers, which JAX cannot mark.

    On CPU it is faster to compute activations again than to write and read them.
    """
    if any(jnp.issubdtype(aval.dtype, jnp.complexfloating) for aval in avals):
        return False
    return jax.checkpoint_policies.dots_saveable(primitive, *avals, **params)


def _shape(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _inline(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function without nested calls, so that it can be cut anywhere."""

    def run(*args: Any) -> list[Any]:
        return _run_inlined(closed.jaxpr, closed.consts, args)

    return jax.make_jaxpr(run)(*(_shape(v.aval) for v in closed.jaxpr.invars))


def _run_inlined(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if _compat.is_literal(atom) else env[atom]

    for eqn in jaxpr.eqns:
        values = [read(a) for a in eqn.invars]
        if eqn.primitive.name == "reduce_precision" and _keeps_precision(eqn):
            outs = values
        elif (inner := _compat.inlined(eqn)) is not None:
            outs = _run_inlined(inner.jaxpr, inner.consts, values)
        else:
            outs = _compat.bind_equation(eqn, values)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(a) for a in jaxpr.outvars]


def _keeps_precision(eqn: JaxprEqn) -> bool:
    """Whether an equation only marks a residual: it rounds to the precision that there is."""
    aval: Any = eqn.outvars[0].aval
    kept = jnp.finfo(aval.dtype)
    return eqn.params["exponent_bits"] >= kept.nexp and eqn.params["mantissa_bits"] >= kept.nmant


Source = tuple[str, int]
"""Where a leaf of the vjp comes from: ("operand", k), ("saved", k) or ("fixed", k)."""


@dataclasses.dataclass(frozen=True)
class CellVjp:
    """The backward pass of a cell at one width; see the head of this file.

    Attributes:
        width: rows of a wave.
        operands: what the cell takes.
        saved: types of one row of the residuals that the forward pass keeps, those of one type
            of element packed into one row.
        cuts: types of one row of what `loop` hands to `after`.
        cut_carries: for each of `cuts`, whether it is linear in the cotangents.
        has_loop: whether any tape input has a cotangent.
    """

    width: int
    operands: Operands
    saved: tuple[ShapedArray, ...]
    cuts: tuple[ShapedArray, ...]
    cut_carries: tuple[bool, ...]
    has_loop: bool
    _traced: TracedCell
    _sources: tuple[Source, ...]
    _saved_axes: tuple[int, ...]
    _packing: Packing
    _cut_axes: tuple[int, ...]
    _cut_vars: tuple[Var, ...]
    _loop: tuple[JaxprEqn, ...]
    _after: tuple[JaxprEqn, ...]

    @property
    def after_reads_cotangents(self) -> bool:
        """Whether `after` reads cotangents of the outputs, not only the cut."""
        cts = set(self._traced.backward.jaxpr.invars[len(self._sources) :])
        read = {a for eqn in self._after for a in eqn.invars if isinstance(a, Var)}
        made = self._traced.backward.jaxpr.outvars[: len(self.operands.wrt_outers)]
        outs = {a for a in made if isinstance(a, Var)}
        return bool(cts & (read | outs))

    @property
    def waits(self) -> bool:
        """Whether a pass must run for calls alone, see `jaxrec/split/_patience.py`."""
        passes = self._traced.forward, self._traced.backward
        return any(jaxpr_has_to_wait(made.jaxpr) for made in passes)

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Runs the cell: its outputs, and the residuals with the row axis in front."""
        outs = jaxpr_as_fun(self._traced.forward)(*values)
        kept = [
            outs[self._traced.outputs + k]
            for k, (kind, _) in enumerate(self._sources)
            if kind == "saved"
        ]
        rows = [jnp.moveaxis(x, axis, 0) for x, axis in zip(kept, self._saved_axes, strict=True)]
        return outs[: self._traced.outputs], self._packing.pack(rows)

    def loop(
        self, values: Sequence[Any], saved: Sequence[Any], cts: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Cotangents of the tape inputs, and the cut, with the row axis in front."""
        env = self._environment(values, saved, cts)
        _run(self._loop, env)
        outs = self._traced.backward.jaxpr.outvars[len(self.operands.wrt_outers) :]
        cuts = [env[v] for v in self._cut_vars]
        rows = [jnp.moveaxis(x, axis, 0) for x, axis in zip(cuts, self._cut_axes, strict=True)]
        return [_value(env, a) for a in outs], rows

    def after(
        self,
        values: Sequence[Any],
        saved: Sequence[Any],
        cts: Sequence[Any],
        cuts: Sequence[Any],
        totals: Sequence[Any],
    ) -> list[Any]:
        """Adds the cotangents of the outer values, from these rows, to `totals`.

        An outer value with a row axis has a row of `totals` for each row.
        """
        env = self._environment(values, saved, cts)
        for var, rows, axis in zip(self._cut_vars, cuts, self._cut_axes, strict=True):
            env[var] = jnp.moveaxis(rows, 0, axis)
        outs = self._traced.backward.jaxpr.outvars[: len(self.operands.wrt_outers)]
        scatters = {eqn.outvars[0]: eqn for eqn in self._after if _adds_to_zeros(eqn, self._after)}
        made = [v for v in outs if isinstance(v, Var)]
        direct = [v for v in made if v in scatters and sum(v is w for w in outs) == 1]
        direct = [v for v in direct if not _is_read(v, self._after)]
        _run([e for e in self._after if e.outvars[0] not in direct], env)
        return [
            _scatter_into(scatters[v], env, total) if v in direct else total + _value(env, v)
            for v, total in zip(outs, totals, strict=True)
        ]

    def _environment(
        self, values: Sequence[Any], saved: Sequence[Any], cts: Sequence[Any]
    ) -> dict[Any, Any]:
        jaxpr, consts = self._traced.backward.jaxpr, self._traced.backward.consts
        env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        held = iter(
            jnp.moveaxis(rows, 0, axis)
            for rows, axis in zip(self._packing.unpack(saved), self._saved_axes, strict=True)
        )
        fixed = self._fixed(values)
        leaves = []
        for k, (kind, position) in enumerate(self._sources):
            match kind:
                case "operand":
                    leaves.append(values[position])
                case "saved":
                    leaves.append(next(held))
                case _:
                    leaves.append(fixed[k])
        env.update(zip(jaxpr.invars, [*leaves, *cts], strict=True))
        return env

    def _fixed(self, values: Sequence[Any]) -> dict[int, Any]:
        """Leaves without rows, which depend on outer values alone: computed again."""
        wanted = [k for k, (kind, _) in enumerate(self._sources) if kind == "fixed"]
        if not wanted:
            return {}
        forward = self._traced.forward
        outvars = [forward.jaxpr.outvars[self._traced.outputs + k] for k in wanted]
        env: dict[Any, Any] = dict(zip(forward.jaxpr.constvars, forward.consts, strict=True))
        env.update(zip(forward.jaxpr.invars, values, strict=True))
        _run(needed(forward.jaxpr.eqns, outvars), env)
        return {k: _value(env, v) for k, v in zip(wanted, outvars, strict=True)}


class FoldedRowsError(Exception):
    """What a cell keeps has no axis of rows: JAX has made one axis of rows and something else.

    Its rules for `vmap` of convolutions and of triangular solutions do, by sizes.
    """


def cell_vjp(traced: TracedCell, other: TracedCell, width: int, other_width: int) -> CellVjp:
    """Cuts the backward pass of a cell.

    Args:
        traced: the cell at one width.
        other: the same at another width: axes that differ are those of rows.
        width: number of rows of `traced`.
        other_width: that of `other`.

    Raises:
        FoldedRowsError: it cannot be cut so.
    """
    if not _are_alike(traced, other):
        raise FoldedRowsError
    sources, saved_axes = _leaf_sources(traced, other)
    cut = _Cut(traced, other, sources)
    _check_rows(traced, other, [*_leaf_vars(traced.forward, traced), *cut.vars], width, other_width)
    saved_vars = [
        v for v, (kind, _) in zip(_leaf_vars(traced.forward, traced), sources, strict=True)
        if kind == "saved"
    ]  # fmt: skip
    packing = Packing(tuple(_row_aval(v, a) for v, a in zip(saved_vars, saved_axes, strict=True)))
    return CellVjp(
        width=width,
        operands=traced.operands,
        saved=packing.types,
        cuts=tuple(_row_aval(v, a) for v, a in zip(cut.vars, cut.axes, strict=True)),
        cut_carries=tuple(v in cut.carrying for v in cut.vars),
        has_loop=bool(traced.operands.wrt_inputs),
        _traced=traced,
        _sources=tuple(sources),
        _saved_axes=tuple(saved_axes),
        _packing=packing,
        _cut_axes=tuple(cut.axes),
        _cut_vars=tuple(cut.vars),
        _loop=tuple(cut.loop),
        _after=tuple(cut.after),
    )


def _are_alike(traced: TracedCell, other: TracedCell) -> bool:
    """Whether two traces are the same operations."""
    pairs = ((traced.forward, other.forward), (traced.backward, other.backward))
    return all([e.primitive for e in a.eqns] == [e.primitive for e in b.eqns] for a, b in pairs)


def _check_rows(
    traced: TracedCell, other: TracedCell, kept: Sequence[Any], width: int, other_width: int
) -> None:
    """Checks that in what is kept an axis that grows with the number of rows is that of rows."""
    wanted = {v for v in kept if isinstance(v, Var)}
    for a, b in ((traced.forward, other.forward), (traced.backward, other.backward)):
        for v, w in zip(_made(a), _made(b), strict=True):
            if v not in wanted or v.aval.shape == w.aval.shape:
                continue
            sizes = zip(v.aval.shape, w.aval.shape, strict=True)
            if [pair for pair in sizes if pair[0] != pair[1]] != [(width, other_width)]:
                raise FoldedRowsError


def _made(closed: ClosedJaxpr) -> list[Any]:
    return [v for eqn in closed.eqns for v in eqn.outvars]


def _leaf_vars(forward: ClosedJaxpr, traced: TracedCell) -> list[Any]:
    return list(forward.jaxpr.outvars[traced.outputs :])


def _leaf_sources(traced: TracedCell, other: TracedCell) -> tuple[list[Source], list[int]]:
    operands = {v: k for k, v in enumerate(traced.forward.jaxpr.invars)}
    sources: list[Source] = []
    axes: list[int] = []
    pairs = zip(_leaf_vars(traced.forward, traced), _leaf_vars(other.forward, other), strict=True)
    for k, (var, wide) in enumerate(pairs):
        axis = row_axis(var.aval, wide.aval)
        if isinstance(var, Var) and var in operands:
            sources.append(("operand", operands[var]))
        elif axis is None:
            sources.append(("fixed", k))
        else:
            sources.append(("saved", len(axes)))
            axes.append(axis)
    return sources, axes


def _row_aval(var: Any, axis: int) -> ShapedArray:
    shape = [n for k, n in enumerate(var.aval.shape) if k != axis]
    return ShapedArray(tuple(shape), var.aval.dtype)


class _Cut:
    """Divides the backward equations between `loop` and `after`."""

    def __init__(self, traced: TracedCell, other: TracedCell, sources: Sequence[Source]) -> None:
        operands = traced.operands
        jaxpr = traced.backward.jaxpr
        split = len(operands.wrt_outers)
        outer_outs, input_outs = jaxpr.outvars[:split], jaxpr.outvars[split:]
        fixed = {
            v
            for v, (kind, k) in zip(jaxpr.invars, sources, strict=False)
            if kind == "fixed" or (kind == "operand" and k < operands.outers
                                   and not _has_rows(traced, other, k))
        }  # fmt: skip
        self.loop = needed(jaxpr.eqns, input_outs)
        in_loop = set(map(id, self.loop))
        axes = row_axes(jaxpr.eqns, other.backward.jaxpr.eqns)
        leaves = {*jaxpr.constvars, *jaxpr.invars[: len(sources)]}
        cotangents = set(jaxpr.invars[len(sources) :])
        repeated = repeatable(jaxpr.eqns, {*fixed, *jaxpr.constvars}, leaves)
        while True:
            behind = needed(jaxpr.eqns, outer_outs, stop=in_loop - repeated)
            self.after = [e for e in behind if id(e) not in in_loop or id(e) in repeated]
            from_loop = {v: e for e in self.loop if id(e) not in repeated for v in e.outvars}
            wanted = [a for e in self.after for a in e.invars] + list(outer_outs)
            wanted = [v for v in wanted if isinstance(v, Var) and v in from_loop]
            self.vars = list(dict.fromkeys(wanted))
            # What sums over rows inside the loop (a scan whose weights are outer values) has no
            # row to be stored in: it is computed again, over the whole tape.
            rowless = {id(from_loop[v]) for v in self.vars if axes[v] is None}
            again = rowless or enlarging(self.vars, from_loop, axes, cotangents)
            if not again:
                break
            repeated |= again
        self.axes: list[int] = [axis for v in self.vars if (axis := axes[v]) is not None]
        self.carrying = reachable(jaxpr.eqns, set(jaxpr.invars[len(sources) :]))


def _has_rows(traced: TracedCell, other: TracedCell, operand: int) -> bool:
    a, b = traced.forward.jaxpr.invars[operand], other.forward.jaxpr.invars[operand]
    return row_axis(a.aval, b.aval) is not None


def _run(eqns: Sequence[JaxprEqn], env: dict[Any, Any]) -> None:
    for eqn in eqns:
        outs = _compat.bind_equation(eqn, [_value(env, a) for a in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))


def _value(env: dict[Any, Any], atom: Any) -> Any:
    return atom.val if _compat.is_literal(atom) else env[atom]


def _is_read(var: Any, eqns: Sequence[JaxprEqn]) -> bool:
    return any(var is a for eqn in eqns for a in eqn.invars)


def _adds_to_zeros(eqn: JaxprEqn, eqns: Sequence[JaxprEqn]) -> bool:
    """Whether an equation scatter-adds into zeros: the cotangent of a look-up in a table."""
    if eqn.primitive.name != "scatter-add":
        return False
    target = eqn.invars[0]
    makers = [e for e in eqns if any(target is v for v in e.outvars)]
    return (
        bool(makers)
        and makers[0].primitive.name == "broadcast_in_dim"
        and _is_zero(makers[0].invars[0])
    )


def _is_zero(atom: Any) -> bool:
    return _compat.is_literal(atom) and bool(np.all(np.asarray(atom.val) == 0))


def _scatter_into(eqn: JaxprEqn, env: dict[Any, Any], total: Any) -> Any:
    """Runs a scatter-add on the running total instead of on zeros."""
    values = [total, *(_value(env, a) for a in eqn.invars[1:])]
    return _compat.bind_equation(eqn, values)[0]
