"""What does scheduling cost a call, and which share of a training step is it?

`python -m benchmarks.scheduler --model treelstm --trees 1 25 256`

For jaxrec the trees of a batch are joined into one, whose recursion is scheduled as in the jitted
step that trains it; the time is that of `profile`. Beside it stand the host-side orderings of the
hand-batched programs, which know the model and need not look at its control flow. jaxrec schedules
within its step, the others before theirs: `share` is of the step that contains the scheduling.
"""

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchmarks import _models, _trees
from benchmarks._harness import Rows, interleave, seconds, spread
from benchmarks.peers import build

_PEERS = ("jaxrec", "hand_jax", "torch_batched")


class _Timed(NamedTuple):
    """Seconds of scheduling, and the step that comes with it, `included` if it schedules too."""

    schedule: Callable[[], float]
    step: Callable[[], Any]
    included: bool


def _jaxrec(model: str, params: _models.Params, tree: _trees.Forest) -> _Timed:
    from benchmarks.peers import jaxrec_peer  # here, as the other peers run without jaxrec

    program, function = build("jaxrec", model, params), jaxrec_peer.recursion(model)
    batch = program.prepare(tree)
    root = batch.trees.roots[0]
    values = {name: jnp.asarray(value) for name, value in params.items()}
    values["embed"] = jaxrec_peer.word_rows(values["embed"], batch.words)
    return _Timed(
        lambda: _scheduling(function.profile(values, batch.trees, root)),
        lambda: program.train_step(batch),
        included=True,
    )


def _scheduling(profile: Any) -> float:
    """The stage of a profile that is scheduling."""
    return next(t for name, t in profile.stages.items() if name.startswith("scheduling"))


def _hand_batched(peer: str, model: str, params: _models.Params, forest: _trees.Forest) -> _Timed:
    program = build(peer, model, params)
    batch, prepare = program.prepare(forest), partial(program.prepare, forest)
    return _Timed(lambda: seconds(prepare), lambda: program.train_step(batch), included=False)


def _measure(timed: _Timed, calls: int, repeats: int) -> dict[str, float]:
    """The row of one peer."""
    timed.schedule()
    timed.step()
    actions = {
        "schedule": lambda: [timed.schedule()],
        "step": lambda: [seconds(timed.step)],
    }
    times = interleave(actions, repeats)
    schedule, step = spread(times["schedule"]), float(np.median(times["step"]))
    whole = step if timed.included else step + schedule["seconds"]
    share = schedule["seconds"] / whole
    per_call = schedule["seconds"] / calls
    return schedule | {"seconds_a_call": per_call, "seconds_step": step, "share": share}


def main() -> None:
    """Prints a row for every number of trees and peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=_models.SIZES, default="treelstm")
    parser.add_argument("--trees", nargs="+", type=int, default=[1, 25, 256])
    parser.add_argument("--peers", nargs="+", choices=_PEERS, default=list(_PEERS))
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    rows, bank = Rows("scheduler"), _trees.read_sst()
    params = _models.init_params(args.model, bank.words)
    for trees in args.trees:
        (forest,) = _trees.batches(bank.trees, trees, seed=0, count=1)
        for peer in args.peers:
            if peer == "jaxrec":
                joined = _trees.joined(forest)
                calls, timed = len(joined.label), _jaxrec(args.model, params, joined)
            else:
                calls = len(forest.label)
                timed = _hand_batched(peer, args.model, params, forest)
            values = _measure(timed, calls, args.repeats)
            case = {"model": args.model, "trees": trees, "calls": calls, "peer": peer}
            rows(**case, **values, repeats=args.repeats)


if __name__ == "__main__":
    main()
