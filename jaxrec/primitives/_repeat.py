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
from jaxrec.primitives._native import prepared, run_native_now

if TYPE_CHECKING:
    from jaxrec.primitives._traced import Traced

NUMBERS = (bool, int, float, complex, np.generic)
_EXACTLY = frozenset(NUMBERS)


def types_of(args: Sequence[Any]) -> tuple[Hashable, list[Any]]:
    """What calls have in common that do the same but for values, and the leaves of the arguments.

    There is None in common where a leaf is neither a number nor an array that may be anywhere.
    """
    leaves, tree = jax.tree.flatten(args)
    types = tuple(map(_type_of, leaves))
    return None if None in types else (tree, types, _compat.context()), leaves


def _type_of(leaf: Any) -> Hashable:
    found = type(leaf)
    if found in _EXACTLY or isinstance(leaf, np.generic):
        return found
    if found is np.ndarray:
        return leaf.shape, leaf.dtype
    return leaf.aval if _compat.is_uncommitted(leaf) else None


class Repeat:
    """A call of a function that the native machine runs, less the values.

    Args:
        traced: the function, traced for arguments of these types.
        params: the static parameters of an invocation of one lane.
    """

    def __init__(self, traced: Traced, params: Params) -> None:
        self._traced, self._prepared = traced, prepared(params)
        self._outers = [(k, traced.dtypes[k]) for k in traced.outers]
        self._roots = [(k, traced.dtypes[k]) for k in traced.roots]
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
        outers = [np.asarray(leaves[k], dtype) for k, dtype in self._outers]
        roots = [np.asarray(leaves[k], dtype)[None] for k, dtype in self._roots]
        made = run_native_now(self._prepared, [*outers, *self._traced.captured, *roots])
        return self._traced.first_on_host(made, self._put)
