"""Accuracies on the labelled nodes and on the roots of a forest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxrec.data import Forest


class Counts(NamedTuple):
    """How many there were and how many were right, each int32; counts of batches add up.

    Attributes:
        root: ``[2]``, labelled roots that were right, and all of them.
        nodes: ``[2]``, the same for all labelled nodes.
        binary: ``[2]``, the same for roots that are not neutral, judged by polarity alone.
    """

    root: jax.Array
    nodes: jax.Array
    binary: jax.Array


def count(logits: jax.Array, forest: Forest) -> Counts:
    """Counts hits of ``logits [nodes, classes]``; see `Counts`."""
    label = jnp.asarray(forest.label)
    right = jnp.argmax(logits, axis=-1) == label
    scores, root_label = logits[forest.roots], label[forest.roots]
    return Counts(
        root=_hits(right[forest.roots], root_label >= 0),
        nodes=_hits(right, label >= 0),
        binary=_polar_hits(scores, root_label),
    )


def accuracies(counts: Iterable[Counts], polar: bool) -> dict[str, float]:
    """Adds up counts of batches: ``root``, ``nodes`` and, if ``polar``, ``binary``, 0 to 1."""
    total = Counts(*np.sum([jax.device_get(part) for part in counts], axis=0))
    names = ("root", "nodes", "binary") if polar else ("root", "nodes")
    return {name: _share(getattr(total, name)) for name in names}


def _hits(right: jax.Array, asked: jax.Array) -> jax.Array:
    return jnp.stack([jnp.sum(right & asked), jnp.sum(asked)])


def _polar_hits(scores: jax.Array, label: jax.Array) -> jax.Array:
    """Positive against negative, from classes ordered around a neutral one in the middle.

    The probability of a polarity is that of its classes together, so 5 and 3 classes are alike.
    """
    middle = scores.shape[-1] // 2
    negative = jax.nn.logsumexp(scores[:, :middle], axis=-1)
    positive = jax.nn.logsumexp(scores[:, middle + 1 :], axis=-1)
    asked = (label >= 0) & (label != middle)
    return _hits((positive > negative) == (label > middle), asked)


def _share(pair: np.ndarray) -> float:
    right, asked = (int(number) for number in pair)
    return right / asked if asked else float("nan")
