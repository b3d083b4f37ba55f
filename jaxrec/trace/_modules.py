"""What bodies must not do with modules of flax.

Nothing of flax is imported: who passes a module has done so.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from jaxrec._errors import UnsupportedError
from jaxrec.trace._instance import Identity, Instance


def check_initialised(instance: Instance) -> None:
    """Checks that the body makes no variables of a module of flax.linen, which nobody would see."""
    linen = sys.modules.get("flax.linen")
    if linen is None:
        return
    for value in _objects(instance):
        if isinstance(value, linen.Module) and value.is_initializing():
            kind = type(value).__name__
            raise UnsupportedError(
                f"{instance.name} is called while flax.linen initialises {kind}: the variables of "
                "its layers would be made inside a recursive body, which is traced apart. Make "
                f"them before: where the {kind} is_initializing(), call each layer once, and not "
                f"{instance.name}."
            )


def _objects(instance: Instance) -> Iterator[Any]:
    """What a body may use besides its arguments: static ones, its own object, variables around."""
    definition = instance.definition
    for _, value in definition.static:
        yield value.value if isinstance(value, Identity) else value
    for cell in getattr(inspect.unwrap(definition.fun), "__closure__", None) or ():
        with contextlib.suppress(ValueError):  # a variable without a value yet
            yield cell.cell_contents


def changes_a_module(error: Exception) -> bool:
    """Whether flax says that a body has changed a variable of a module."""
    flax = sys.modules.get("flax.errors")
    return flax is not None and isinstance(error, flax.TraceContextError)


def check_unchanged(
    instance: Instance, args: Sequence[Any], given: Sequence[Sequence[Any]]
) -> None:
    """Checks that a body leaves modules as they are: what it changes are its own copies."""
    for name, arg, before in zip(instance.definition.arg_names, args, given, strict=False):
        now = jax.tree.leaves(arg) if _is_module(arg) else []
        if now and (len(now) != len(before) or not all(map(operator.is_, now, before))):
            what = f"its argument {name} in place, a {type(arg).__name__}, which nobody would see."
            raise UnsupportedError(impure(instance.name, what))


def _is_module(value: Any) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Module)


def impure(name: str, what: str) -> str:
    return (
        f"{name} changes {what} "
        "A recursive function is pure, and its calls run in any order. Pass randomness as a key, "
        "with rngs=jaxrec.call_key(key) for dropout, and let normalisation use stored averages "
        "(use_running_average=True)."
    )
