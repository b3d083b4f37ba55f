"""How fast is a batch of the treebank, for training and for inference, against other programs?

`python -m benchmarks.sst --model treelstm --batch 1 10 25 256 --mode train infer [--hidden 1024]`

All peers run the same batches, in turn, in one process. A row gives the median over the repeats of
the mean time of a batch: `seconds` with the batch prepared beforehand, `seconds_prepare` for
preparing it (ordering, padding), and `seconds_total` for both. Compilation is outside the timing.
`ratio_to_jaxrec` is above 1 where jaxrec is faster.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from benchmarks import _models, _trees
from benchmarks._harness import Rows, interleave, spread
from benchmarks.peers import PEERS, Program, build

_ACTIONS = {"train": "train_step", "infer": "infer"}


def time_batches(
    program: Program, mode: str, forests: Sequence[_trees.Forest]
) -> tuple[float, float]:
    """Seconds a batch, without and with preparing it; one batch before goes untimed."""
    step = getattr(program, _ACTIONS[mode])
    step(program.prepare(forests[-1]))
    prepare = run = 0.0
    for forest in forests:
        start = time.perf_counter()
        prepared = program.prepare(forest)
        middle = time.perf_counter()
        step(prepared)
        prepare += middle - start
        run += time.perf_counter() - middle
    return run / len(forests), prepare / len(forests)


def compare(
    model: str,
    mode: str,
    peers: Sequence[str],
    forests: Sequence[_trees.Forest],
    words: int,
    repeats: int,
    sizes: _models.Sizes,
) -> dict[str, dict[str, float]]:
    """Times of every peer on `forests`, and their ratios to jaxrec where it takes part."""
    params = _models.init_params(model, words, sizes)
    programs = {peer: build(peer, model, params) for peer in peers}
    for program in programs.values():
        time_batches(program, mode, forests)
    actions = {
        peer: lambda program=program: time_batches(program, mode, forests)
        for peer, program in programs.items()
    }
    measured = interleave(actions, repeats)
    rows = {peer: _row(values, len(forests[0].roots)) for peer, values in measured.items()}
    for row in rows.values():
        if "jaxrec" in rows:
            for name in ("seconds", "seconds_total"):
                row[name.replace("seconds", "ratio_to_jaxrec")] = row[name] / rows["jaxrec"][name]
    return rows


def _row(values: np.ndarray, trees: int) -> dict[str, float]:
    """The figures of one peer from [repeats, (run, prepare)]."""
    run = spread(values[:, 0])
    total = float(np.median(values.sum(1)))
    return run | {
        "seconds_prepare": float(np.median(values[:, 1])),
        "seconds_total": total,
        "trees_per_s": trees / run["seconds"],
        "trees_per_s_total": trees / total,
    }


def main() -> None:
    """Prints a row for every model, batch size, mode and peer asked for."""
    args = _arguments()
    rows = Rows("sst")
    bank = _trees.read_sst()
    for size in args.batch:
        count = max(args.batches, 50 // size)
        forests = _trees.batches(bank.trees, size, seed=0, count=count)
        for mode in args.mode:
            for model in args.model:
                sizes = _models.sizes_of(model, args.hidden)
                result = compare(model, mode, args.peers, forests, bank.words, args.repeats, sizes)
                case = {"model": model, "hidden": sizes.hidden, "batch": size, "mode": mode}
                for peer, values in result.items():
                    repeated = {"repeats": args.repeats, "batches": len(forests)}
                    rows(**case, peer=peer, **values, **repeated)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", nargs="+", choices=_models.SIZES, default=["treelstm"])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 10, 25, 256])
    parser.add_argument("--mode", nargs="+", choices=_ACTIONS, default=list(_ACTIONS))
    parser.add_argument("--hidden", type=int, help="other than the model has")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--repeats", type=int, default=7, help="at least 5 for a figure to quote")
    parser.add_argument("--batches", type=int, default=5, help="different batches a repeat")
    return parser.parse_args()


if __name__ == "__main__":
    main()
