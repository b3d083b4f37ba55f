"""Evaluates an operation so that what it makes of several rows lies row by row.

Under `jax.vmap` a matrix times a vector gives the rows as columns. XLA puts them in order at the
end of a wave, and copies them for that where a row has several examples. The vector times the
matrix is the same product and gives rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend.core import JaxprEqn

from jaxrec import _compat
from jaxrec._equation import bind_equation


def bind_by_rows(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any]:
    """The results of an equation on values for its operands."""
    if not _is_matrix_by_vector(eqn) or _compat.is_batched(values[0]):
        return bind_equation(eqn, values)
    (of_matrix, of_vector), alone = eqn.params["dimension_numbers"]
    exchanged = (of_vector, of_matrix), alone
    turned = eqn.replace(
        invars=eqn.invars[::-1], params={**eqn.params, "dimension_numbers": exchanged}
    )
    return bind_equation(turned, values[::-1])


def _is_matrix_by_vector(eqn: JaxprEqn) -> bool:
    """Whether it multiplies something by an operand that is contracted as a whole."""
    if eqn.primitive.name != "dot_general":
        return False
    (of_left, of_right), (batch, _) = eqn.params["dimension_numbers"]
    types: list[Any] = [atom.aval for atom in eqn.invars]
    return not batch and len(of_right) == types[1].ndim and len(of_left) < types[0].ndim
