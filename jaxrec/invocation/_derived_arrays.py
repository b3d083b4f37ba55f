"""Arrays computed from outer values alone, once for all calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrec import _compat
from jaxrec._zeros import keeping_zeros
from jaxrec.graph._ir import Atom, Op, Prim, Value, walk
from jaxrec.lowering._cell import run_ops
from jaxrec.schedule._plan import LanePattern, element_of
from jaxrec.split._program import Program


def outers_behind(program: Program) -> Mapping[Value, frozenset[int]]:
    """The positions of the outer values that each value of a program's text follows from.

    Of a derived one they are all that it is computed from.
    """
    return program.cache.once("outers behind", lambda: _outers_behind(program))


def _outers_behind(program: Program) -> dict[Value, frozenset[int]]:
    position = {value: frozenset({k}) for k, value in enumerate(program.outers)}
    root = program.binding.outer_of
    found: dict[Atom, frozenset[int]] = {v: position[r] for v, r in root.items() if r in position}
    for op in program.graph.ops:
        if isinstance(op, Prim):
            behind = frozenset[int]().union(*(found.get(a, frozenset()) for a in op.inputs))
            found.update(dict.fromkeys(op.outputs, behind))
    return {v: k for v, k in found.items() if isinstance(v, Value)}


def pattern_of(
    program: Program, patterns: Sequence[LanePattern | None], lanes: int, value: Value
) -> LanePattern | None:
    """How lanes index a derived array, by how they index outer values."""
    used = {patterns[k] for k in outers_behind(program)[value]} - {None}
    return (1, lanes) if len(used) > 1 else next(iter(used), None)


def derived_arrays(
    program: Program,
    patterns: Sequence[LanePattern | None],
    lanes: int,
    values: Sequence[Value],
    outers: Sequence[Any],
) -> list[Any]:
    """The values of some derived arrays.

    Those of one function that lanes index alike are computed together.

    Args:
        program: whose they are.
        patterns: for each outer value, how lanes index it.
        lanes: how many there are.
        values: the arrays.
        outers: what the outer values are.
    """
    found: dict[Value, Any] = {}
    for function in program.graph.functions:
        ops = [op for op in walk(function.body) if isinstance(op, Prim)]
        mine = {out for op in ops for out in op.outputs}.intersection(values)
        groups: dict[LanePattern | None, list[Value]] = {}
        for value in filter(mine.__contains__, values):
            pattern = pattern_of(program, patterns, lanes, value)
            groups.setdefault(pattern, []).append(value)
        for group in groups.values():
            made = _together(program, patterns, lanes, group, _behind(ops, group), outers)
            found.update(zip(group, made, strict=True))
    return [found[value] for value in values]


def _together(
    program: Program,
    patterns: Sequence[LanePattern | None],
    lanes: int,
    group: Sequence[Value],
    ops: Sequence[Op],
    outers: Sequence[Any],
) -> list[Any]:
    """What some operations make, which lanes index alike."""
    behind = outers_behind(program)
    used = sorted(frozenset[int]().union(*(behind[value] for value in group)))
    values, own = [outers[k] for k in used], [patterns[k] for k in used]
    if len({*own} - {None}) > 1:
        values = [_by_lane(x, p, lanes) for x, p in zip(values, own, strict=True)]

    def plain(*given: Any) -> list[Any]:
        env = {program.outers[k]: x for k, x in zip(used, given, strict=True)}
        run_ops(ops, env, program.binding.outer_of)
        return [env[value] for value in group]

    def keeping(*given: Any) -> list[Any]:
        return keeping_zeros(jax.make_jaxpr(plain)(*given), given, carries)

    carries = [program.outers[k] in program.tangents for k in used]
    compute = keeping if any(carries) else plain
    if any(own):
        compute = jax.vmap(compute, in_axes=tuple(0 if p else None for p in own))
    with _compat.without_checks():  # of what a branch that is not taken would make of it
        return compute(*values)


def _by_lane(value: Any, pattern: LanePattern | None, lanes: int) -> Any:
    return value if pattern is None else value[element_of(np.arange(lanes), pattern)]


def _behind(ops: Sequence[Prim], values: Iterable[Value]) -> list[Prim]:
    """Those of some operations that compute some values, in order."""
    wanted: set[Atom] = set(values)
    kept = []
    for op in reversed(ops):
        if wanted.intersection(op.outputs):
            kept.append(op)
            wanted.update(op.inputs)
    return kept[::-1]
