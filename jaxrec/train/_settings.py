"""The settings of a run: command line, defaults, and what a resumed run may change."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from jaxrec.train._errors import TrainError

MODELS: Final = ("treelstm", "treernn", "rntn")
OPTIMIZERS: Final = ("adagrad", "adam", "sgd", "rmsprop")
EXECUTORS: Final = ("graph", "reference")

_SEEDS: Final = 1 << 32  # those that JAX tells apart

_MOST: Final = 1 << 24  # of each number; products of sizes then have no more than 64 bits

# A resumed run may differ in these: they change how long or where it runs, not what it computes.
# The data themselves are compared, not their place.
FREE_TO_CHANGE: Final = frozenset(
    {"out", "resume", "epochs", "checkpoint_every", "executor", "data"}
)

Defaults = Mapping[str, Any]

# Tai et al. 2015, section 5.2 and 5.3.
TREEBANK_DEFAULTS: Final[Defaults] = MappingProxyType(
    {
        "hidden": 150,
        "embed": 300,
        "batch": 25,
        "epochs": 10,
        "optimizer": "adagrad",
        "lr": 0.05,
        "embed_lr": 0.1,
        "l2": 1e-4,
        "dropout": 0.5,
    }
)

# Small enough that the whole run takes a minute or two on two cores.
LISTOPS_DEFAULTS: Final[Defaults] = MappingProxyType(
    {
        "hidden": 128,
        "embed": 32,
        "batch": 25,
        "epochs": 10,
        "optimizer": "adam",
        "lr": 0.01,
        "embed_lr": 0.01,
        "l2": 0.0,
        "dropout": 0.0,
    }
)

# Where a leaf's state is its word vector, one size serves both (Socher et al. 2013: 25 to 35).
SHARED_SIZE: Final[Mapping[str, int]] = MappingProxyType({"treernn": 100, "rntn": 25})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Everything that a training run depends on; see ``python -m jaxrec.train --help``."""

    model: str
    data: str | None
    trees: int
    hidden: int
    embed: int
    batch: int
    epochs: int
    optimizer: str
    lr: float
    embed_optimizer: str
    embed_lr: float
    l2: float
    dropout: float
    glove: str | None
    binary: bool
    seed: int
    out: str | None
    resume: bool
    checkpoint_every: int
    executor: str

    def as_dict(self) -> dict[str, Any]:
        """The settings as JSON values."""
        return dataclasses.asdict(self)


def parse_settings(argv: Sequence[str] | None = None) -> Settings:
    """Reads the command line; options that are not given get the defaults of the data.

    Args:
        argv: Arguments without the program's name; those of the process if ``None``.

    Raises:
        TrainError: A value is out of range, or two options do not go together.
        SystemExit: The command line cannot be parsed (argparse has said why), or ``--help``.
    """
    given = vars(_parser().parse_args(argv))
    values = {name: value for name, value in given.items() if value is not None}
    defaults = dict(LISTOPS_DEFAULTS if given["data"] is None else TREEBANK_DEFAULTS)
    if given["model"] in SHARED_SIZE:
        size = values.get("hidden", values.get("embed", SHARED_SIZE[given["model"]]))
        defaults |= {"hidden": size, "embed": size}
    settings: dict[str, Any] = {"data": None, "glove": None, "out": None} | defaults | values
    settings.setdefault("embed_optimizer", settings["optimizer"])
    return _checked(Settings(**settings))


def changed_settings(old: Mapping[str, Any], new: Settings) -> list[str]:
    """Lists, as lines, the settings in which a run cannot go on from a checkpoint."""
    return [
        f"--{name.replace('_', '-')}: the checkpoint has {old.get(name)!r}, now it is {value!r}"
        for name, value in new.as_dict().items()
        if name not in FREE_TO_CHANGE and _differ(name, old.get(name), value, new)
    ]


def _differ(name: str, old: Any, value: Any, new: Settings) -> bool:
    if name == "glove":  # where there are vectors the vocabulary is larger; they are saved
        return bool(old) != bool(value)
    if name == "trees" and new.data is not None:
        return False
    return old != value


def _checked(settings: Settings) -> Settings:
    """The settings themselves, or `TrainError`."""
    for name in ("hidden", "embed", "batch", "epochs", "trees", "checkpoint_every"):
        value, option = getattr(settings, name), f"--{name.replace('_', '-')}"
        if not 1 <= value <= _MOST:
            raise TrainError(f"{option} is a number from 1 to {_MOST:,}, got {value:,}.")
    for name in ("lr", "embed_lr", "l2"):
        value = getattr(settings, name)
        if not 0.0 <= value < math.inf:
            option = f"--{name.replace('_', '-')}"
            raise TrainError(f"{option} is a number from 0 upwards, got {value}.")
    if not 0.0 <= settings.dropout < 1.0:
        raise TrainError(f"--dropout is a probability below 1, got {settings.dropout}.")
    if not 0 <= settings.seed < _SEEDS:
        raise TrainError(f"--seed is a number from 0 to {_SEEDS - 1}, got {settings.seed}.")
    if settings.model in SHARED_SIZE and settings.hidden != settings.embed:
        raise TrainError(
            f"--model {settings.model} uses word vectors as leaf states: --hidden and --embed must "
            f"be equal, got {settings.hidden} and {settings.embed}."
        )
    for name in ("data", "out"):
        if getattr(settings, name) == "":
            raise TrainError(
                f"--{name} is a directory, got an empty name. Give one, or leave it out."
            )
    if settings.data is None and (settings.binary or settings.glove):
        raise TrainError("--binary and --glove need a sentiment treebank: give --data DIR.")
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jaxrec.train",
        description="Trains a recursive model on generated ListOps, or on a treebank (--data).",
        epilog="Defaults for a treebank are those of Tai et al. 2015, for ListOps smaller ones.",
    )
    _add_data_options(parser)
    _add_model_options(parser)
    _add_run_options(parser)
    return parser


def _add_data_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("data")
    group.add_argument("--data", metavar="DIR", help="holds train.txt, dev.txt and test.txt")
    group.add_argument("--trees", type=int, default=4000, help="ListOps trees to train on")
    group.add_argument("--glove", metavar="FILE", help="pretrained word vectors as text")
    group.add_argument(
        "--binary", action="store_true", help="positive or negative only, neutral roots dropped"
    )


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and optimizer")
    sizes = ", ".join(f"of {name} {size} each" for name, size in SHARED_SIZE.items())
    models = f"default: treelstm; other sizes: {sizes}"
    group.add_argument("--model", choices=MODELS, default="treelstm", help=models)
    _add(group, "hidden", int, "size of a state")
    _add(group, "embed", int, "size of a word vector")
    _add(group, "dropout", float, "rate on the classifier's input")
    _add(group, "batch", int, "trees in a minibatch")
    _add(group, "epochs", int, "passes over the training trees")
    _add(group, "optimizer", str, "how weights are updated", choices=OPTIMIZERS)
    _add(group, "lr", float, "learning rate")
    group.add_argument("--embed-optimizer", choices=OPTIMIZERS, help="default: as --optimizer")
    _add(group, "embed_lr", float, "learning rate of the word vectors")
    _add(group, "l2", float, "strength of L2 on all but the word vectors")
    seed_help = "of weights, order and dropout; default: 0"
    group.add_argument("--seed", type=int, default=0, help=seed_help)


def _add(group: Any, name: str, kind: type, what: str, **how: Any) -> None:
    """Adds an option whose default depends on the data."""
    treebank, listops = TREEBANK_DEFAULTS[name], LISTOPS_DEFAULTS[name]
    apart = f"{treebank} on a treebank, {listops} on ListOps"
    default = treebank if treebank == listops else apart
    option = "--" + name.replace("_", "-")
    group.add_argument(option, type=kind, help=f"{what}; default: {default}", **how)


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument("--out", metavar="DIR", help="default: runs/MODEL-DATA, numbered if taken")
    group.add_argument("--resume", action="store_true", help="go on from the last checkpoint")
    group.add_argument("--checkpoint-every", type=int, metavar="N", default=200, help="steps")
    group.add_argument("--executor", choices=EXECUTORS, default="graph")
