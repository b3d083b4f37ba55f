"""What bodies must not do with modules of flax.

Nothing of flax is imported: who passes a module has done so.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from jaxrec._errors import UnsupportedError
from jaxrec.trace._instance import Identity, Instance


def check_initialised(instance: Instance) -> None:
    """Checks that the body makes no variables of a module of flax.linen, which nobody would see."""
    for module in _linen_modules(instance):
        # One that is bound to no variables is given them by `apply`.
        if module.scope is not None and module.is_initializing():
            kind = type(module).__name__
            raise UnsupportedError(
                f"{instance.name} is called while flax.linen initialises {kind}: the variables of "
                "its layers would be made inside a recursive body, which is traced apart. Make "
                f"them before: where the {kind} is_initializing(), call each layer once, and not "
                f"{instance.name}."
            )


@contextlib.contextmanager
def kept_by(instance: Instance, args: Sequence[Any]) -> Iterator[None]:
    """A context in which the body of a function runs, and leaves objects of flax as they are.

    Args:
        instance: the function.
        args: its arguments, copies that are the body's own.

    Raises:
        UnsupportedError: it changes one of them, or what a module of flax.linen in reach keeps.
    """
    names = instance.definition.arg_names
    modules = [*_linen_modules(instance), *_running_modules()]
    before = [_linen_state(module) for module in modules]
    with contextlib.ExitStack() as stack:
        for name, arg in zip(names, args, strict=False):
            stack.enter_context(kept(instance.name, f"its argument {name}", arg))
        try:
            yield
        except Exception as error:
            _explain(error, instance.name)
            raise
    for module, (draws, variables) in zip(modules, before, strict=True):
        now, written = _linen_state(module)
        if now != draws or not _are_same(written, variables):
            kind = type(module).__name__
            what = f"what flax.linen keeps of {kind}, a random stream or variables."
            raise UnsupportedError(_impure(instance.name, what))


@contextlib.contextmanager
def kept(name: str, what: str, value: Any) -> Iterator[None]:
    """A context that leaves the objects of flax.nnx in a value as they are.

    Args:
        name: of the function whose body runs inside.
        what: the value is.
        value: see there, made for the context alone, so nobody would see a change.
    """
    objects = _nnx_objects(value)
    before = [jax.tree.leaves(x) for x in objects]
    yield
    for found, leaves in zip(objects, before, strict=True):
        if not _are_same(jax.tree.leaves(found), leaves):
            what = f"{what} in place, a {type(found).__name__}, which nobody would see."
            raise UnsupportedError(_impure(name, what))


def _are_same(now: Sequence[Any], before: Sequence[Any]) -> bool:
    return len(now) == len(before) and all(map(operator.is_, now, before))


def _nnx_objects(value: Any) -> list[Any]:
    nnx = sys.modules.get("flax.nnx")
    if nnx is None:
        return []
    kinds = nnx.Pytree, nnx.Variable
    leaves = jax.tree.leaves(value, is_leaf=lambda x: isinstance(x, kinds))
    return [x for x in leaves if isinstance(x, kinds)]


def _linen_modules(instance: Instance) -> Iterator[Any]:
    """The modules of flax.linen that a body may use besides its arguments."""
    linen = sys.modules.get("flax.linen")
    if linen is not None:
        yield from (x for x in _in_reach(instance) if isinstance(x, linen.Module))


def _running_modules() -> list[Any]:
    """The module of flax.linen whose method is running, which layers made now belong to."""
    context = getattr(sys.modules.get("flax.linen.module"), "_context", None)
    return [x for x in getattr(context, "module_stack", [])[-1:] if x is not None]


def _linen_state(module: Any) -> tuple[int, list[Any]]:
    """How often a module and all around it have drawn, and the variables that they may write."""
    if module.scope is None:
        return 0, []
    root = module.scope.root
    return _total(root.rng_counters), jax.tree.leaves(root.mutable_variables())


def _total(counters: Any) -> int:
    """The sum over counters, in which those of inner scopes are nested."""
    if not isinstance(counters, Mapping):
        return counters
    return sum(map(_total, counters.values()))


def _in_reach(instance: Instance) -> Iterator[Any]:
    """What a body may use besides its arguments: static ones, its own object, variables around."""
    definition = instance.definition
    todo: list[Any] = [x.value if isinstance(x, Identity) else x for _, x in definition.static]
    todo += _closed_over(inspect.unwrap(definition.fun))
    seen: set[int] = set()
    while todo:
        value = todo.pop()
        if id(value) not in seen:
            seen.add(id(value))
            yield value
            todo += _closed_over(value)


def _closed_over(value: Any) -> list[Any]:
    """The variables around a function of Python, and the object of a method."""
    if type(value) is types.MethodType:
        return [value.__self__, value.__func__]
    found = []
    if type(value) is types.FunctionType:
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # a variable without a value yet
                found.append(cell.cell_contents)
    return found


def _explain(error: Exception, name: str) -> None:
    """Says what to do where flax finds a module of another trace."""
    flax = sys.modules.get("flax.errors")
    if flax is None:
        return
    if isinstance(error, flax.TraceContextError):
        what = f"a module that its body did not make: {str(error).partition(' (http')[0]}."
        raise UnsupportedError(_impure(name, what)) from error
    if isinstance(error, flax.FlaxError):
        error.add_note(
            f"This is from the body of {name}, which is traced apart, and more than once: layers "
            "and variables of flax.linen that it makes are others each time. Make them before: "
            "layers in setup(), or as variables that the body closes over, and parameters outside."
        )
    if "different trace level" in str(error):
        error.add_note(
            f"This is from a branch in {name}. There the transformations of flax.nnx take modules "
            "that are operands of jaxrec.cond, not such as the branch closes over; those of JAX "
            "(jax.checkpoint, jax.vmap, jax.grad) take both."
        )


def _impure(name: str, what: str) -> str:
    return (
        f"{name} changes {what} "
        "A recursive function is pure, and its calls run in any order. Pass randomness as a key: "
        "dropout takes jaxrec.call_key(key), as rngs= in flax.nnx and rng= in flax.linen. Let "
        "normalisation use stored averages (use_running_average=True), and see what calls compute "
        "with jaxrec.collect. flax.nnx.jit and flax.nnx.remat write to the modules that they are "
        "given: use jax.jit and jax.checkpoint, which take modules too."
    )
