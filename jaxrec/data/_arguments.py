"""Checks of the types of arguments, so that a wrong one is named where it was given."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator
from typing import Any

from jaxrec.data._tree import Tree


def check_type(caller: str, name: str, value: Any, kind: type) -> None:
    """Raises unless an argument is of a class."""
    if not isinstance(value, kind):
        raise TypeError(f"{caller}: got {name}={value!r}, expected a jaxrec.data.{kind.__name__}")


def check_integers(caller: str, **arguments: Any) -> None:
    """Raises unless arguments are integers, of Python or NumPy; None is left to others."""
    for name, value in arguments.items():
        try:
            operator.index(0 if value is None else value)
        except TypeError:
            message = f"{caller}: got {name}={value!r}, expected an integer"
            raise TypeError(message) from None


def check_numbers(caller: str, **arguments: Any) -> None:
    """Raises unless arguments are real numbers, of Python, NumPy or JAX."""
    for name, value in arguments.items():
        try:
            math.fabs(value)
        except (TypeError, OverflowError):
            raise TypeError(f"{caller}: got {name}={value!r}, expected a number") from None


def each_tree(caller: str, trees: Iterable[Tree]) -> Iterator[Tree]:
    """The trees that were given for several; raises where something else is."""
    if isinstance(trees, Tree):
        raise TypeError(f"{caller}: got a Tree, expected a sequence of them: pass [tree]")
    if not isinstance(trees, Iterable):
        raise TypeError(f"{caller}: got {trees!r}, expected a sequence of jaxrec.data.Tree")
    for number, tree in enumerate(trees):
        if not isinstance(tree, Tree):
            raise TypeError(f"{caller}: trees[{number}] is {tree!r}, expected a jaxrec.data.Tree")
        yield tree
