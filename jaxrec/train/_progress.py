"""How far a run has come: what a checkpoint holds besides arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx

from jaxrec.train._program import TrainState


class Best(NamedTuple):
    """Copies of the parameters of the best epoch so far; a pytree."""

    weights: nnx.State
    table: nnx.State

    @classmethod
    def of(cls, state: TrainState) -> Best:
        """Copies, because the next step takes over the buffers of ``state``."""
        return cls(*jax.tree.map(jnp.copy, (state.weights, state.table)))


@dataclasses.dataclass(frozen=True)
class Progress:
    """Where training stands.

    Attributes:
        epoch: Epochs finished, evaluation included.
        step: Steps done in the epoch after them.
        best_epoch: Number, from 1, of the epoch with the best dev accuracy; 0 before any.
        best_accuracy: That accuracy, -1 before any.
        history: One entry an epoch: its loss, dev accuracies and speed.
    """

    epoch: int = 0
    step: int = 0
    best_epoch: int = 0
    best_accuracy: float = -1.0
    history: tuple[Mapping[str, Any], ...] = ()

    def at_step(self, step: int) -> Progress:
        """The same after ``step`` steps of the epoch."""
        return dataclasses.replace(self, step=step)

    def improved_by(self, accuracy: float) -> bool:
        """Whether an epoch with this dev accuracy is the best so far; a tie is not."""
        return accuracy > self.best_accuracy

    def after_epoch(self, entry: Mapping[str, Any], accuracy: float) -> Progress:
        """The same with one more epoch finished."""
        better = self.improved_by(accuracy)
        return Progress(
            epoch=self.epoch + 1,
            step=0,
            best_epoch=self.epoch + 1 if better else self.best_epoch,
            best_accuracy=accuracy if better else self.best_accuracy,
            history=(*self.history, entry),
        )

    def as_dict(self) -> dict[str, Any]:
        """The progress as JSON values; `from_dict` reads them."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """Reads what `as_dict` wrote."""
        return cls(**{**values, "history": tuple(values["history"])})


class Snapshot(NamedTuple):
    """All that a run needs to go on: arrays and progress."""

    state: TrainState
    best: Best
    progress: Progress
