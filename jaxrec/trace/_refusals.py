"""What the errors of tracing say."""

from __future__ import annotations

from collections.abc import Sequence

from jaxrec._texts import cut, listed
from jaxrec.trace._instance import Instance
from jaxrec.trace._signature import Signature, argument_differences, show


def ever_new(instance: Instance) -> str:
    """That functions are made without end, one in the body of another."""
    name, nested = instance.name, instance.specialised
    static = cut(", ".join(f"{key}={value!r}" for key, value in instance.definition.static))
    if not static:
        return (
            f"{name} is made anew inside of a recursive body, and {nested} of them call one "
            f"another: define {name} once, outside of what calls it, and pass it what it reads."
        )
    return (
        f"{name} is another function for every value of its static arguments, and {nested} of them "
        f"call one another, the last with ({static}). Does the recursion over static arguments "
        "end? By a static argument choose with Python's if: jaxrec.cond traces both branches. If "
        "it has to be so deep, pass what changes from call to call as an array."
    )


def ever_changing(instance: Instance) -> str:
    """That a function is another one for each call, without end."""
    return (
        f"what {instance.name} closes over changes while it is traced, such as a list to which its "
        "body appends, so it is another function for every call of it. Pass what changes as an "
        "argument, and count elsewhere: f.cache_info() says how often a function was traced."
    )


def changed_before(instance: Instance) -> str:
    """That a function is not what it was where it was called."""
    return (
        f"{instance.name} is called deep inside of other functions, and what it closes over had "
        "changed when it could be traced: the variable of a Python loop, or what bodies change. "
        f"Pass what changes to {instance.name} as an argument."
    )


def after_widening(widenings: Sequence[str], error: Exception) -> str:
    """What went wrong once the types of some arguments had been widened."""
    lines = listed(widenings, "\n  ")
    return (
        f"{error}\nAn argument that is first a Python number was given the type of the array that "
        f"a recursive call passes in its place:\n  {lines}\nConvert one of the two."
    )


def mismatch(caller: str, callee: Instance, got: Signature, names: tuple[str, ...]) -> str:
    """That a call has other types than the function was traced for."""
    of = callee.definition.arg_names
    lines = listed(argument_differences(callee.args, got, of, names), "\n  ")
    pairs = zip(callee.names, callee.args.avals, strict=True)
    types = listed([f"{n}: {show(a)}" for n, a in pairs], ", ")
    advice = "Convert the arguments"
    if callee.args.tree != got.tree:
        advice = (
            "Pass a first value instead of None, an array that has room and how much is used "
            "instead of a list that grows, arrays of indices instead of a tree of tuples "
            "(jaxrec.data.pack)"
        )
    return (
        f"{caller} calls {callee.name} with arguments that differ from its definition:\n  {lines}\n"
        f"Every call of a recursive function has the same types, here ({types}). {advice}, or make "
        "what varies a static argument."
    )
