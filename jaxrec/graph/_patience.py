"""Operations that must run for calls alone, and not before their branch is taken.

What only outer values go into could be computed once, before the recursion, and a wave computes
rows that are no call. That a loop has no end, and that Python is called, is seen even if nothing
reads the result; so is a recursion, which the rule of a derivative may start. An operation that
another library has defined may hold any of these where no jaxpr shows it. And a convolution may
give its rows what stands in the others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np
from jax.extend.core import JaxprEqn, Primitive

from jaxrec._jaxprs import equations
from jaxrec.graph._ir import Op, equations_of, names_of


def has_to_wait(ops: Iterable[Op]) -> bool:
    """Whether some operation may never end, call Python, or mix rows."""
    return any(map(_waits, itertools.chain.from_iterable(map(equations_of, ops))))


def jaxpr_has_to_wait(jaxpr: Any) -> bool:
    """The same of the equations of a jaxpr."""
    return any(map(_waits, equations([jaxpr])))


def _waits(eqn: JaxprEqn) -> bool:
    return waits(eqn.primitive) or _mixes_rows(eqn)


def _mixes_rows(eqn: JaxprEqn) -> bool:
    """Whether a row that is not a number may make others so.

    In double precision XLA convolves each row with a kernel of its own as it convolves all rows
    with all kernels, of which most are then zeros.
    """
    if eqn.primitive.name != "conv_general_dilated":
        return False
    aval: Any = eqn.invars[0].aval
    return aval.dtype in (np.float64, np.complex128)


def waits(primitive: Primitive) -> bool:
    """Whether an operation may never end, or call Python."""
    name = primitive.name
    return name == "while" or _recurs(name) or "callback" in name or _is_foreign(primitive)


def _is_foreign(primitive: Primitive) -> bool:
    """Whether another library defined an operation, as lineax its `linear_solve`."""
    impl: Any = primitive.impl
    while isinstance(impl, functools.partial):
        impl = impl.func
    return str(impl.__module__).partition(".")[0] not in ("jax", "jaxrec")


def _recurs(name: str) -> bool:
    return name == "rec" or name.startswith("rec_")


def starts_recursion(ops: Iterable[Op]) -> bool:
    """Whether some operation is an invocation of a recursive function, or a derivative of one."""
    return any(_recurs(name) for op in ops for name in names_of(op))


def calls_host(ops: Iterable[Op]) -> bool:
    """Whether some operation calls a Python function."""
    return any("callback" in name for op in ops for name in names_of(op))
