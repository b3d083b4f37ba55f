"""What a peer offers, and the list of peers."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks._models import Params
from benchmarks._trees import Forest

Gradients = tuple[float, dict[str, np.ndarray]]


class Program(NamedTuple):
    """A model that one peer has built, with its own copy of the parameters.

    Attributes:
        prepare: host work on a batch, which may be cached: ordering, padding, look-up lists.
        train_step: one step on a prepared batch (loss, gradients, Adagrad); returns the loss and
            is finished when it returns.
        infer: class scores of the roots of a prepared batch, shape [trees, 5].
        gradients: the loss and every gradient, the embedding's as a full table; for checks.
    """

    prepare: Callable[[Forest], Any]
    train_step: Callable[[Any], float]
    infer: Callable[[Any], np.ndarray]
    gradients: Callable[[Any], Gradients]


PEERS = ("jaxrec", "hand_jax", "torch_eager", "torch_batched", "dynet")
"""Names for `build`; the module of a peer is imported when it is asked for."""


def build(peer: str, model: str, params: Params) -> Program:
    """Builds `model` with `params` as the peer called `peer` does it.

    Raises:
        ValueError: there is no such peer.
    """
    if peer not in PEERS:
        raise ValueError(f"unknown peer {peer!r}; the peers are {', '.join(PEERS)}")
    return importlib.import_module(f"benchmarks.peers.{peer}_peer").build(model, params)
