"""Checks of the types of arguments, so that a wrong one is named where it was given."""

from __future__ import annotations

import operator
from collections.abc import Iterable
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


def check_trees(caller: str, trees: Iterable[Tree]) -> None:
    """Raises if one tree is given for several."""
    if isinstance(trees, Tree):
        raise TypeError(f"{caller}: got a Tree, expected a sequence of them: pass [tree]")


def check_tree(caller: str, number: int, tree: Any) -> None:
    """Raises unless one of several trees is one."""
    if not isinstance(tree, Tree):
        raise TypeError(f"{caller}: trees[{number}] is {tree!r}, expected a jaxrec.data.Tree")
