"""A body as a jaxpr, with errors that speak of the function that the user wrote."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxprs_in_params

from jaxrec import _compat
from jaxrec._errors import JaxRecError, UnsupportedError
from jaxrec._texts import listed
from jaxrec.trace._call import makes_calls
from jaxrec.trace._instance import Instance
from jaxrec.trace._signature import Signature, show

_LOOKED = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)

_SAID = ("jaxrec.cond", "rec_fn(memo=True)", "This is from the body of")
"""Words of what is said of a body."""

_OF_BODIES = (TypeError, ValueError, LookupError, AttributeError, *_LOOKED)


@jax.tree_util.register_pytree_with_keys_class
@dataclasses.dataclass
class _Leaves:
    """An argument whose leaves are named as they are in it, for JAX to write of them in errors.

    The argument itself may be of a class that checks or converts its leaves, which then takes
    arrays, traced ones too, and nothing that stands for an array.
    """

    leaves: Sequence[Any]
    keys: tuple[str, ...]
    tree: Any

    def tree_flatten_with_keys(self) -> tuple[Any, Any]:
        return tuple(zip(self.keys, self.leaves, strict=True)), (self.keys, self.tree)

    @classmethod
    def tree_unflatten(cls, aux: Any, leaves: Sequence[Any]) -> _Leaves:
        return cls(leaves, *aux)


def _arguments(instance: Instance) -> list[_Leaves]:
    """The arguments of a function, of `jax.ShapeDtypeStruct`s."""
    args, found = instance.args, []
    leaves = iter(zip(instance.names, args.leaves, strict=True))
    for name, tree in zip(instance.definition.arg_names, args.tree.children(), strict=True):
        own = list(itertools.islice(leaves, tree.num_leaves))
        keys = tuple(full.removeprefix(name) for full, _ in own)
        found.append(_Leaves([leaf for _, leaf in own], keys, tree))
    return found


def trace_body(body: Callable[..., Any], instance: Instance) -> ClosedJaxpr:
    """Traces the body of a function.

    Args:
        body: runs the function on its arguments; gives the leaves of its result.
        instance: the function.

    Raises:
        UnsupportedError: the body does something besides computing its result.
    """
    definition, args = instance.definition, _arguments(instance)

    def run(*args: _Leaves) -> Any:
        return body(*(arg.tree.unflatten(arg.leaves) for arg in args))

    if not definition.helper:
        run = described(run, definition.fun, definition.arg_names)
    try:
        jaxpr = jax.make_jaxpr(run)(*args)
    except _OF_BODIES as error:
        for note in _notes(error, instance):
            error.add_note(note)
        raise
    effects = ", ".join(sorted(_with_branches(_compat.side_effects, jaxpr.jaxpr)))
    if effects:
        raise UnsupportedError(
            f"{instance.name} has a side effect ({effects}): it writes to a jax.Ref, calls the "
            "host back or checks what it computes. A recursive function is pure: its calls run in "
            "batches and in any order. Return what is to be seen, see every call with "
            'jaxrec.collect, or print with jax.debug.print under jr.executor("reference").'
        )
    return jaxpr


def axes_of(body: Jaxpr) -> set[Any]:
    """The named axes outside that a body computes with."""
    return _with_branches(_compat.named_axes, body)


def _with_branches(find: Callable[[Jaxpr], set[Any]], body: Jaxpr) -> set[Any]:
    """What is found in a body and in its choices between calls, which do not tell of it."""
    inner = [x for eqn in body.eqns if makes_calls(eqn) for x in jaxprs_in_params(eqn.params)]
    return find(body).union(*(_with_branches(find, x) for x in inner))


def described(
    run: Callable[..., Any], fun: Callable[..., Any], names: Sequence[str] = ()
) -> Callable[..., Any]:
    """`run` under the names of the user's function, which JAX looks up for its errors."""
    functools.update_wrapper(run, fun, (), ())
    kind = inspect.Parameter.POSITIONAL_ONLY
    vars(run)["__signature__"] = inspect.Signature([inspect.Parameter(x, kind) for x in names])
    return run


def _notes(error: Exception, instance: Instance) -> Iterator[str]:
    """What a user should know of the function when its body raises an error."""
    name, declared = instance.name, instance.result
    if any(mark in note for note in getattr(error, "__notes__", ()) for mark in _SAID):
        return  # of the function called by this one, from whose body it is
    if isinstance(error, _LOOKED):
        yield _advice(name, error)
    elif isinstance(error, TypeError) and "unhashable" in str(error) and "Tracer" in str(error):
        yield (
            f"Arguments of {name} have no values while it is traced, so nothing can look them up. "
            "Where functools.cache is to share calls with equal arguments, rec_fn(memo=True) does."
        )
    elif (
        declared is not None
        and instance.definition.out is not None
        and not isinstance(error, JaxRecError)
    ):
        types = _types(declared.labels, declared)
        yield (
            f"This is from the body of {name}, where a call of {name} gives what out= declares: "
            f"{types}. If that is not what the body returns, correct out=."
        )
    elif not isinstance(error, JaxRecError):
        shown = _types(instance.names, instance.args)
        yield f"This is from the body of {name}, traced for {shown}."


def _types(names: Sequence[str], of: Signature) -> str:
    types = map(show, of.avals)
    return listed([f"{n}: {x}" if n else x for n, x in zip(names, types, strict=True)], ", ")


def _advice(name: str, error: Exception) -> str:
    of_index = isinstance(error, jax.errors.TracerIntegerConversionError)
    lists = " A list that is indexed has to be an array: jnp.asarray(values)[i]."
    return (
        f"{name} is traced once for all calls, so Python's if, and, while, range and NumPy cannot "
        "look at its arguments. Choose with jaxrec.cond or jaxrec.switch, compute with jax.numpy, "
        "or make what is looked at a static argument: rec_fn(static_argnames=...)."
        f"{lists if of_index else ''}"
    )
