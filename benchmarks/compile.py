"""How long does the training step compile, and how many programs does an epoch need?

`python -m benchmarks.compile --model treelstm --batch 25`

A `first` row is one training step in a fresh program: what tracing and compiling it take. The two
`epoch` rows are whole shuffled epochs after it: the second ought to compile nothing. JAX itself
counts, so that every compilation is seen, whoever asked for it.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import jax

from benchmarks import _models, _trees
from benchmarks._harness import Rows, seconds
from benchmarks.peers import Program, build

_JAX_PEERS = ("jaxrec", "hand_jax")
_STAGES = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}


@contextmanager
def compilations() -> Iterator[dict[str, list[float]]]:
    """Collects how long each tracing, lowering and compilation takes, by stage."""
    found: defaultdict[str, list[float]] = defaultdict(list)

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        if event in _STAGES:
            found[_STAGES[event]].append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _train(program: Program, forests: list[_trees.Forest]) -> dict[str, float]:
    """Trains on `forests`; the time of it, and what was compiled meanwhile."""
    with compilations() as found:
        total = seconds(lambda: [program.train_step(program.prepare(f)) for f in forests])
    stages = {f"seconds_{stage}": sum(found[stage]) for stage in _STAGES.values()}
    return {"seconds": total, "compilations": len(found["compile"]), **stages}


def main() -> None:
    """Prints the rows of every peer that runs on JAX."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=_models.SIZES, default="treelstm")
    parser.add_argument("--batch", type=int, default=25)
    parser.add_argument("--peers", nargs="+", choices=_JAX_PEERS, default=list(_JAX_PEERS))
    parser.add_argument("--trees", type=int, help="an epoch of the first so many trees only")
    args = parser.parse_args()
    rows, bank = Rows("compile"), _trees.read_sst(limit=args.trees)
    params = _models.init_params(args.model, bank.words)
    for peer in args.peers:
        program = build(peer, args.model, params)
        case = {"model": args.model, "batch": args.batch, "peer": peer}
        first = _trees.batches(bank.trees, args.batch, seed=0, count=1)
        rows(**case, part="first", steps=1, **_train(program, first))
        for epoch in (1, 2):
            forests = _trees.batches(bank.trees, args.batch, seed=epoch)
            result = _train(program, forests)
            rows(**case, part="epoch", epoch=epoch, steps=len(forests), **result)


if __name__ == "__main__":
    main()
