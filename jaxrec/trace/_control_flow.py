"""`cond` and `switch`: `jax.lax`'s, with the result type of a recursion inferred from them.

While the result type of a recursive function is still unknown, a branch that needs it cannot be
traced. The other branches can, and one of them is the base case, which gives the type.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxrec._errors import JaxRecError, SignatureError
from jaxrec.trace import _context
from jaxrec.trace._program import Pass, Unresolved
from jaxrec.trace._signature import Signature, common, differences, placeholder, traced_aval

Branch = Callable[..., Any]


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """Runs one of two functions, as `jax.lax.cond`; inside a `rec_fn`, a base case gives the type.

    Inside a `rec_fn` only the taken branch ever runs, also under `vmap`, where each lane decides
    for itself. Outside it is `jax.lax.cond`.

    Args:
        pred: a boolean scalar.
        true_fun: called with the operands if `pred` holds.
        false_fun: called with the operands otherwise.
        *operands: pytrees of arrays.

    Returns:
        The result of the branch taken; both have results of one type.

    Raises:
        SignatureError: the branches' results differ in type.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def power(x, n):
        ...     return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))
        >>> float(power(2.0, 10))
        1024.0
    """
    running = _context.current()
    if running is None:
        return jax.lax.cond(pred, true_fun, false_fun, *operands)
    if running.probing:
        return _probe((false_fun, true_fun), operands)

    def choose(false_fun: Branch, true_fun: Branch) -> Any:
        return jax.lax.cond(pred, true_fun, false_fun, *operands)

    return _staged(running, choose, (false_fun, true_fun), operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Runs the function that an index chooses, as `jax.lax.switch`.

    See `cond`: this is the same for any number of branches.

    Args:
        index: an integer scalar; clamped to the range of `branches`.
        branches: functions of the operands.
        *operands: pytrees of arrays.

    Returns:
        The result of the branch taken; all have results of one type.

    Raises:
        SignatureError: the branches' results differ in type.

    Example:
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def count(kind, n):
        ...     rest = lambda: 1 + count(kind, n - 1)
        ...     return jr.switch(n, [lambda: 0, rest])
        >>> int(count(0, 5))
        5
    """
    running = _context.current()
    if running is None:
        return jax.lax.switch(index, branches, *operands)
    if running.probing:
        return _probe(tuple(branches), operands)

    def choose(*branches: Branch) -> Any:
        return jax.lax.switch(index, branches, *operands)

    return _staged(running, choose, branches, operands)


def _staged(
    running: Pass,
    choose: Callable[..., Any],
    branches: Sequence[Branch],
    operands: Sequence[Any],
) -> Any:
    """Stages a choice; Python numbers in the branches' results give way to arrays' types."""
    try:
        return choose(*branches)
    except TypeError as error:
        if isinstance(error, JaxRecError) or "branch" not in str(error):
            raise
    found = [_type_of(branch, operands) for branch in branches]
    joined = common(*found)
    if joined is None:
        raise SignatureError(_disagreement(running.name, found))
    return choose(*(_converted(branch, joined) for branch in branches))


def _disagreement(name: str, found: Sequence[Signature]) -> str:
    lines = [
        f"branch {k} differs from branch 0: {line}"
        for k, other in enumerate(found)
        for line in differences(found[0], other)
    ]
    return (
        f"the branches of a cond or switch in {name} have results of different types, where one "
        "type is expected:\n  " + "\n  ".join(lines) + "\nConvert the results of one branch "
        "(of a cond, branch 0 is the one taken when the predicate is false)."
    )


def _converted(branch: Branch, to: Signature) -> Branch:
    def run(*operands: Any) -> Any:
        leaves, tree = jax.tree.flatten(branch(*operands))
        cast = [
            jax.lax.convert_element_type(x, a.dtype) for x, a in zip(leaves, to.avals, strict=True)
        ]
        return jax.tree.unflatten(tree, cast)

    return run


def _type_of(branch: Branch, operands: Sequence[Any]) -> Signature:
    leaves, tree = jax.tree.flatten(jax.eval_shape(branch, *operands))
    return Signature(tree, tuple(map(traced_aval, leaves)))


def _probe(branches: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """Stands for the result of a choice while types are inferred: zeros of the branches' type."""
    found: list[Signature] = []
    for branch in branches:
        with contextlib.suppress(Unresolved):
            found.append(_type_of(branch, operands))
    if not found:
        raise Unresolved
    result = found[0]
    for other in found[1:]:
        result = common(result, other) or result
    return _placeholder(result)


def _placeholder(signature: Signature) -> Any:
    leaves = [placeholder(aval) for aval in signature.avals]
    return jax.tree.unflatten(signature.tree, leaves)
