"""A batched cell and its derivative as two jaxprs, which `jaxrec/transpose/_cut.py` cuts."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._equation import run_inlined
from jaxrec._errors import UnsupportedError
from jaxrec._executor import inside_a_cell
from jaxrec._values import replaced

Policy = Callable[..., bool] | None


@dataclasses.dataclass(frozen=True)
class Operands:
    """The operands of a batched cell, flat, and which of them cotangents are asked for.

    Attributes:
        width: rows of a wave.
        avals: types at that width: outer values, control scalars, tape inputs.
        outers: how many of them are outer values.
        wrt_outers: positions of the outer values to differentiate.
        wrt_inputs: positions of the tape inputs to differentiate.
        carries: for each output of the cell, whether it has a cotangent.
    """

    width: int
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
        operands: what it takes, with at least two rows, see `jaxrec/transpose/_at_width.py`.
        policy: which intermediate results to keep, as for `jax.checkpoint`.
    """
    trees: list[Any] = []
    counts: list[int] = []

    def forward(*values: Any) -> list[Any]:
        def of_wrt(*changed: Any) -> list[Any]:
            outs = fun(*replaced(values, operands.wrt, changed))
            return [x for x, carries in zip(outs, operands.carries, strict=True) if carries]

        outs = fun(*values)
        kept = jax.checkpoint(of_wrt, policy=_on_tapes(policy or _keeps_costly))
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
    """The policy, checked to ask for nothing but keeping or not.

    Complex numbers are computed again: JAX has no mark for those that are kept.
    """
    names = _names(policy)

    def keeps(primitive: Any, /, *avals: Any, **params: Any) -> Any:
        taken = names[: 1 + len(avals)]
        params = {name: value for name, value in params.items() if name not in taken}
        try:
            kept = policy(primitive, *avals, **params)
        except TypeError as error:
            error.add_note(_expected(policy))
            raise
        if callable(kept):
            raise UnsupportedError(_expected(policy))
        if hasattr(kept, "dst"):
            raise UnsupportedError(
                f"policy= offloads the result of {primitive.name} to {kept.dst}; residuals of "
                "recursive calls stay where the calls run. Keep them, or compute them again: "
                "jax.checkpoint_policies.save_only_these_names."
            )
        return kept and not _is_complex(primitive, avals, params)

    return keeps


def _names(policy: Callable[..., Any]) -> list[str]:
    """The names that a policy has for the primitive and for types, which come by position.

    A primitive of another library may have a parameter of such a name, as `prim` of JAX's policies.
    """
    try:
        given = inspect.signature(policy).parameters.values()
    except ValueError:  # of what is built in
        return []
    return [p.name for p in given if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]


def _expected(policy: Callable[..., Any]) -> str:
    name = getattr(policy, "__name__", repr(policy))
    return (
        f"policy={name} is called with a primitive, types and parameters; expected whether to keep "
        "the result. If it makes policies, as jax.checkpoint_policies.save_only_these_names does, "
        "call it: policy=save_only_these_names('hidden')."
    )


_FACTORIZATIONS = {"cholesky", "eigh", "lu", "qr", "svd"}


def _keeps_costly(prim: Any, *avals: Any, **params: Any) -> bool:
    """The default policy: keeps products and factorizations of matrices.

    On CPU it is faster to compute activations again than to write and read them.
    """
    return prim.name in _FACTORIZATIONS or jax.checkpoint_policies.dots_saveable(
        prim, *avals, **params
    )


_MAKE_COMPLEX = {"complex", "eig", "fft"}


def _is_complex(prim: Any, avals: Sequence[Any], params: dict[str, Any]) -> bool:
    """Whether an operation is one of complex numbers."""
    types = [*(aval.dtype for aval in avals), params.get("new_dtype", np.float32)]
    return prim.name in _MAKE_COMPLEX or any(jnp.issubdtype(t, jnp.complexfloating) for t in types)


def _shape(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def _inline(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same function without nested calls, so that it can be cut anywhere.

    Nor rules for derivatives: it is one.
    """

    def run(*args: Any) -> list[Any]:
        return run_inlined(closed, args, _simpler)

    return jax.make_jaxpr(run)(*(_shape(v.aval) for v in closed.jaxpr.invars))


def _simpler(eqn: JaxprEqn, values: Sequence[Any]) -> list[Any] | None:
    """Leaves out rules, and marks of residuals, which round to the precision that there is."""
    inner = _compat.called(eqn)
    if inner is not None:
        return run_inlined(inner, values, _simpler)
    if eqn.primitive.name != "reduce_precision":
        return None
    aval: Any = eqn.outvars[0].aval
    kept = jnp.finfo(aval.dtype)
    exponent, mantissa = eqn.params["exponent_bits"], eqn.params["mantissa_bits"]
    return list(values) if exponent >= kept.nexp and mantissa >= kept.nmant else None
