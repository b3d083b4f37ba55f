"""Does executor "host" ever give another result, stop, or keep memory?

`python -m benchmarks.soak --runs 1000`

One forest of about 10,000 calls is run again and again with the number of workers, the policy and
the numbers in the leaves varied. Every result is compared with that of executor "graph". A row says
how many differed and how the resident memory of the process grew after the first tenth.
"""

import argparse
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxrec as jr
from benchmarks import _trees
from benchmarks._harness import Rows

_TREES, _LEAVES, _HIDDEN = 20, 250, 8


def main() -> None:
    """Prints one row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    Rows("soak")(**soak(args.runs, args.seed))


def soak(runs: int, seed: int) -> dict[str, int | float]:
    """Runs a forest many times: how many calls, mismatches, and bytes more."""
    rng = np.random.default_rng(seed)
    trees = [_trees.shaped_tree("moderate", _LEAVES, 50, seed=k) for k in range(_TREES)]
    forest = _trees.concatenate(trees)
    left, right, token = (jnp.asarray(x) for x in (forest.left, forest.right, forest.token))

    @jr.rec_fn
    def encode(embed: Any, kernel: Any, i: Any) -> Any:
        def leaf() -> Any:
            return embed[token[i]]

        def node() -> Any:
            children = jnp.concatenate(
                [encode(embed, kernel, left[i]), encode(embed, kernel, right[i])]
            )
            return jnp.tanh(children @ kernel)

        return jr.cond(left[i] < 0, leaf, node)

    def run(embed: Any, kernel: Any) -> Any:
        return jax.vmap(encode, (None, None, 0))(embed, kernel, jnp.asarray(forest.roots))

    kernel = jnp.asarray(0.3 * rng.normal(size=(2 * _HIDDEN, _HIDDEN)), jnp.float32)
    mismatches, memory = 0, 0
    for number in range(runs):
        embed = jnp.asarray(rng.normal(size=(50, _HIDDEN)), jnp.float32)
        want = run(embed, kernel)
        workers = int(rng.integers(1, 5))
        policy = str(rng.choice(["adaptive", "batch", "split"]))
        with jr.executor("host", workers=workers, policy=policy):
            got = run(embed, kernel)
        mismatches += not np.allclose(got, want, rtol=1e-5, atol=1e-5)
        if number == runs // 10:
            memory = _resident()
    grown = _resident() - memory
    return {"runs": runs, "calls": len(left), "mismatches": mismatches, "bytes_grown": grown}


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
