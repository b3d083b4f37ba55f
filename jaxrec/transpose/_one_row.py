"""A differentiated cell for a wave of one call.

JAX treats axes of size 1 apart: a value that all rows share and one that has a row have the same
shape then, and derivatives leave out the sum over rows. Traced with one row, a cell would be other
equations than at the widths that it shares tapes with. So its equations are those of two rows, with
1 in the place of whatever numbers the rows. Found by comparing with the equations of another width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, JaxprEqn

from jaxrec import _compat
from jaxrec._equation import bind_equation, run_jaxpr
from jaxrec.transpose._cell_vjp import CellVjp
from jaxrec.transpose._traced_cell import TracedCell


class _UnlikeError(Exception):
    """Two widths differ in more than sizes that are the number of rows."""


def cell_of_one_row(two: TracedCell, other: TracedCell) -> CellVjp:
    """The backward pass of a cell for one call.

    Args:
        two: the cell for two calls.
        other: the same for more.

    Raises:
        FoldedRowsError: it cannot be cut.
    """
    change = _OneRow((two.operands.width, other.operands.width))
    try:
        forward = change.equations(two.forward, other.forward)
        backward = change.equations(two.backward, other.backward)
    except _UnlikeError:
        return _Doubled(two, other)
    return CellVjp(dataclasses.replace(two, forward=forward, backward=backward), other)


class _OneRow:
    """Replaces a number of rows, which is one in one trace and another in the other, by 1."""

    def __init__(self, widths: tuple[int, int]) -> None:
        self._widths = widths

    def equations(self, a: ClosedJaxpr, b: ClosedJaxpr) -> ClosedJaxpr:
        """The equations for one row; types of values are those of `a` still, and are not read."""
        self._check_known(a, b)
        pairs = zip(a.jaxpr.eqns, b.jaxpr.eqns, strict=True)
        eqns = [eqn.replace(params=self._params(eqn, wide)) for eqn, wide in pairs]
        return ClosedJaxpr(a.jaxpr.replace(eqns=eqns), a.consts)

    def _check_known(self, a: ClosedJaxpr, b: ClosedJaxpr) -> None:
        """Checks that equations are alike, and that what they know beforehand has no rows."""
        names = [[eqn.primitive for eqn in closed.jaxpr.eqns] for closed in (a, b)]
        if names[0] != names[1]:
            raise _UnlikeError
        pairs = zip(a.consts, b.consts, strict=True)
        if not all(x is y or _is_same_scalar(x, y) for x, y in pairs):
            raise _UnlikeError
        for eqn, wide in zip(a.jaxpr.eqns, b.jaxpr.eqns, strict=True):
            for x, y in zip(eqn.invars, wide.invars, strict=True):
                literal = _compat.is_literal(x)
                if literal != _compat.is_literal(y):
                    raise _UnlikeError
                if literal and not _is_same_scalar(x.val, y.val):
                    raise _UnlikeError

    def _params(self, a: JaxprEqn, b: JaxprEqn) -> dict[str, Any]:
        return {name: self._value(x, b.params[name]) for name, x in a.params.items()}

    def _value(self, a: Any, b: Any) -> Any:
        if isinstance(a, ClosedJaxpr):
            return self._inner(a, b)
        if isinstance(a, ShapedArray):
            return a.update(shape=self._value(a.shape, b.shape))
        if isinstance(a, tuple) and type(a) is type(b) and len(a) == len(b):
            made = [self._value(x, y) for x, y in zip(a, b, strict=True)]
            return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
        if type(a) is int and (a, b) == self._widths:
            return 1
        if a is b or (type(a) is type(b) and a == b):
            return a
        raise _UnlikeError

    def _inner(self, a: ClosedJaxpr, b: ClosedJaxpr) -> ClosedJaxpr:
        """A jaxpr in an equation, whose types are read."""
        changed = self.equations(a, b)
        types = self._value(tuple(a.in_avals), tuple(b.in_avals))
        return jax.make_jaxpr(lambda *args: run_jaxpr(changed, args, bind_equation))(*types)


def _is_same_scalar(a: Any, b: Any) -> bool:
    scalars = getattr(a, "shape", ()) == () == getattr(b, "shape", ())
    return scalars and bool(a == b or (a != a and b != b))


class _Doubled(CellVjp):
    """A cell for one call that is run as two calls which are the same."""

    def __init__(self, two: TracedCell, other: TracedCell) -> None:
        super().__init__(two, other)
        pairs = zip(two.operands.avals, other.operands.avals, strict=True)
        self._has_row = [a.shape != b.shape for a, b in pairs]

    def forward(self, values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        outs, saved = super().forward(self._doubled(values))
        return _first(outs), _first(saved)

    def loop(
        self, values: Sequence[Any], saved: Sequence[Any], cts: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        made, cuts = super().loop(self._doubled(values), _twice(saved), _twice(cts))
        return _first(made), _first(cuts)

    def _doubled(self, values: Sequence[Any]) -> list[Any]:
        pairs = zip(values, self._has_row, strict=True)
        return [x.repeat(2, axis=0) if has_row else x for x, has_row in pairs]


def _twice(rows: Sequence[Any]) -> list[Any]:
    return [x.repeat(2, axis=0) for x in rows]


def _first(rows: Sequence[Any]) -> list[Any]:
    return [x[:1] for x in rows]
