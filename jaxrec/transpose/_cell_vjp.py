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

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend.core import JaxprEqn, Var

from jaxrec import _compat
from jaxrec._equation import bind_equation, run_jaxpr
from jaxrec.graph._patience import jaxpr_has_to_wait
from jaxrec.transpose._cut import Cut, row_aval
from jaxrec.transpose._equations import needed
from jaxrec.transpose._packing import Packing
from jaxrec.transpose._traced_cell import TracedCell


class CellVjp:
    """The backward pass of a cell at one width; see the head of this file.

    Attributes:
        operands: what the cell takes.
        saved: types of one row of the residuals that the forward pass keeps, those of one type
            of element packed into one row.
        cuts: types of one row of what `loop` hands to `after`.
        cut_carries: for each of `cuts`, whether it is linear in the cotangents.
        has_loop: whether any tape input has a cotangent.
    """

    def __init__(self, traced: TracedCell, other: TracedCell) -> None:
        """Cuts a cell.

        Args:
            traced: the cell at this width.
            other: the same at another width: axes that differ are those of rows.

        Raises:
            FoldedRowsError: it cannot be cut so.
        """
        cut = Cut(traced, other)
        self._traced, self._cut = traced, cut
        pairs = zip(cut.saved, cut.saved_axes, strict=True)
        self._packing = Packing(tuple(row_aval(v, axis) for v, axis in pairs))
        self.operands, self.saved = traced.operands, self._packing.types
        self.cuts = tuple(row_aval(v, axis) for v, axis in zip(cut.vars, cut.axes, strict=True))
        self.cut_carries = tuple(v in cut.carrying for v in cut.vars)
        self.has_loop = bool(traced.operands.wrt_inputs)

    @property
    def after_reads_cotangents(self) -> bool:
        """Whether `after` reads cotangents of the outputs, not only the cut."""
        cts = set(self._traced.backward.jaxpr.invars[len(self._cut.sources) :])
        read = {a for eqn in self._cut.after for a in eqn.invars if isinstance(a, Var)}
        made = self._traced.backward.jaxpr.outvars[: len(self.operands.wrt_outers)]
        outs = {a for a in made if isinstance(a, Var)}
        return bool(cts & (read | outs))

    @property
    def waits(self) -> bool:
        """Whether a pass must run for calls alone, see `jaxrec/graph/_patience.py`."""
        passes = self._traced.forward, self._traced.backward
        return any(jaxpr_has_to_wait(made.jaxpr) for made in passes)

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Runs the cell: its outputs, and the residuals with the row axis in front."""
        outs = run_jaxpr(self._traced.forward, values, bind_equation)
        kept = [
            outs[self._traced.outputs + k]
            for k, (kind, _) in enumerate(self._cut.sources)
            if kind == "saved"
        ]
        pairs = zip(kept, self._cut.saved_axes, strict=True)
        rows = [jnp.moveaxis(x, axis, 0) for x, axis in pairs]
        return outs[: self._traced.outputs], self._packing.pack(rows)

    def loop(
        self, values: Sequence[Any], saved: Sequence[Any], cts: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Cotangents of the tape inputs, and the cut, with the row axis in front."""
        env = self._environment(values, saved, cts)
        _run(self._cut.loop, env)
        outs = self._traced.backward.jaxpr.outvars[len(self.operands.wrt_outers) :]
        cuts = [env[v] for v in self._cut.vars]
        rows = [jnp.moveaxis(x, axis, 0) for x, axis in zip(cuts, self._cut.axes, strict=True)]
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
        for var, rows, axis in zip(self._cut.vars, cuts, self._cut.axes, strict=True):
            env[var] = jnp.moveaxis(rows, 0, axis)
        outs = self._traced.backward.jaxpr.outvars[: len(self.operands.wrt_outers)]
        eqns = self._cut.after
        scatters = {eqn.outvars[0]: eqn for eqn in eqns if _adds_to_zeros(eqn, eqns)}
        made = [v for v in outs if isinstance(v, Var)]
        direct = [v for v in made if v in scatters and sum(v is w for w in outs) == 1]
        direct = [v for v in direct if not _is_read(v, eqns)]
        _run([e for e in eqns if e.outvars[0] not in direct], env)
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
            for rows, axis in zip(self._packing.unpack(saved), self._cut.saved_axes, strict=True)
        )
        fixed = self._fixed(values)
        leaves = []
        for k, (kind, position) in enumerate(self._cut.sources):
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
        wanted = [k for k, (kind, _) in enumerate(self._cut.sources) if kind == "fixed"]
        if not wanted:
            return {}
        forward = self._traced.forward
        outvars = [forward.jaxpr.outvars[self._traced.outputs + k] for k in wanted]
        env: dict[Any, Any] = dict(zip(forward.jaxpr.constvars, forward.consts, strict=True))
        env.update(zip(forward.jaxpr.invars, values, strict=True))
        _run(needed(forward.jaxpr.eqns, outvars), env)
        return {k: _value(env, v) for k, v in zip(wanted, outvars, strict=True)}


def _run(eqns: Sequence[JaxprEqn], env: dict[Any, Any]) -> None:
    for eqn in eqns:
        outs = bind_equation(eqn, [_value(env, a) for a in eqn.invars])
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
    return bind_equation(eqn, values)[0]
