"""The training loop: epochs, evaluation, checkpoints, and the result."""

from __future__ import annotations

import functools
import io
import math
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jax
import jax.numpy as jnp
from tqdm import tqdm

import jaxrec as jr
from jaxrec.data import Forest
from jaxrec.train._batching import (
    EvalShape,
    TrainBatch,
    eval_batches,
    eval_shape,
    steps_per_epoch,
    train_batches,
)
from jaxrec.train._checkpoint import Checkpoints
from jaxrec.train._curve import save_curve
from jaxrec.train._errors import TrainError
from jaxrec.train._evaluate import accuracies
from jaxrec.train._place import alone_in, choose_out
from jaxrec.train._program import Program, TrainState, make_program
from jaxrec.train._progress import Best, Progress, Snapshot
from jaxrec.train._report import epoch_line, versions
from jaxrec.train._settings import Settings
from jaxrec.train._task import Task, load_task

# Reading a loss waits for the device: now and then is enough for a progress bar.
_SHOW_EVERY: Final = 10


def train(settings: Settings) -> dict[str, Any]:
    """Trains a model, or goes on training it, and evaluates the best epoch on the test part.

    Writes checkpoints, ``curve.png`` and ``vocabulary.json`` below the directory of the run, a
    progress bar to stderr and a line an epoch to stdout.

    Args:
        settings: See `parse_settings`.

    Returns:
        The result as JSON values: settings, epochs, accuracies, speed and versions.

    Raises:
        TrainError: The settings do not fit the data or the checkpoint, or the loss diverged.
        jaxrec.data.TreebankError: A file is malformed.
    """
    task = load_task(settings)
    out = choose_out(settings)
    with (
        alone_in(out),
        jr.executor(settings.executor),
        Checkpoints(out, settings, task.fingerprint()) as checkpoints,
    ):
        run = _Run(settings, task, make_program(settings, task), checkpoints, out)
        first = run.begin()
        # Only now, when it is known that an earlier run is of these data.
        task.vocabulary.save(out / "vocabulary.json")
        return run.result(run.epochs(first))


@dataclass(frozen=True)
class _Run:
    """What stays the same throughout a run; what changes is passed along as a `Snapshot`."""

    settings: Settings
    task: Task
    program: Program
    checkpoints: Checkpoints
    out: Path

    def begin(self) -> Snapshot:
        """The first snapshot, saved at once so that any later moment can be resumed."""
        first = Snapshot(self.program.state, Best.of(self.program.state), Progress())
        if self.settings.resume:
            return self.checkpoints.restore(first)
        jax.block_until_ready((first.state, first.best))  # does it fit into memory?
        self.checkpoints.save(first)
        return first

    def epochs(self, snapshot: Snapshot) -> Snapshot:
        """All epochs that are still to do."""
        if snapshot.progress.history:  # it may have been killed before this was drawn
            self._draw(snapshot.progress)
        while snapshot.progress.epoch < self.settings.epochs:
            snapshot = self._epoch(snapshot)
        return snapshot

    def _epoch(self, snapshot: Snapshot) -> Snapshot:
        """The rest of one epoch, its evaluation and its checkpoint."""
        state, speed = self._steps(snapshot)
        dev = self._evaluate(Best(state.weights, state.table), self.task.dev)
        progress = snapshot.progress
        loss = self._checked_loss(state.loss_sum) / self._num_steps
        entry = {"epoch": progress.epoch + 1, "loss": loss, "dev": dev, "trees_per_s": speed}
        accuracy = dev[self._criterion]
        best = Best.of(state) if progress.improved_by(accuracy) else snapshot.best
        state = state._replace(loss_sum=jnp.zeros_like(state.loss_sum))
        snapshot = Snapshot(state, best, progress.after_epoch(entry, accuracy))
        self.checkpoints.save(snapshot)
        self._draw(snapshot.progress)
        print(epoch_line(entry, self.settings.epochs), flush=True)
        return snapshot

    def _draw(self, progress: Progress) -> None:
        path = self.out / "curve.png"
        try:
            save_curve(path, progress.history, str(self.out.name))
        except OSError as error:
            raise TrainError(
                f"--out: the curve cannot be written to {path}: {error}. Make room there; --resume "
                "then goes on from the last checkpoint."
            ) from error

    def _steps(self, snapshot: Snapshot) -> tuple[TrainState, float | None]:
        """The steps of an epoch that are still to do, and how many trees a second they took."""
        state, best, progress = snapshot
        paused = 0.0
        start = time.perf_counter()
        with self._bar(progress) as bar:
            for done, batch in enumerate(self._batches(progress), start=progress.step + 1):
                state, loss = self.program.step(state, batch)
                self._show(bar, done, batch, loss)
                # The end of the epoch has a checkpoint of its own, with the evaluation in it.
                if done % self.settings.checkpoint_every == 0 and done < self._num_steps:
                    jax.block_until_ready(state)
                    saving = time.perf_counter()
                    self.checkpoints.save(Snapshot(state, best, progress.at_step(done)))
                    paused += time.perf_counter() - saving
            jax.block_until_ready(state)
            seconds = time.perf_counter() - start - paused
            trees = bar.n - (bar.initial or 0)
        return state, trees / seconds if trees else None

    def _batches(self, progress: Progress) -> Iterable[TrainBatch]:
        return train_batches(
            self.task.train,
            self.settings.batch,
            len(self.task.vocabulary),
            self.settings.seed,
            progress.epoch,
            progress.step,
        )

    def _bar(self, progress: Progress) -> tqdm[Any]:
        return tqdm(
            total=self.task.train.num_trees,
            initial=progress.step * self.settings.batch,
            unit="tree",
            desc=f"epoch {progress.epoch + 1}/{self.settings.epochs}",
            file=sys.stderr or io.StringIO(),  # where whoever started the run has closed it
            leave=False,
        )

    def _show(self, bar: tqdm[Any], done: int, batch: TrainBatch, loss: jax.Array) -> None:
        if done % _SHOW_EVERY == 0:
            bar.set_postfix(loss=f"{self._checked_loss(loss):.3f}", refresh=False)
        bar.update(int(batch.weight.sum()))

    def _checked_loss(self, loss: jax.Array) -> float:
        value = float(loss)
        if not math.isfinite(value):
            raise TrainError(
                f"training diverged: the loss is {value}. Lower --lr (now {self.settings.lr}) or "
                f"--embed-lr (now {self.settings.embed_lr})."
            )
        return value

    def _evaluate(self, model: Best, forest: Forest) -> dict[str, float]:
        score, polar = self.program.score, self.task.polar
        batches = eval_batches(forest, self._eval_shape)
        parts = [score(model.weights, model.table, batch) for batch in batches]
        measured = accuracies(parts, polar)
        if self.settings.binary:
            # With three classes and no neutral roots, the accuracy on roots is that on polarity.
            del measured["root"]
        return measured

    @functools.cached_property
    def _eval_shape(self) -> EvalShape:
        """One shape for all batches that are evaluated, which is compiled once."""
        return eval_shape(self.task.dev, self.task.test)

    @property
    def _criterion(self) -> str:
        """The dev accuracy that chooses the best epoch."""
        return "binary" if self.settings.binary else "root"

    @property
    def _num_steps(self) -> int:
        return steps_per_epoch(self.task.train, self.settings.batch)

    def result(self, snapshot: Snapshot) -> dict[str, Any]:
        """What the last line of JSON says."""
        progress = snapshot.progress
        last = progress.history[-1]
        return {
            "settings": self.settings.as_dict(),
            "epochs": progress.epoch,
            "train_loss": last["loss"],
            "best_epoch": progress.best_epoch,
            "dev": progress.history[progress.best_epoch - 1]["dev"],
            "test": self._evaluate(snapshot.best, self.task.test),
            "trees_per_s": last["trees_per_s"],
            "trees": {
                "train": self.task.train.num_trees,
                "dev": self.task.dev.num_trees,
                "test": self.task.test.num_trees,
            },
            "vocabulary": len(self.task.vocabulary),
            "history": list(progress.history),
            "out": str(self.out),
            "curve": str(self.out / "curve.png"),
            "versions": versions(),
        }
