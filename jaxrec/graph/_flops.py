"""An estimate of what operations cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from jax.extend.core import jaxprs_in_params

from jaxrec.graph._ir import Op, Prim, Switch

PRODUCTS = frozenset({"dot_general", "conv_general_dilated"})
"""Operations that grow faster than what they read."""

LOOPS = frozenset({"scan", "while"})
"""Operations that repeat others."""

_ELEMENT_FLOPS = 10.0
"""What an element of any other operation costs: memory traffic and transcendental functions."""

_TURN_FLOPS = 150.0
"""What an operation takes beside its elements in a turn of a loop."""

_COMPARED_FLOPS = 120.0
"""What sorting takes for an element and every doubling of their number."""

_FIXED = dict.fromkeys(["random_bits", "random_fold_in", "random_split", "random_seed"], 2.5e4)
_FIXED |= dict.fromkeys(["threefry2x32", "random_gamma", "random_clone"], 2.5e4)
_FIXED |= dict.fromkeys(["lu", "cholesky", "qr", "eigh", "eig", "svd", "schur"], 1e5)
_FIXED |= dict.fromkeys(["geqrf", "householder_product", "triangular_solve"], 1e5)
"""Operations that take long even where they are small."""

_CALLBACK_FLOPS = 8e5
"""What a call of Python takes."""


class Work(NamedTuple):
    """An operation that JAX evaluates, and how often.

    Attributes:
        times: how often it is carried out.
        name: of its primitive.
        params: of its equation.
        ins: the types of its operands.
        outs: the types of its results.
    """

    times: int
    name: str
    params: Any
    ins: list[Any]
    outs: list[Any]

    @property
    def flops(self) -> float:
        """The arithmetic of it, in floating-point operations."""
        return self.times * self._flops_once()

    @property
    def time_in_flops(self) -> float:
        """The arithmetic that takes as long, with what it takes beside its elements."""
        if self.name == "sort":
            size = sum(aval.size for aval in self.outs)
            length = self.outs[0].shape[self.params["dimension"]]
            return self.times * _COMPARED_FLOPS * size * math.log2(max(length, 2))
        is_callback = "callback" in self.name
        fixed = _CALLBACK_FLOPS if is_callback else _FIXED.get(self.name, 0.0)
        # XLA makes one of many operations, but in each turn of a loop again.
        again = (self.times - 1) * _TURN_FLOPS
        return again + self.times * (fixed + self._flops_once())

    def _flops_once(self) -> float:
        size = sum(aval.size for aval in self.outs)
        if self.name == "dot_general":
            (contracted, _), _ = self.params["dimension_numbers"]
            return 2.0 * size * math.prod(self.ins[0].shape[axis] for axis in contracted)
        if self.name == "conv_general_dilated":
            kernel, numbers = self.ins[1], self.params["dimension_numbers"]
            return 2.0 * size * kernel.size / max(kernel.shape[numbers.rhs_spec[0]], 1)
        return _ELEMENT_FLOPS * size if size > 1 else 0.0


def work_of(ops: Iterable[Op], turns: int = 1) -> Iterator[Work]:
    """What operations without calls compute, all branches of choices.

    Args:
        ops: the operations.
        turns: how often a loop runs of which that is not known.
    """
    for op in ops:
        if isinstance(op, Prim):
            avals = [a.aval for a in op.inputs], [v.aval for v in op.outputs]
            yield from _expanded(Work(1, op.name, op.eqn.params, *avals), turns)
        elif isinstance(op, Switch):
            for region in op.regions:
                yield from work_of(region.ops, turns)


def _expanded(outer: Work, turns: int) -> Iterator[Work]:
    """An operation, or the ones inside of it."""
    inner = list(jaxprs_in_params(outer.params))
    if not inner:
        yield outer
    known = outer.params["length"] if outer.name == "scan" else 1
    times = outer.times * (turns if outer.name == "while" else known)
    for jaxpr in inner:
        for eqn in jaxpr.eqns:
            avals = [v.aval for v in eqn.invars], [v.aval for v in eqn.outvars]
            yield from _expanded(Work(times, eqn.primitive.name, eqn.params, *avals), turns)
