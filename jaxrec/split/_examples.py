"""The program that computes a value for each of some examples, which make the same calls.

Under `jax.vmap` examples often share the recursion: an ensemble of parameters that runs on one
tree, a batch of inputs to one expression, a table that is filled for many pairs of signals. Then
one schedule does for all, and a part of a row has one more axis.
"""

from __future__ import annotations

import dataclasses

from jax.core import ShapedArray

from jaxrec.split._axes import Examples
from jaxrec.split._cache import Cache
from jaxrec.split._program import Program


def with_examples(program: Program, size: int, mapped: frozenset[int]) -> Program:
    """The program for some examples.

    Args:
        program: for one.
        size: how many there are.
        mapped: the positions of the outer values that differ by example.
    """
    axis = Examples(size, mapped)
    return program.cache.once(axis, lambda: _make(program, axis))


def _make(program: Program, axis: Examples) -> Program:
    members = tuple(
        tuple(ShapedArray((axis.size, *a.shape), a.dtype) for a in mine) for mine in program.members
    )
    return dataclasses.replace(
        program,
        members=members,
        row_flops=program.row_flops * axis.size,
        axes=(*program.axes, axis),
        single=program,
        cache=Cache(),
    )
