"""A differentiated cell at every width, from its traces at two of them.

The equations for another number of rows are those for two with that number in the place of whatever
numbers the rows, which a comparison with those for three tells. So a cell is traced twice and not
once a width, is cut the same way at every width, and can have one row: JAX treats axes of size 1
apart, since a value that all rows share and one that has a row have the same shape then, and would
make other equations of it.
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

_RULED = {"custom_jvp_call", "custom_vjp_call"}


class UnlikeError(Exception):
    """Two widths differ in more than sizes that are the number of rows."""


def at_width(two: TracedCell, three: TracedCell, width: int) -> TracedCell:
    """A cell at some width.

    Args:
        two: the cell at two rows.
        three: the same at three.
        width: how many rows.

    Returns:
        The cell. What its equations compute has that many rows if their operands have; the types
        of its values are those of two rows still.

    Raises:
        UnlikeError: it is not known from these.
    """
    change = _Change((two.operands.width, three.operands.width), width)
    forward = change.equations(two.forward, three.forward)
    backward = change.equations(two.backward, three.backward)
    return dataclasses.replace(two, forward=forward, backward=backward)


class _Change:
    """Replaces a number of rows, which is one in one trace and another in the other."""

    def __init__(self, widths: tuple[int, int], width: int) -> None:
        self._widths, self._width = widths, width

    def equations(self, a: ClosedJaxpr, b: ClosedJaxpr) -> ClosedJaxpr:
        """The equations of `a` with the changed parameters."""
        self._check_known(a, b)
        pairs = zip(a.jaxpr.eqns, b.jaxpr.eqns, strict=True)
        eqns = [eqn.replace(params=self._params(eqn, wide)) for eqn, wide in pairs]
        return ClosedJaxpr(a.jaxpr.replace(eqns=eqns), a.consts)

    def _check_known(self, a: ClosedJaxpr, b: ClosedJaxpr) -> None:
        """Checks that equations are alike, and that what they know beforehand has no rows."""
        names = [[eqn.primitive for eqn in closed.jaxpr.eqns] for closed in (a, b)]
        if names[0] != names[1]:
            raise UnlikeError
        pairs = zip(a.consts, b.consts, strict=True)
        if not all(x is y or _is_same_scalar(x, y) for x, y in pairs):
            raise UnlikeError
        for eqn, wide in zip(a.jaxpr.eqns, b.jaxpr.eqns, strict=True):
            for x, y in zip(eqn.invars, wide.invars, strict=True):
                literal = _compat.is_literal(x)
                if literal != _compat.is_literal(y):
                    raise UnlikeError
                if literal and not _is_same_scalar(x.val, y.val):
                    raise UnlikeError

    def _params(self, a: JaxprEqn, b: JaxprEqn) -> dict[str, Any]:
        # A rule of the user's, in a loop, is left as it is: derivatives have been taken.
        changed = ["call_jaxpr"] if a.primitive.name in _RULED else list(a.params)
        return {**a.params, **{k: self._value(a.params[k], b.params[k]) for k in changed}}

    def _value(self, a: Any, b: Any) -> Any:
        if isinstance(a, ClosedJaxpr):
            return self._inner(a, b)
        if isinstance(a, ShapedArray):
            return a.update(shape=self._value(a.shape, b.shape))
        if isinstance(a, tuple) and type(a) is type(b) and len(a) == len(b):
            made = [self._value(x, y) for x, y in zip(a, b, strict=True)]
            return type(a)(*made) if hasattr(a, "_fields") else tuple(made)
        if a is b or (type(a) is type(b) and a == b):
            return a
        two, three = self._widths
        if type(a) is int and type(b) is int and a * three == b * two:  # such as examples of rows
            return a // two * self._width
        raise UnlikeError

    def _inner(self, a: ClosedJaxpr, b: ClosedJaxpr) -> ClosedJaxpr:
        """A jaxpr in an equation, whose types are read."""
        changed = self.equations(a, b)
        types = self._value(tuple(a.in_avals), tuple(b.in_avals))
        return jax.make_jaxpr(lambda *args: run_jaxpr(changed, args, bind_equation))(*types)


def _is_same_scalar(a: Any, b: Any) -> bool:
    scalars = getattr(a, "shape", ()) == () == getattr(b, "shape", ())
    return scalars and bool(a == b or (a != a and b != b))


class Doubled(CellVjp):
    """A cell for one call that is run as two calls which are the same."""

    def __init__(self, two: TracedCell, three: TracedCell) -> None:
        super().__init__(two, three)
        pairs = zip(two.operands.avals, three.operands.avals, strict=True)
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
