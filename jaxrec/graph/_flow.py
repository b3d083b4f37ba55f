"""Between which operands and results of an operation derivatives flow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxrec import _compat
from jaxrec._dependence import Dependence
from jaxrec._equation import bind_equation
from jaxrec._types import has_derivative
from jaxrec._values import replaced
from jaxrec.graph._ir import Prim
from jaxrec.graph._moving import ALWAYS
from jaxrec.graph._patience import starts_recursion


def flow(op: Prim) -> frozenset[tuple[int, int]]:
    """The operands that derivatives of results flow to: pairs of an operand and a result.

    There are none of the operand that `jnp.where` chooses by, of `jnp.sign`, or where a loop reads
    something for a decision alone.
    """
    moved = [k for k, atom in enumerate(op.inputs) if has_derivative(atom.aval)]
    made = [k for k, value in enumerate(op.outputs) if has_derivative(value.aval)]
    if op.name in ALWAYS or not moved or not made or starts_recursion([op]):
        return frozenset(itertools.product(moved, made))
    return _flow(op, moved, made)


def _flow(op: Prim, moved: list[int], made: list[int]) -> frozenset[tuple[int, int]]:
    """As JAX derives the operation; nothing where it cannot."""
    values, results = [atom.aval for atom in op.inputs], [op.outputs[k].aval for k in made]

    def of_moved(values: list[Any], given: Sequence[Any]) -> list[Any]:
        outs = bind_equation(op.eqn, replaced(values, moved, given))
        return [outs[k] for k in made]

    def backward(values: list[Any], cotangents: list[Any]) -> Any:
        pull = jax.vjp(lambda *given: of_moved(values, given), *(values[k] for k in moved))[1]
        return pull(cotangents)

    def forward(values: list[Any], tangents: list[Any]) -> Any:
        given = [values[k] for k in moved]
        return jax.jvp(lambda *given: of_moved(values, given), given, tangents)[1]

    backward_flow = _pairs(backward, values, results)
    if backward_flow is not None:
        return frozenset((moved[k], made[j]) for j, k in backward_flow)
    forward_flow = _pairs(forward, values, [values[k] for k in moved])
    return frozenset((moved[k], made[j]) for k, j in forward_flow or ())


def _pairs(
    derivative: Callable[..., Any], values: list[Any], given: list[Any]
) -> list[tuple[int, int]] | None:
    """Pairs of what is given and a result that follows from it; None if there is no derivative."""
    try:
        with _compat.without_mesh():
            closed = jax.make_jaxpr(derivative)(values, given)
    except Exception:  # of an operation that has none in this direction
        return None
    found, dependence = list[tuple[int, int]](), Dependence()
    for k in range(len(given)):
        alone = [False] * len(values) + [n == k for n in range(len(given))]
        found += ((k, j) for j, depends in enumerate(dependence.results(closed, alone)) if depends)
    return found
