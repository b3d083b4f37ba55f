"""A cell as a function of arrays: for one call, and for a wave of calls."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxrec import _compat
from jaxrec._at_rest import at_rest
from jaxrec._equation import varying_together
from jaxrec._errors import UnsupportedError
from jaxrec._executor import inside_a_cell
from jaxrec._order import apply_equation, has_rule, still
from jaxrec._types import has_derivative
from jaxrec._zeros import with_zero_tangents
from jaxrec.graph._ir import Atom, Const, Op, Prim, Region, Switch, Value, region_atoms
from jaxrec.graph._moving import places_moved
from jaxrec.graph._steep import has_steep
from jaxrec.lowering._by_rows import bind_by_rows
from jaxrec.lowering._dual_cell import PartsFunction, dual_function
from jaxrec.lowering._example_cell import example_function
from jaxrec.lowering._pack import pack, unpack
from jaxrec.lowering._rows import numbers
from jaxrec.split._axes import Axis, Examples, Tangents
from jaxrec.split._parts import Part
from jaxrec.split._program import CellSpec, Program

Env = dict[Value, Any]

ROWS = "rows of a wave"
"""The name of the axis of the calls of a wave."""


def row_function(
    program: Program, spec: CellSpec, constant: Iterable[Part] = ()
) -> Callable[..., list[Any]]:
    """The cell for one call: `(outers, exports, inputs) -> outputs`, lists of arrays.

    Args:
        program: the program.
        spec: the cell.
        constant: parts of the rows that it writes without a derivative, besides those that control
            alone reads.
    """
    run = _plain_function(program, spec, constant)
    for axis in program.axes:
        run = _AXIS[type(axis)](program, spec, run, axis)
    types = [program.members[c] for c in spec.inputs]

    def packed(outers: Sequence[Any], exports: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        rows = [unpack(row, parts) for row, parts in zip(inputs, types, strict=True)]
        return list(map(pack, run(outers, exports, rows)))

    return packed


_AXIS: dict[type[Axis], Any] = {Tangents: dual_function, Examples: example_function}
"""How a cell computes values that have an axis."""


def _plain_function(program: Program, spec: CellSpec, constant: Iterable[Part]) -> PartsFunction:
    """The cell where values have no axis in front."""
    cell, outer_of = spec.cell, program.binding.outer_of
    apply, ahead = _rules(program, program.graph.functions[cell.function].order)
    whole = len(cell.exports) - len(cell.compared)
    still_parts = program.deciding.union(constant)

    def run(outers: Sequence[Any], exports: Sequence[Any], rows: Sequence[Any]) -> list[list[Any]]:
        env: Env = dict(zip(cell.outers, still(outers, ahead), strict=True))
        env.update(zip(cell.exports[:whole], exports[:whole], strict=True))
        compared = dict(zip(cell.compared, exports[whole:], strict=True))
        for parts, values in zip(spec.input_parts, rows, strict=True):
            env.update(zip(parts, still(values, ahead), strict=True))
        env.update((v, of_control(env[v], x)) for v, x in compared.items() if v in env)
        run_ops(cell.ops, env, outer_of, apply, compared)
        return [
            [
                jax.lax.stop_gradient(x) if (c, k) in still_parts else x
                for k, x in enumerate(_value(env, outer_of, atom) for atom in parts)
            ]
            for c, parts in zip(spec.outputs, spec.output_parts, strict=True)
        ]

    return run


Apply = Callable[[Prim, list[Any]], list[Any]]
"""The results of an operation from its operands."""


def _rules(program: Program, order: int) -> tuple[Apply, int]:
    """How operations are evaluated in a function, which may stand inside of derivative rules.

    Returns:
        That, and how often a derivative is taken before the first of this function.
    """
    taken, ahead = program.taken[order:], max(order - len(program.taken), 0)

    def apply(op: Prim, values: list[Any]) -> list[Any]:
        if not has_rule(op.eqn):
            return bind_by_rows(op.eqn, values)
        for k, resting in enumerate(program.asked):
            pairs = zip(op.inputs, values, strict=True)
            values = [at_rest(x, k + 1) if atom in resting else x for atom, x in pairs]
        return apply_equation(op.eqn, values, places_moved(op, taken), ahead)

    return apply, ahead


def _plainly(op: Prim, values: list[Any]) -> list[Any]:
    return bind_by_rows(op.eqn, values)


@jax.custom_jvp
def of_control(computed: Any, number: Any) -> Any:
    """A number as control has it, with the derivative of how a cell computes it."""
    # The selection gives it the axes of examples that what is computed has, and its derivative.
    return jax.lax.select_n(True, computed, number)


@of_control.defjvp
def _of_control_jvp(primals: tuple[Any, Any], tangents: tuple[Any, Any]) -> tuple[Any, Any]:
    return of_control(*primals), tangents[0]


def run_ops(
    ops: Sequence[Op],
    env: Env,
    outer_of: Mapping[Value, Value],
    apply: Apply = _plainly,
    compared: Mapping[Value, Any] = types.MappingProxyType({}),
) -> None:
    """Runs call-free operations in order, adding their results to the environment.

    Args:
        ops: the operations.
        env: the values known so far.
        outer_of: the values that stand for an outer one, which is known instead.
        apply: evaluates one; left out, as it was traced.
        compared: results that are numbers of control.
    """
    for op in ops:
        if isinstance(op, Prim):
            outs = apply(op, [_value(env, outer_of, a) for a in op.inputs])
        else:
            assert isinstance(op, Switch)
            outs = _run_switch(op, env, outer_of, apply)
        for v, x in zip(op.outputs, outs, strict=True):
            env[v] = of_control(x, compared[v]) if v in compared else x


def _run_switch(op: Switch, env: Env, outer_of: Mapping[Value, Value], apply: Apply) -> list[Any]:
    """The results of a choice; where rows choose apart, all branches are computed for each row."""

    def run(region: Region, known: Env) -> list[Any]:
        scope = dict(known)
        run_ops(region.ops, scope, outer_of, apply)
        return [_value(scope, outer_of, atom) for atom in region.results]

    index = _value(env, outer_of, op.index)
    if has_steep(op) or not _compat.mapped_by(index):
        return jax.lax.switch(index, [functools.partial(run, x, env) for x in op.regions])
    index = jnp.clip(index, 0, len(op.regions) - 1)
    cases = []
    for k, region in enumerate(op.regions):
        read = {outer_of.get(a, a) for a in region_atoms(region) if isinstance(a, Value)}
        cases.append(run(region, _where_taken(index == k, read, env)))
    return [
        jax.lax.select_n(*varying_together([index, *made])) for made in zip(*cases, strict=True)
    ]


def _where_taken(taken: Any, read: Iterable[Value], env: Env) -> Env:
    """What a branch knows, with zeros for what it reads in the rows that do not take it.

    So whatever such a row holds adds nothing to derivatives, an infinity neither. `jax.lax.switch`
    would keep the row and give each a copy of what all of them read, such as a matrix.
    """
    known = ((v, env[v]) for v in read if v in env)
    return env | {
        v: jnp.where(taken, x, jnp.zeros_like(x))
        for v, x in known
        if has_derivative(x) and _compat.mapped_by(x)
    }


def _value(env: Env, outer_of: Mapping[Value, Value], atom: Atom) -> Any:
    if isinstance(atom, Const):
        return atom.array
    return env[outer_of.get(atom, atom)]


def wave_function(
    program: Program,
    spec: CellSpec,
    by_row: Sequence[bool],
    width: int,
    constant: Iterable[Part] = (),
    keeps_zeros: bool = False,
) -> Callable[..., list[Any]]:
    """The cell for `width` calls; arrays have a leading row axis.

    Args:
        program: the program.
        spec: the cell.
        by_row: for each outer value of the cell, whether it has a row axis too.
        width: number of rows.
        constant: parts of the rows that it writes without a derivative, see `row_function`.
        keeps_zeros: whether tangents of zero stay, see `jaxrec/_zeros.py`.
    """
    axes = ([0 if own else None for own in by_row], 0, 0, 0)

    def with_row(outers: Any, exports: Any, inputs: Any, row: Any) -> list[Any]:
        del row
        fun = row_function(program, spec, constant)
        fun = with_zero_tangents(fun) if keeps_zeros else fun
        return fun(outers, exports, inputs)

    batched = jax.vmap(with_row, in_axes=axes, axis_size=width, axis_name=ROWS)

    def run(outers: Sequence[Any], exports: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        try:
            with inside_a_cell(), jax.named_scope(spec.cell.name):
                return batched(list(outers), list(exports), list(inputs), numbers(width))
        except NotImplementedError as error:
            raise UnsupportedError(
                f"{program.name}: an operation of its body cannot be run for several calls at once "
                f"({error}). Calls run in batches, as jax.vmap of the body would: give the "
                "operation a rule for it, such as with jax.custom_batching.sequential_vmap."
            ) from error

    return run


def row_by_row_function(
    program: Program,
    spec: CellSpec,
    by_row: Sequence[bool],
    width: int,
    constant: Iterable[Part] = (),
) -> Callable[..., list[Any]]:
    """As `wave_function`, but a loop over the calls: nothing is made of several of them at once."""
    single = wave_function(program, spec, by_row, 1, constant)

    def run(outers: Sequence[Any], exports: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        def one(row: Any) -> list[Any]:
            _, own, exports, inputs = jax.tree.map(lambda x: x[None], row)
            rest = iter(own)
            mine = [next(rest) if has else x for x, has in zip(outers, by_row, strict=True)]
            return [x[0] for x in single(mine, exports, inputs)]

        own = [x for x, has in zip(outers, by_row, strict=True) if has]
        return jax.lax.map(one, (numbers(width), own, list(exports), list(inputs)))

    return run
