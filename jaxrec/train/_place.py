"""Where a run writes, and which run ``--resume`` means."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from jaxrec.train._checkpoint import has_checkpoints
from jaxrec.train._errors import TrainError
from jaxrec.train._settings import Settings


def choose_out(settings: Settings) -> Path:
    """The directory of the run, which is made if need be.

    With ``--out`` it is that one. Without, it is ``runs/MODEL-DATA``, with a number added if
    earlier runs have taken the name; ``--resume`` then goes on with the last of them.

    Raises:
        TrainError: There is nothing to resume, an earlier run's results would be overwritten, or
            there cannot be such a directory.
    """
    out = _resumed(settings) if settings.resume else _fresh(settings)
    try:
        str(out.absolute()).encode()  # as the storage of checkpoints does
        out.mkdir(parents=True, exist_ok=True)
    except UnicodeEncodeError:
        raise TrainError(f"--out {str(out)!a}: the name is not UTF-8. Give another one.") from None
    except OSError as error:
        raise TrainError(
            f"--out {out}: the directory cannot be made: {error.strerror}. Give another one."
        ) from None
    return out


@contextlib.contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """A context in which no other run writes to the directory; the system ends it with the process.

    Raises:
        TrainError: Another run does.
    """
    try:
        opened = (out / ".lock").open("w")
    except OSError as error:
        raise TrainError(
            f"--out {out}: nothing can be written there: {error.strerror}. Make it writable, or "
            "give another directory."
        ) from None
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainError(
                f"--out {out}: another run is writing there. Wait for its end, or give another "
                "directory."
            ) from None
        yield


def _resumed(settings: Settings) -> Path:
    places = [Path(settings.out)] if settings.out else [*_taken(settings).values()]
    begun = [place for place in places if has_checkpoints(place)]
    if begun:
        return begun[-1]
    raise TrainError(
        f"--resume: there is no checkpoint in {settings.out or _default(settings)}. Give the --out "
        "of the run to go on with, or leave --resume out to start one."
    )


def _fresh(settings: Settings) -> Path:
    if settings.out is None:
        first, last = _default(settings), max(_taken(settings), default=0)
        return first.with_name(f"{first.name}-run{last + 1}") if last else first
    out = Path(settings.out)
    if has_checkpoints(out):
        raise TrainError(
            f"--out {out} holds checkpoints of an earlier run. Add --resume to go on with it, or "
            "give another directory."
        )
    return out


def _default(settings: Settings) -> Path:
    data = "listops" if settings.data is None else Path(settings.data).resolve().name
    return Path("runs") / f"{settings.model}-{data}"


def _taken(settings: Settings) -> dict[int, Path]:
    """The directories of earlier runs by number, in order; some in between may be gone."""
    first = _default(settings)
    found = {1: first} if first.exists() else {}
    for place in first.parent.glob("*"):
        name, _, number = place.name.rpartition("-run")
        if name == first.name and number.isdecimal() and int(number) > 1:
            found[int(number)] = place
    return dict(sorted(found.items()))
