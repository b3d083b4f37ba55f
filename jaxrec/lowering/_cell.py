"""A cell as a function of arrays: for one call, and for a wave of calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec import _compat
from jaxrec.graph._ir import Atom, Const, Op, Prim, Region, Switch, Value
from jaxrec.split._program import CellSpec, Program

Env = dict[Value, Any]
Lookup = Callable[[Env, Atom], Any]


def row_function(program: Program, spec: CellSpec) -> Callable[..., list[Any]]:
    """The cell for one call: `(outers, exports, inputs) -> outputs`, lists of arrays."""
    cell, root = spec.cell, program.binding.outer_of

    def lookup(env: Env, atom: Atom) -> Any:
        if isinstance(atom, Const):
            return jnp.asarray(atom.value, atom.aval.dtype)
        return env[root.get(atom, atom)]

    def run(outers: Sequence[Any], exports: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        env: Env = dict(zip(cell.outers, outers, strict=True))
        env.update(zip(cell.exports, exports, strict=True))
        env.update(zip(cell.inputs, inputs, strict=True))
        evaluate(cell.ops, env, lookup)
        return [lookup(env, atom) for atom, _ in cell.outputs]

    return run


def evaluate(ops: Sequence[Op], env: Env, lookup: Lookup) -> None:
    """Runs call-free operations in order, adding their results to the environment."""
    for op in ops:
        if isinstance(op, Prim):
            outs = _compat.bind_equation(op.eqn, [lookup(env, a) for a in op.inputs])
        else:
            assert isinstance(op, Switch)
            outs = _evaluate_switch(op, env, lookup)
        env.update(zip(op.outputs, outs, strict=True))


def _evaluate_switch(op: Switch, env: Env, lookup: Lookup) -> list[Any]:
    def branch(region: Region) -> Callable[[], list[Any]]:
        def run() -> list[Any]:
            scope = dict(env)
            evaluate(region.ops, scope, lookup)
            return [lookup(scope, atom) for atom in region.results]

        return run

    return jax.lax.switch(lookup(env, op.index), [branch(r) for r in op.regions])


def wave_function(
    program: Program, spec: CellSpec, by_row: Sequence[bool], width: int
) -> Callable[..., list[Any]]:
    """The cell for `width` calls; arrays have a leading row axis.

    Args:
        program: the program.
        spec: the cell.
        by_row: for each outer value of the cell, whether it has a row axis too.
        width: number of rows.
    """
    axes = ([0 if own else None for own in by_row], 0, 0, 0)

    def with_row(outers: Any, exports: Any, inputs: Any, row: Any) -> list[Any]:
        del row
        return row_function(program, spec)(outers, exports, inputs)

    batched = jax.vmap(with_row, in_axes=axes, axis_size=width)

    def run(outers: Sequence[Any], exports: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        return batched(list(outers), list(exports), list(inputs), jnp.arange(width))

    return run
