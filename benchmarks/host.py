"""Is a call faster when its waves are launched from the host, by how many workers, by which policy?

`python -m benchmarks.host --forest sst --batch 1 25 256 --hidden 150 600 1024 --mode infer train`
`python -m benchmarks.host --forest linear --batch 64 --hidden 32 64 150 600 1024`

A forest of trees goes through the recursion of the Tree-LSTM under `jax.vmap`: under `jax.jit` on
executor "graph", and eagerly on executor "host" with several numbers of workers and policies, in
turn in one process. A row gives the median over the repeats of the time of a call; `ratio_to_graph`
is above 1 where the executor is faster than "graph", `ratio_to_one` where it is faster than one
worker with the same policy, `ratio_to_adaptive` where a fixed policy is faster than the adaptive
one. `sst` needs the treebank; `linear` are trees that are chains, and `balanced` ones are as wide
as can be.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrec as jr
from benchmarks import _models, _trees
from benchmarks._harness import Rows, interleave, spread, warm_seconds
from benchmarks.peers import jaxrec_peer

Call = Callable[[], Any]

_LEAVES, _WORDS = 64, 1000


def forest_of(kind: str, trees: int) -> tuple[_trees.Forest, int]:
    """Trees, and the number of different words in them."""
    if kind == "sst":
        bank = _trees.read_sst()
        return _trees.batches(bank.trees, trees, seed=0, count=1)[0], bank.words
    shaped = [_trees.shaped_tree(kind, _LEAVES, _WORDS, seed=k) for k in range(trees)]
    return _trees.concatenate(shaped), _WORDS


def call_of(
    mode: str, forest: _trees.Forest, words: int, sizes: _models.Sizes
) -> tuple[Call, Call]:
    """A call of the recursion on all trees, or its gradient: compiled, and eager."""
    drawn = _models.init_params("treelstm", words, sizes)
    params = {name: jnp.asarray(value) for name, value in drawn.items()}
    trees = jaxrec_peer.Trees(*map(jnp.asarray, forest))
    recursion = jaxrec_peer.recursion("treelstm")

    def run(params: Any) -> Any:
        return jax.vmap(recursion, (None, None, 0))(params, trees, trees.roots)

    def loss(params: Any) -> Any:
        return sum(jnp.sum(x) for x in jax.tree.leaves(run(params)))

    eager = run if mode == "infer" else jax.grad(loss)
    compiled = jax.jit(eager)

    def ready(of: Callable[[Any], Any]) -> Call:
        return lambda: jax.block_until_ready(of(params))

    return ready(compiled), ready(eager)


def compare(
    compiled: Call, eager: Call, workers: list[int], policies: list[str], repeats: int
) -> dict[tuple[str, int, str], dict[str, float]]:
    """Times of every executor, number of workers and policy."""
    cases: dict[tuple[str, int, str], Call] = {("graph", 0, ""): compiled}
    for count in workers:
        for policy in policies:
            cases["host", count, policy] = _on_host(eager, count, policy)
    for run in cases.values():
        run()
    actions = {str(case): lambda run=run: [warm_seconds(run)] for case, run in cases.items()}
    measured = interleave(actions, repeats)
    rows = {case: spread(measured[str(case)][:, 0]) for case in cases}
    for (name, count, policy), row in rows.items():
        row["ratio_to_graph"] = rows["graph", 0, ""]["seconds"] / row["seconds"]
        one = rows.get((name, 1, policy))
        if one is not None:
            row["ratio_to_one"] = one["seconds"] / row["seconds"]
        adaptive = rows.get((name, count, "adaptive"))
        if adaptive is not None:
            row["ratio_to_adaptive"] = adaptive["seconds"] / row["seconds"]
    return rows


def _on_host(call: Call, workers: int, policy: str) -> Call:
    def run() -> Any:
        with jr.executor("host", workers=workers, policy=policy):
            return call()

    return run


def main() -> None:
    """Prints a row for every forest, batch size, hidden size, mode and way to run."""
    args = _arguments()
    rows = Rows("host")
    for kind in args.forest:
        for batch in args.batch:
            forest, words = forest_of(kind, batch)
            for hidden in args.hidden:
                for mode in args.mode:
                    sizes = _models.Sizes(args.embedding, hidden)
                    compiled, eager = call_of(mode, forest, words, sizes)
                    case = {"forest": kind, "batch": batch, **sizes._asdict(), "mode": mode}
                    found = compare(compiled, eager, args.workers, args.policy, args.repeats)
                    for (executor, workers, policy), row in found.items():
                        how = {"executor": executor, "workers": workers, "policy": policy}
                        rows(**case, **how, **row, nodes=int(np.size(forest.label)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--forest", nargs="+", default=["linear"])
    parser.add_argument("--batch", nargs="+", type=int, default=[64])
    parser.add_argument("--hidden", nargs="+", type=int, default=[32, 64, 150, 600, 1024])
    parser.add_argument("--embedding", type=int, default=300, help="size of the vectors of words")
    parser.add_argument("--mode", nargs="+", choices=["infer", "train"], default=["infer"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--policy", nargs="+", default=["adaptive", "batch", "split", "alone"])
    parser.add_argument("--repeats", type=int, default=7, help="at least 5 for a figure to quote")
    return parser.parse_args()


if __name__ == "__main__":
    main()
