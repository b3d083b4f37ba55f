"""The split of a function, for tests of what follows from it."""

from __future__ import annotations


def program_of(fun, *args):
    return fun.graph(*args), fun._invocation(*fun._bind(args, {})).program
