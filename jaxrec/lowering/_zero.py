"""Whether a cell's cotangents are zero where those of its results are.

Rows that no call stands for repeat one that does, with cotangents of zero. That adds nothing to a
sum over rows if derivatives are linear, as those of JAX's operations are. A `custom_vjp` may give
anything for a cotangent of zero (weight decay in a backward rule, or NaN where it divides by the
size of the cotangent), and so may the solver of a `custom_linear_solve`; then such rows must be
left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._values import replaced
from jaxrec.graph._ir import Op, names_of
from jaxrec.lowering._cell import row_function
from jaxrec.split._program import CellSpec, Program

_ALL_ZERO = {"convert_element_type", "reshape", "broadcast_in_dim", "transpose", "squeeze"}
_ALL_ZERO |= {"slice", "pad", "concatenate", "copy", "rev"}
_ALL_ZERO |= {"add", "add_any", "sub", "neg", "reduce_sum", "cumsum", "reduce_max", "reduce_min"}
_ALL_ZERO |= {"sin", "tan", "tanh", "sinh", "asin", "atan", "asinh", "expm1", "log1p", "erf"}
_ALL_ZERO |= {"abs", "sign", "sqrt", "cbrt", "square", "round", "floor", "ceil"}
_ALL_ZERO |= {"real", "imag", "conj", "reduce_precision"}
_PRODUCTS = {"mul", "dot_general", "conv_general_dilated"}
_QUOTIENTS = {"div", "rem"}
_PARTS = {"gather", "dynamic_slice"}
_RULES = {"custom_vjp_call", "custom_linear_solve"}


class Known(NamedTuple):
    """What is known of a value where the cotangents of the results are zero.

    Attributes:
        zero: it is zero.
        fixed: no cotangent goes into it: it is what it is for a call.
    """

    zero: bool
    fixed: bool


def keeps_zero(program: Program, spec: CellSpec) -> bool:
    """Whether the backward pass of a cell is known to give zeros for zeros."""
    if not any(map(_has_backward_rule, spec.cell.ops)):
        return True
    return program.cache.once(("keeps zero", spec.cell.index), lambda: _analyse(program, spec))


def _has_backward_rule(op: Op) -> bool:
    return not _RULES.isdisjoint(names_of(op))


def _analyse(program: Program, spec: CellSpec) -> bool:
    outers = [program.outers[k].aval for k in spec.outers]
    exports = [v.aval for v in spec.cell.exports]
    values = [*outers, *exports, *(program.classes[c] for c in spec.inputs)]
    moved = [k for k, a in enumerate(values) if jnp.issubdtype(a.dtype, jnp.inexact)]
    ends = len(outers), len(outers) + len(exports)
    row = row_function(program, spec)

    def forward(*given: Any) -> Any:
        def of_moved(*changed: Any) -> list[Any]:
            full = replaced(given, moved, changed)
            outs = row(full[: ends[0]], full[ends[0] : ends[1]], full[ends[1] :])
            return [x for x in outs if jnp.issubdtype(x.dtype, jnp.inexact)]

        return jax.vjp(of_moved, *(given[k] for k in moved))

    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in values]
    outs, pullback = jax.eval_shape(forward, *shapes)
    leaves, tree = jax.tree.flatten(pullback)

    def backward(leaves: Sequence[Any], cts: Any) -> Any:
        return jax.tree.unflatten(tree, leaves)(cts)

    closed = jax.make_jaxpr(backward)(leaves, outs)
    given = [Known(False, True)] * len(leaves) + [Known(True, False)] * len(outs)
    return all(known.zero for known in _results(closed, given))


def _results(closed: ClosedJaxpr, given: Sequence[Known]) -> list[Known]:
    """What is known of the results of a jaxpr."""
    env: dict[Any, Known] = dict(zip(closed.jaxpr.invars, given, strict=True))
    for var, const in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        env[var] = Known(_is_zero(const), True)

    def read(atom: Any) -> Known:
        return Known(_is_zero(atom.val), True) if _compat.is_literal(atom) else env[atom]

    for eqn in closed.jaxpr.eqns:
        outs = _equation(eqn, [read(a) for a in eqn.invars])
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(atom) for atom in closed.jaxpr.outvars]


def _equation(eqn: JaxprEqn, given: list[Known]) -> list[Known]:
    name = eqn.primitive.name
    inner = eqn.params["call_jaxpr"] if name == "custom_jvp_call" else _compat.inlined(eqn)
    if inner is not None:
        return _results(inner, given)
    if name == "custom_linear_solve":
        return _solved(eqn, given)
    fixed = all(known.fixed for known in given)
    return [Known(_is_made_zero(eqn, given), fixed)] * len(eqn.outvars)


def _solved(eqn: JaxprEqn, given: list[Known]) -> list[Known]:
    """Of a linear system: its operands are what its functions close over, then the right side."""
    sizes, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first, last = sizes.matvec + sizes.vecmat, sum(sizes)
    return _results(solve, [*given[first : first + sizes.solve], *given[last:]])


def _is_made_zero(eqn: JaxprEqn, given: list[Known]) -> bool:
    name, zero = eqn.primitive.name, [known.zero for known in given]
    if name in _ALL_ZERO:
        return all(zero)
    if name in _PRODUCTS:  # zero times what a cotangent has made infinite is not
        return any(zero) and all(known.zero or known.fixed for known in given)
    if name in _QUOTIENTS:
        return zero[0] and given[1].fixed
    if name == "triangular_solve":
        return zero[1] and given[0].fixed
    if name in _PARTS:
        return zero[0]
    if name == "select_n":
        return all(zero[1:])
    if name == "scatter-add":
        return zero[0] and zero[2]
    if name == "dynamic_update_slice":
        return zero[0] and zero[1]
    if name == "integer_pow":
        return zero[0] and eqn.params["y"] > 0
    return name in {"max", "min", "clamp"} and _clips_zero_to_zero(eqn, zero)


def _clips_zero_to_zero(eqn: JaxprEqn, zero: list[bool]) -> bool:
    if eqn.primitive.name == "clamp":
        low, x, high = zip(eqn.invars, zero, strict=True)
        return x[1] and _bounds(*low, below=True) and _bounds(*high, below=False)
    below = eqn.primitive.name == "max"
    pairs = list(zip(eqn.invars, zero, strict=True))
    return any(zero) and all(_bounds(*pair, below=below) for pair in pairs)


def _bounds(atom: Any, zero: bool, below: bool) -> bool:
    """Whether a bound is a number that lets zero through."""
    if zero or not _compat.is_literal(atom):
        return zero
    value = np.asarray(atom.val)
    return bool(np.all(value <= 0 if below else value >= 0))


def _is_zero(value: Any) -> bool:
    known = _compat.is_concrete(value) and isinstance(_compat.aval_of(value).dtype, np.dtype)
    return known and not np.any(np.asarray(value))
