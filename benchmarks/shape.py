"""How does the cost depend on the length of a sentence, and on the balance of its tree?

`python -m benchmarks.shape` (Jeong et al. 2018: figure 11, and table 1)

`length` rows: batches of treebank sentences with as many words as `words` says. `balance` rows:
made-up trees of equal size, `balanced`, `moderate` (random splits) or `linear` (no parallelism
within a tree). Columns are those of `benchmarks.sst`.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import _models, _trees
from benchmarks._harness import Rows
from benchmarks.peers import PEERS
from benchmarks.sst import compare

_SHAPES = ("balanced", "moderate", "linear")


class Case(NamedTuple):
    """What the row says of a case, and its batches."""

    labels: dict[str, Any]
    forests: list[_trees.Forest]


def _lengths(
    bank: _trees.Treebank, lengths: Sequence[int], batch: int, count: int
) -> Iterator[Case]:
    """Batches of the sentences whose length is nearest to each of `lengths`."""
    for words in lengths:
        distance = np.array([abs((len(tree.label) + 1) // 2 - words) for tree in bank.trees])
        nearest = np.argsort(distance, kind="stable")[: batch * count]
        forests = _trees.batches([bank.trees[k] for k in nearest], batch, seed=0)
        yield Case({"question": "length", "words": words, "batch": batch}, forests)


def _balances(words: int, leaves: int, batches: Sequence[int], count: int) -> Iterator[Case]:
    """Batches of made-up trees with `leaves` leaves; `words` is the size of the vocabulary."""
    for size in batches:
        for shape in _SHAPES:
            numbers = range(size * count)
            trees = [_trees.shaped_tree(shape, leaves, words, seed=number) for number in numbers]
            labels = {"question": "balance", "shape": shape, "words": leaves, "batch": size}
            yield Case(labels, _trees.batches(trees, size, seed=0))


def main() -> None:
    """Prints a row for every case, mode and peer."""
    args = _arguments()
    rows, bank = Rows("shape"), _trees.read_sst()
    cases = [
        *_lengths(bank, args.lengths, args.length_batch, args.batches),
        *_balances(bank.words, args.leaves, args.batch, args.batches),
    ]
    for case in cases:
        for mode in args.mode:
            forests, sizes = case.forests, _models.SIZES[args.model]
            result = compare(args.model, mode, args.peers, forests, bank.words, args.repeats, sizes)
            for peer, values in result.items():
                repeated = {"repeats": args.repeats, "batches": len(forests)}
                rows(model=args.model, **case.labels, mode=mode, peer=peer, **values, **repeated)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=_models.SIZES, default="treelstm")
    parser.add_argument("--mode", nargs="+", choices=["train", "infer"], default=["train", "infer"])
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--lengths", nargs="*", type=int, default=[5, 10, 20, 30, 40])
    parser.add_argument("--length-batch", type=int, default=1)
    parser.add_argument("--batch", nargs="*", type=int, default=[1, 10, 25], help="for balance")
    parser.add_argument("--leaves", type=int, default=32, help="for balance: words of a tree")
    parser.add_argument("--repeats", type=int, default=5, help="at least 5 for a figure to quote")
    parser.add_argument("--batches", type=int, default=5, help="different batches a repeat")
    return parser.parse_args()


if __name__ == "__main__":
    main()
