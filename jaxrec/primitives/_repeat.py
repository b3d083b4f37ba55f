"""A call of a function of scalars, over again with other values.

A short recursion takes less time than an `Invocation` needs to find what it is a call of. For
arguments of the same types that is always the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxrec import _compat
from jaxrec._host_options import default_device
from jaxrec.invocation._params import Params
from jaxrec.primitives._native import prepared
from jaxrec.schedule._native import on_host

if TYPE_CHECKING:
    from jaxrec.primitives._traced import Traced

_PYTHON = frozenset((bool, int, float, complex))
NUMBERS = (*_PYTHON, np.generic)


def types_of(args: tuple[Any, ...]) -> tuple[Hashable, Sequence[Any]]:
    """What calls have in common that do the same but for values, and the leaves of the arguments.

    There is None in common where a leaf is neither a number nor an array that may be anywhere.
    """
    types = tuple(map(type, args))
    if _PYTHON.issuperset(types):
        return (types, _compat.context()), args
    leaves, tree = jax.tree.flatten(args)
    types = tuple(map(_type_of, leaves))
    return None if None in types else (tree, types, _compat.context()), leaves


def _type_of(leaf: Any) -> Hashable:
    if isinstance(leaf, NUMBERS):
        return type(leaf)
    if type(leaf) is np.ndarray:
        return leaf.shape, leaf.dtype
    return leaf.aval if _compat.is_uncommitted(leaf) else None


class Repeat:
    """A call of a function that the native machine runs, less the values.

    Args:
        traced: the function, traced for arguments of these types.
        params: the static parameters of an invocation of one lane.
        leaves: of the arguments.
    """

    def __init__(self, traced: Traced, params: Params, leaves: Sequence[Any]) -> None:
        self._traced, self._at = traced, prepared(params)
        self._outers = [(k, traced.dtypes[k]) for k in traced.outers]
        self._kept = None if traced.outers else on_host(self._at.outers(traced.captured))
        self._roots = [
            (k, None if type(leaves[k]) in _PYTHON else traced.dtypes[k])
            for k in self._at.call.program.roots
        ]
        self._put = _compat.Put(default_device())

    def holds(self) -> bool:
        """Whether the function closes over the same as when it was traced."""
        return self._traced.closure.holds()

    def __call__(self, leaves: Sequence[Any]) -> Any:
        """Calls the function; every leaf is of the type of the one it stands for.

        Raises:
            OverflowError: a number does not fit the element type of its argument.
            JaxRecError: as the machine reports it, in its own class.
            FloatingPointError: as `run_native_now`.
        """
        outers = self._kept
        if outers is None:
            own = [np.asarray(leaves[k], dtype) for k, dtype in self._outers]
            outers = on_host(self._at.outers([*own, *self._traced.captured]))
        roots = [
            leaves[k] if dtype is None else np.asarray(leaves[k], dtype, order="C")
            for k, dtype in self._roots
        ]
        made = [np.empty(t.shape, t.dtype) for t in self._traced.results]
        self._at.call.run(roots, outers, made)
        self._at.check(made)
        return self._traced.on_device(made, self._put)
