"""Choices that decide how much is computed."""

from __future__ import annotations

from jaxrec.graph._ir import Op, Switch, has_call, names_of, shows

_LONG = {"dot_general", "conv_general_dilated", "while", "scan"}


def is_long(op: Op) -> bool:
    """Whether an operation costs so much that a branch must not run it in vain."""
    return not _LONG.isdisjoint(names_of(op))


def decides_work(op: Op) -> bool:
    """Whether a Switch decides what runs, so that the scheduler must know its index."""
    return isinstance(op, Switch) and (has_call(op) or is_long(op) or shows(op))
