"""Checkpoints, written by orbax: each one whole or not there at all.

Orbax writes a step into a directory with a temporary name and renames it when everything is on
disk. A run killed while it writes leaves such a directory behind; it is no checkpoint, and the
next run clears it away. Saving waits until it is done, since the next training step takes over
the very buffers that are being written.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import jax
import numpy as np
import orbax.checkpoint as ocp

from jaxrec.train._errors import TrainError
from jaxrec.train._progress import Best, Progress, Snapshot
from jaxrec.train._settings import Settings, changed_settings

# The last one, and the one before in case the disk itself fails.
_KEPT: Final = 2
_FOLDER: Final = "checkpoints"


def has_checkpoints(out: Path) -> bool:
    """Whether a run has written a whole checkpoint below ``out``."""
    folder = out / _FOLDER
    return folder.is_dir() and any(entry.name.isdecimal() for entry in folder.iterdir())


class Checkpoints:
    """The checkpoints of one run, in ``out/checkpoints``; a context manager.

    Args:
        out: Directory of the run.
        settings: Saved with each checkpoint, and compared when one is restored.
        fingerprint: Identifies the data, likewise.
    """

    def __init__(self, out: Path, settings: Settings, fingerprint: str) -> None:
        self._settings = settings
        self._fingerprint = fingerprint
        options = ocp.CheckpointManagerOptions(
            max_to_keep=_KEPT, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        self._manager = ocp.CheckpointManager((out / _FOLDER).absolute(), options=options)

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._manager.close()

    def save(self, snapshot: Snapshot) -> None:
        """Writes a checkpoint, numbered by steps taken, and drops the oldest.

        Raises:
            TrainError: It cannot be written, such as to a full disk.
        """
        arrays = _arrays(snapshot)
        self._check_room(arrays)
        about = {
            "settings": self._settings.as_dict(),
            "fingerprint": self._fingerprint,
            "progress": snapshot.progress.as_dict(),
            "arrays": _digest_of_arrays(arrays),
        }
        items = ocp.args.Composite(
            arrays=ocp.args.StandardSave(arrays),
            about=ocp.args.JsonSave({"content": about, "digest": _digest_of_json(about)}),
        )
        try:
            self._manager.save(int(snapshot.state.step), args=items)
        except (OSError, ValueError) as error:  # a ValueError is what the storage makes of it
            raise self._unwritten(_reason(error)) from error

    def _check_room(self, arrays: Mapping[str, Any]) -> None:
        """Raises if the disk is too full, before the storage fails with a page of tracebacks."""
        needed = sum(leaf.nbytes for leaf in jax.tree.leaves(arrays))
        free = shutil.disk_usage(self._manager.directory).free
        if free < needed:
            raise self._unwritten(f"it takes {needed / 1e6:.1f} MB, of which {free / 1e6:.1f} free")

    def _unwritten(self, reason: str) -> TrainError:
        return TrainError(
            f"--out: a checkpoint cannot be written to {self._manager.directory}: {reason}. Make "
            "room there, or make it writable; --resume then goes on from the checkpoint before."
        )

    def restore(self, like: Snapshot) -> Snapshot:
        """Reads the last checkpoint, or the one before if that cannot be read.

        Args:
            like: A snapshot with arrays of the same shapes.

        Raises:
            TrainError: There is none that can be read, or it is of a run with other settings or
                data.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        for step in steps:
            try:
                snapshot = self._restore(step, like)
            except TrainError:
                raise
            except Exception as error:  # orbax and its storage raise whatever the damage leads to
                what = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
                print(f"checkpoint {self._place(step)} is damaged: {what:.200}", file=sys.stderr)
                continue
            for damaged in steps[: steps.index(step)]:  # whose numbers are needed again
                self._put_aside(self._place(damaged))
            self._manager.reload()
            return snapshot
        number = f"none of {len(steps)} checkpoints can be read" if steps else "no checkpoint"
        raise TrainError(f"--resume: {self._manager.directory}: {number}. Start a new run.")

    def _put_aside(self, place: Path) -> None:
        names = (place.with_suffix(f".damaged{k or ''}") for k in itertools.count())
        place.rename(next(name for name in names if not name.exists()))

    def _place(self, step: int) -> Path:
        return Path(self._manager.directory) / str(step)

    def _restore(self, step: int, like: Snapshot) -> Snapshot:
        written = self._read(step, about=ocp.args.JsonRestore())["about"]
        about = written["content"]
        if _digest_of_json(about) != written["digest"]:
            raise ValueError("what it says about the run is not what was written")
        self._check(about)
        template = jax.tree.map(ocp.utils.to_shape_dtype_struct, _arrays(like))
        arrays = self._read(step, arrays=ocp.args.StandardRestore(template))["arrays"]
        if _digest_of_arrays(arrays) != about["arrays"]:
            raise ValueError("its arrays are not what was written")
        best = Best(arrays["best"]["weights"], arrays["best"]["table"])
        state = type(like.state)(**arrays["state"])
        if int(state.step) != step:
            raise ValueError(f"it is of step {int(state.step)}")
        return Snapshot(state, best, Progress.from_dict(about["progress"]))

    def _read(self, step: int, **items: ocp.args.CheckpointArgs) -> Mapping[str, Any]:
        return self._manager.restore(step, args=ocp.args.Composite(**items))

    def _check(self, about: Mapping[str, Any]) -> None:
        changes = changed_settings(about["settings"], self._settings)
        if not changes and about["fingerprint"] != self._fingerprint:
            changes.append("--data: the trees are not those that the checkpoint was trained on")
        if changes:
            raise TrainError(
                f"--resume: {self._manager.directory} belongs to a run with other settings:\n  "
                + "\n  ".join(changes)
                + "\nRepeat that run's options, or start a new run in another --out."
            )


def _arrays(snapshot: Snapshot) -> dict[str, Any]:
    """The arrays of a snapshot under names that do not depend on the order of fields."""
    return {"state": snapshot.state._asdict(), "best": snapshot.best._asdict()}


def _reason(error: OSError | ValueError) -> str:
    """Why something could not be written; the storage says so last, behind every file's name."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    line = next(iter(str(error).splitlines()), "")
    return line.partition(" [os_error_code")[0].rpartition(": ")[2]


def _digest_of_json(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def _digest_of_arrays(arrays: Mapping[str, Any]) -> str:
    """A digest of all arrays: the storage notices files that are cut off, but no changed bit."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree.leaves_with_path(arrays):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
