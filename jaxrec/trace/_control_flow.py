"""`cond` and `switch`: `jax.lax`'s, with the result type of a recursion inferred from them.

While the result type of a recursive function is still unknown, a branch that needs it cannot be
traced. The other branches can, and one of them is the base case, which gives the type.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from jaxrec import _compat
from jaxrec._errors import SignatureError
from jaxrec._texts import listed
from jaxrec.trace import _context
from jaxrec.trace._body import described
from jaxrec.trace._call import makes_calls, rec_switch
from jaxrec.trace._interrupt import Unresolved, to_end
from jaxrec.trace._modules import kept
from jaxrec.trace._pass import Pass
from jaxrec.trace._signature import (
    Signature,
    common,
    differences,
    placeholder,
    result_aval,
    show,
    traced_aval,
)

Branch = Callable[..., Any]

_NO_OPERAND: Any = object()


def cond(
    pred: Any,
    true_fun: Callable[..., Any],
    false_fun: Callable[..., Any],
    *operands: Any,
    operand: Any = _NO_OPERAND,
) -> Any:
    """Runs one of two functions, as `jax.lax.cond`; inside a `rec_fn`, a base case gives the type.

    Inside a `rec_fn` only the taken branch of a choice that makes calls ever runs, also under
    `vmap`, where each lane decides for itself. A choice without calls means the same; short
    branches of it may be computed for all calls at once. Outside it is `jax.lax.cond`.

    Args:
        pred: a boolean scalar.
        true_fun: called with the operands if `pred` holds.
        false_fun: called with the operands otherwise.
        *operands: pytrees of arrays.
        operand: in the place of these, the only one.

    Returns:
        The result of the branch taken; both have results of one type.

    Raises:
        SignatureError: the branches' results differ in type, or there is an operand in both ways.

    Example:
        >>> import jax.numpy as jnp
        >>> import jaxrec as jr
        >>> @jr.rec_fn
        ... def power(x, n):
        ...     return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))
        >>> float(power(2.0, 10))
        1024.0
    """
    if operand is not _NO_OPERAND:
        if operands:
            raise SignatureError("a cond has operands and operand=, expected one of them")
        operands = (operand,)
    running = _context.choosing()
    if running is None:
        return jax.lax.cond(pred, true_fun, false_fun, *operands)
    named = {"false_fun": false_fun, "true_fun": true_fun}
    branches = _checked(f"a cond in {running.name}", named, operands)
    aval = _predicate_type(running.name, pred)  # before the branches, which may say less clearly
    if running.probing:
        return _probe(running.name, branches, operands)
    return _staged(
        running,
        branches,
        operands,
        in_jax=lambda closed: jax.lax.cond(pred, closed[1], closed[0]),
        index=lambda: _decide(pred, aval),
    )


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
    running = _context.choosing()
    if running is None:
        return jax.lax.switch(index, branches, *operands)
    what = f"a switch in {running.name}"
    if not isinstance(branches, Iterable):
        raise SignatureError(f"the branches of {what} are {branches!r}, expected a list of them")
    named = {f"branch {k}": branch for k, branch in enumerate(branches)}
    if not named:
        raise SignatureError(f"{what} has no branches, expected one or more")
    branches = _checked(what, named, operands)
    _index_type(running.name, index)
    if running.probing:
        return _probe(running.name, branches, operands)
    return _staged(
        running,
        branches,
        operands,
        in_jax=lambda closed: jax.lax.switch(index, closed),
        index=lambda: _clamp(index, len(branches)),
    )


def _decide(pred: Any, aval: Any) -> Any:
    """The number of the branch that a predicate takes: 1 if it holds."""
    holds = pred if aval.dtype == bool else jnp.not_equal(pred, 0)
    return jax.lax.convert_element_type(holds, np.int32)


def _clamp(index: Any, count: int) -> Any:
    """The number of the branch that an index takes."""
    number = jax.lax.convert_element_type(index, np.int32)
    return jax.lax.clamp(np.int32(0), number, np.int32(count - 1))


def _predicate_type(name: str, pred: Any) -> Any:
    kinds = (np.bool_, np.integer, np.floating)
    return _scalar_type(pred, f"the predicate of a cond in {name}", "a boolean", kinds)


def _index_type(name: str, index: Any) -> Any:
    return _scalar_type(index, f"the index of a switch in {name}", "an integer", (np.integer,))


def _scalar_type(value: Any, what: str, kind: str, kinds: Sequence[Any]) -> Any:
    try:
        aval = _compat.aval_of(value)
    except TypeError:
        raise SignatureError(
            f"{what} is {value!r} of type {type(value).__name__}, expected {kind} scalar"
        ) from None
    if aval.shape or not any(jnp.issubdtype(aval.dtype, kind) for kind in kinds):
        several = (
            ". For several examples map the function over them: jax.vmap" if aval.shape else ""
        )
        raise SignatureError(f"{what} is {show(aval)}; expected {kind} scalar{several}")
    return aval


def _checked(what: str, branches: Mapping[str, Any], operands: Sequence[Any]) -> tuple[Branch, ...]:
    """The branches of a choice, checked to be functions of its operands."""
    for leaf in jax.tree.leaves(operands):
        try:
            _compat.aval_of(leaf)
        except TypeError:
            raise SignatureError(
                f"an operand of {what} is {leaf!r} of type {type(leaf).__name__}, expected an array"
            ) from None
    for name, branch in branches.items():
        if not callable(branch):
            raise SignatureError(
                f"{name} of {what} is {branch!r} of type {type(branch).__name__}, expected a "
                "function, such as lambda: ..."
            )
        with contextlib.suppress(ValueError):  # nothing is known of its arguments
            try:
                inspect.signature(branch).bind(*operands)
            except TypeError as error:
                raise SignatureError(
                    f"{name} of {what} is called with what stands behind the branches, here "
                    f"{len(operands)} of them: {error}"
                ) from None
    return tuple(branches.values())


def _staged(
    running: Pass,
    branches: Sequence[Branch],
    operands: Sequence[Any],
    in_jax: Callable[[Sequence[Branch]], Any],
    index: Callable[[], Any],
) -> Any:
    """Stages a choice; Python numbers in the branches' results give way to arrays' types.

    A choice without recursive calls is one of JAX, with all rules of JAX.
    """
    traced = [_traced(running.name, branch, operands) for branch in branches]
    joined = common(*(found for _, found in traced))
    if joined is None:
        raise SignatureError(_disagreement(running, [found for _, found in traced]))
    closed = [_converted(jaxpr, joined) for jaxpr, _ in traced]
    if any(makes_calls(eqn) for branch in closed for eqn in branch.eqns):
        outs = rec_switch(index(), closed)
    else:
        outs = in_jax([jaxpr_as_fun(branch) for branch in closed])
    return jax.tree.unflatten(joined.tree, outs)


def _traced(name: str, branch: Branch, operands: Sequence[Any]) -> tuple[ClosedJaxpr, Signature]:
    """A branch as a jaxpr without arguments, and the type of its result."""
    trees: list[Any] = []

    def run() -> list[Any]:
        leaves, tree = jax.tree.flatten(_result(name, branch, operands))
        trees.append(tree)
        return leaves

    closed = to_end(lambda fun: jax.make_jaxpr(described(fun, branch))(), run)
    return closed, Signature(trees[-1], tuple(map(traced_aval, closed.out_avals)))


def _result(name: str, branch: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """The result of a branch that is being traced, whose leaves are arrays."""
    _context.own_trace()
    own = jax.tree.map(lambda x: x, operands)  # objects of the trace of the branch
    with kept(name, "an operand of a branch", own):
        made = branch(*own)
    for leaf in jax.tree.leaves(made):
        result_aval(f"a branch in {name}", leaf)
    return made


def _converted(branch: ClosedJaxpr, to: Signature) -> ClosedJaxpr:
    if [a.dtype for a in branch.out_avals] == [a.dtype for a in to.avals]:
        return branch

    def run() -> list[Any]:
        outs = zip(jaxpr_as_fun(branch)(), to.avals, strict=True)
        return [jax.lax.convert_element_type(x, a.dtype) for x, a in outs]

    return jax.make_jaxpr(run)()


def _disagreement(running: Pass, found: Sequence[Signature]) -> str:
    name, declared = running.name, running.instance.definition.out is not None
    lines = [
        f"branch {k} differs from branch 0: {line}"
        for k, other in enumerate(found)
        for line in differences(found[0], other)
    ]
    return (
        f"the branches of a cond or switch in {name} have results of different types, where one "
        "type is expected:\n  " + listed(lines, "\n  ") + "\nConvert the results of one branch "
        "(of a cond, branch 0 is the one taken when the predicate is false)."
        + (f" What {name} returns to itself has the type declared by out=." if declared else "")
    )


def _probe(name: str, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """Stands for the result of a choice while types are inferred: zeros of the branches' type."""
    found: list[Signature] = []
    for branch in branches:
        with contextlib.suppress(Unresolved):
            found.append(_traced(name, branch, operands)[1])
    if not found:
        raise Unresolved
    result = found[0]
    for other in found[1:]:
        result = common(result, other) or result
    return _placeholder(result)


def _placeholder(signature: Signature) -> Any:
    leaves = [placeholder(aval) for aval in signature.avals]
    return jax.tree.unflatten(signature.tree, leaves)
