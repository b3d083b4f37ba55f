"""Types of arguments and results, and how they differ."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from jaxrec._compat import aval_of, with_types_of
from jaxrec._errors import SignatureError, UnsupportedError
from jaxrec._texts import cut


@dataclasses.dataclass(frozen=True)
class Signature:
    """The structure of a pytree of arrays with the type of every leaf."""

    tree: Any
    avals: tuple[ShapedArray, ...]

    def strong(self) -> Signature:
        """The same types, none of them weak."""
        return Signature(self.tree, tuple(strong(aval) for aval in self.avals))

    @property
    def leaves(self) -> list[jax.ShapeDtypeStruct]:
        """A `jax.ShapeDtypeStruct` for each leaf; a class of the user's may take arrays alone."""
        return [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in self.avals]

    @property
    def labels(self) -> tuple[str, ...]:
        """What Python writes behind a value of this type to get each leaf, such as `.left[0]`."""
        found: list[str] = []

        def look(leaves: list[Any]) -> None:
            found.extend(leaf_names([""], [self.tree.unflatten(leaves)]))

        jax.eval_shape(look, self.leaves)
        return tuple(found)


def is_firmer(got: Signature, expected: Signature) -> bool:
    """Whether an array stands where a Python number is expected, whose type gives way to others."""
    pairs = zip(expected.avals, got.avals, strict=True)
    return any(want.weak_type and not have.weak_type for want, have in pairs)


def strong(aval: Any) -> ShapedArray:
    """The type of an array, without JAX's weak-type mark and without sharding."""
    return ShapedArray(aval.shape, aval.dtype)


def leaf_aval(leaf: Any, where: str) -> ShapedArray:
    """The type of an argument leaf; an error that says where the leaf is when it has none."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return ShapedArray(leaf.shape, leaf.dtype)
    try:
        aval = aval_of(leaf)
    except OverflowError:
        raise too_large(where, leaf, np.asarray(0).dtype) from None
    except (TypeError, AttributeError):
        if isinstance(leaf, np.ndarray):
            raise SignatureError(
                f"{where} is a NumPy array of type {leaf.dtype}, which no array of JAX has; "
                "convert it to numbers first."
            ) from None
        raise SignatureError(
            f"{where} is {leaf!r} of type {type(leaf).__name__}, which is not an array. Arguments "
            f"are pytrees of arrays; {_registration(leaf)}declare others with "
            "rec_fn(static_argnums=...) or static_argnames."
        ) from None
    if not isinstance(aval, ShapedArray):
        raise SignatureError(
            f"{where} is {leaf}, which is not an array. A recursive function is pure: of a "
            "jax.Ref pass what it holds, ref[...], and write to it outside."
        )
    refuse_symbolic(where, aval.shape)
    return ShapedArray(aval.shape, aval.dtype, weak_type=aval.weak_type)


def _registration(leaf: Any) -> str:
    """How objects of the user's become pytrees, if a value is one."""
    if not dataclasses.is_dataclass(leaf):
        return ""
    return f"register {type(leaf).__name__} as one with jax.tree_util.register_dataclass, or "


def refuse_symbolic(where: str, shape: Sequence[Any]) -> None:
    """An error for sizes that are symbols, as `jax.export` knows them."""
    if not all(isinstance(size, int) for size in shape):
        raise UnsupportedError(
            f"{where} is of shape [{','.join(map(str, shape))}], which is not all numbers. A "
            "compiled program has room for so many calls: export it for given sizes, and pad what "
            "is smaller (jaxrec.data.pack(..., pad_to=...))."
        )


def too_large(where: str, number: Any, dtype: Any) -> OverflowError:
    """The error of a number that does not fit its type."""
    fits = jax.dtypes.canonicalize_dtype(dtype)
    return OverflowError(
        f"{where} is {number}, which does not fit {fits}. Wider types "
        "need jax.config.update('jax_enable_x64', True), and arrays of them beside the number."
    )


def result_aval(name: str, leaf: Any) -> ShapedArray:
    """The type of a leaf of a result; an error that names the function when it has none."""
    try:
        return traced_aval(leaf)
    except OverflowError:
        raise too_large(f"a result of {name}", leaf, np.asarray(0).dtype) from None
    except TypeError:
        raise SignatureError(
            f"{name} returns {leaf!r} of type {type(leaf).__name__}; results are pytrees of arrays"
        ) from None


def leaf_names(names: Sequence[str], args: Sequence[Any]) -> tuple[str, ...]:
    """Names the leaves of arguments the way a user writes them: `tree.left`, `params['w']`."""
    found = []
    for name, arg in zip(names, args, strict=True):
        for path, _ in jax.tree_util.tree_leaves_with_path(arg):
            found.append(name + jax.tree_util.keystr(path))
    return tuple(found)


def show(aval: Any) -> str:
    """Writes a type as `float32[3,4]`."""
    return f"{aval.dtype.name}[{','.join(map(str, aval.shape))}]"


def differences(
    expected: Signature, got: Signature, names: Sequence[str] | None = None
) -> list[str]:
    """Lists every difference between two signatures, a line each; empty when they agree."""
    if expected.tree != got.tree:
        return _structures("", expected.tree, got.tree)
    pairs = enumerate(zip(expected.avals, got.avals, strict=True))
    found = [
        (k, f"is {show(have)}, expected {show(want)}")
        for k, (want, have) in pairs
        if want.shape != have.shape or want.dtype != have.dtype
    ]
    if found and not names:
        names = [f"leaf {label or 0}" for label in expected.labels]
    return [f"{names[k]} {line}" for k, line in found] if names else []


def argument_differences(
    expected: Signature, got: Signature, arguments: Sequence[str], leaves: Sequence[str]
) -> list[str]:
    """As `differences`, of two lists of arguments; those of another structure by their names."""
    if expected.tree == got.tree:
        return differences(expected, got, leaves)
    pairs = zip(arguments, expected.tree.children(), got.tree.children(), strict=True)
    return [line for name, want, have in pairs for line in _structures(name, want, have)]


def _structures(of: str, expected: Any, got: Any) -> list[str]:
    """Where two structures differ, a line for each innermost place."""
    if expected == got:
        return []
    inside, have = expected.children(), got.children()
    if expected.node_data() == got.node_data() and 0 < len(inside) == len(have):
        below = zip(_keys(expected, len(inside)), inside, have, strict=True)
        return [line for key, *both in below for line in _structures(f"{of}{key}", *both)]
    none = jax.tree.structure(None)
    hint = " (is a return missing?)" if none in (got, expected) and not of else ""
    what = f"{of}: the structure" if of else "the structure"
    return [f"{what} is {_written(got)}, expected {_written(expected)}{hint}"]


def _keys(structure: Any, count: int) -> list[str]:
    """How Python writes the children of a structure behind its own name."""
    kind, keys = structure.node_data()
    return [f"[{keys[k]!r}]" if kind is dict else f"[{k}]" for k in range(count)]


def _written(structure: Any) -> str:
    """A structure as Python writes it, `*` for each array; JAX writes `PyTreeDef` around."""
    if structure == jax.tree.structure(0):
        return "that of an array"
    return cut(str(structure).removeprefix("PyTreeDef(").removesuffix(")"))


def is_weak_match(expected: ShapedArray, got: ShapedArray) -> bool:
    """Whether a Python scalar of type `got` may stand where an array `expected` is asked for."""
    return (
        got.weak_type
        and expected.shape == got.shape
        and np.result_type(_kind_rank(got.dtype), _kind_rank(expected.dtype))
        == _kind_rank(expected.dtype)
    )


def _kind_rank(dtype: Any) -> np.dtype[Any]:
    """A dtype that stands for the kind in NumPy's promotion order: bool < int < float < complex."""
    for kind, rank in (
        (np.complexfloating, np.complex128),
        (np.floating, np.float64),
        (np.integer, np.int64),
    ):
        if jax.numpy.issubdtype(dtype, kind):
            return np.dtype(rank)
    return np.dtype(bool)


def join(a: Signature, b: Signature) -> Signature:
    """The result type of two branches: weak types give way to strong ones, as in `jax.lax.cond`."""
    return Signature(a.tree, tuple(map(_join_aval, a.avals, b.avals)))


def _join_aval(a: ShapedArray, b: ShapedArray) -> ShapedArray:
    if a.weak_type == b.weak_type:
        return b if a.weak_type and is_weak_match(b, a) else a
    weak, firm = (a, b) if a.weak_type else (b, a)
    return firm if is_weak_match(firm, weak) else a


def accepts(expected: Signature, got: Signature) -> bool:
    """Whether values of type `got` may be passed for `expected`, Python numbers being converted."""
    return expected.tree == got.tree and all(
        (want.shape == have.shape and want.dtype == have.dtype) or is_weak_match(want, have)
        for want, have in zip(expected.avals, got.avals, strict=True)
    )


def common(*signatures: Signature) -> Signature | None:
    """The type that all of these can be converted to, or None."""
    if any(signature.tree != signatures[0].tree for signature in signatures):
        return None
    joined = functools.reduce(join, signatures)
    return joined if all(accepts(joined, signature) for signature in signatures) else None


def traced_aval(leaf: Any) -> ShapedArray:
    """The type of a traced result, with its weak-type mark."""
    aval = leaf if hasattr(leaf, "weak_type") else aval_of(leaf)
    return ShapedArray(aval.shape, aval.dtype, weak_type=bool(aval.weak_type))


def placeholder(aval: ShapedArray) -> Any:
    """An array of a type, used while only types matter; weak exactly if the type is."""
    if not aval.weak_type:
        with with_types_of([aval]):
            return jax.lax.full(aval.shape, 0, aval.dtype)
    zero = jnp.asarray(np.zeros((), aval.dtype).item())  # of a number of Python: weak
    return jnp.broadcast_to(
        zero.astype(aval.dtype) if zero.dtype != aval.dtype else zero, aval.shape
    )
