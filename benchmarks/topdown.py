"""How much faster is a recursion that makes its structure than the loop it would have to become?

    python -m benchmarks.topdown [--hidden 150] [--batch 1 64] [--mode infer train]

A top-down Tree-LSTM (Zhang et al. 2016) generates trees from vectors, and is
trained on the trees that it generates. Rows compare jaxrec with `loop`, `lax.while_loop` with an
explicit stack, one node at a time and one tree after another, and `vmap`, `jax.vmap` of that loop.
Peers give the same trees, losses and gradients before they are timed. After Jeong et al. (EuroSys
2018), table 3.
"""

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from benchmarks import _harness, _top_down
from benchmarks import _top_down_loop as loop
from jaxrec import models
from jaxrec.models._top_down import node_losses

MAX_DEPTH = 10
Runs = dict[str, Callable[[], Any]]


def main() -> None:
    options = _options()
    # Words are chosen by the largest of scores: peers that round in other ways grow other trees.
    jax.config.update("jax_default_matmul_precision", "highest")
    row = _harness.Rows("topdown")
    for hidden, batch in itertools.product(options.hidden, options.batch):
        model = _top_down.make_model(hidden)
        tasks = _tasks(model, batch)
        for mode in options.mode:
            runs = _infer(model, tasks) if mode == "infer" else _train(model, tasks)
            chosen = {name: run for name, run in runs.items() if name in options.peers}
            facts = {"hidden": hidden, "batch": batch, "mode": mode, **_facts(tasks)}
            _report(row, chosen, options.repeats, **facts)


def _tasks(model: models.TopDownTreeLSTM, batch: int) -> list[_top_down.Task]:
    """One task of many trees, or eight of one tree each, of 50 to 400 nodes."""
    everything = _top_down.vectors(64, seed=1)
    if batch > 1:
        return [_top_down.make_task(model, everything[:batch], MAX_DEPTH)]
    singles = [_top_down.make_task(model, everything[k : k + 1], MAX_DEPTH) for k in range(24)]
    return [task for task in singles if 50 <= task.sizes[0] <= 400][:8]


def _facts(tasks: list[_top_down.Task]) -> dict[str, Any]:
    sizes = np.concatenate([task.sizes for task in tasks])
    return {"trees": len(sizes), "nodes": int(sizes.sum()), "largest": int(sizes.max())}


def _room(tasks: list[_top_down.Task]) -> tuple[int, int]:
    """Nodes to make room for: of all trees of a task, and of one tree."""
    return max(int(t.sizes.sum()) for t in tasks), max(int(t.sizes.max()) for t in tasks)


def _infer(model: models.TopDownTreeLSTM, tasks: list[_top_down.Task]) -> Runs:
    graph, state = nnx.split(model)
    everything, largest = _room(tasks)

    @jax.jit
    def recursive(state: Any, condition: jax.Array) -> Any:
        return nnx.merge(graph, state).generate(condition, MAX_DEPTH, max_nodes=everything)

    def one(state: Any, vector: jax.Array) -> loop.Nodes:
        merged = nnx.merge(graph, state)
        first = jnp.tanh(merged.first(vector))
        return loop.generate(merged.weights(), first, MAX_DEPTH, largest)

    looped = jax.jit(lambda state, vectors: lax.map(lambda v: one(state, v), vectors))
    mapped = jax.jit(lambda state, vectors: jax.vmap(lambda v: one(state, v))(vectors))
    for task in tasks:
        _check_trees(task, recursive(state, task.condition), looped(state, task.condition))
    functions = {"jaxrec": recursive, "loop": looped, "vmap": mapped}
    return {name: _over(f, state, [t.condition for t in tasks]) for name, f in functions.items()}


def _check_trees(task: _top_down.Task, made: models.GeneratedTrees, looped: loop.Nodes) -> None:
    valid = np.asarray(made.valid)
    for k, size in enumerate(task.sizes):
        mine = valid & (np.asarray(made.tree) == k)
        for field in ("word", "add"):
            theirs = np.asarray(getattr(looped, field))[k, :size]
            np.testing.assert_array_equal(np.asarray(getattr(made, field))[mine], theirs)
        assert int(looped.size[k]) == size


def _train(model: models.TopDownTreeLSTM, tasks: list[_top_down.Task]) -> Runs:
    """Value and gradient of the loss; the loop shares everything but the states."""
    graph, state = nnx.split(model)

    def loss(state: Any, forest: Any, condition: jax.Array) -> jax.Array:
        return nnx.merge(graph, state).loss(forest, condition)

    def looped_loss(state: Any, forest: Any, condition: jax.Array, given: loop.Given) -> jax.Array:
        merged = nnx.merge(graph, state)
        weights, nodes = merged.weights(), jnp.arange(forest.num_nodes)
        states = loop.read(weights, given, jnp.tanh(merged.first(condition)))
        return node_losses(weights, forest, states, nodes, given.edge).sum() / forest.num_trees

    recursive = jax.jit(jax.value_and_grad(loss))
    looped = jax.jit(jax.value_and_grad(looped_loss))
    inputs = [(jax.tree.map(jnp.asarray, t.forest), t.condition) for t in tasks]
    with_origins = [(*i, _top_down.given(t.forest)) for i, t in zip(inputs, tasks, strict=True)]
    for mine, theirs in zip(inputs, with_origins, strict=True):
        _check_gradients(recursive(state, *mine), looped(state, *theirs))
    return {
        "jaxrec": lambda: [recursive(state, *i) for i in inputs],
        "loop": lambda: [looped(state, *i) for i in with_origins],
    }


def _check_gradients(mine: Any, theirs: Any) -> None:
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-4)
    for a, b in zip(jax.tree.leaves(mine[1]), jax.tree.leaves(theirs[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-2, atol=1e-3 * float(jnp.max(jnp.abs(b))))


def _over(f: Callable[..., Any], state: Any, inputs: list[jax.Array]) -> Callable[[], Any]:
    return lambda: [f(state, x) for x in inputs]


def _report(row: _harness.Rows, runs: Runs, repeats: int, **facts: Any) -> None:
    for run in runs.values():
        jax.block_until_ready(run())

    def timed(run: Callable[[], Any]) -> Callable[[], list[float]]:
        return lambda: [_harness.warm_seconds(lambda: jax.block_until_ready(run()))]

    measured = _harness.interleave({name: timed(run) for name, run in runs.items()}, repeats)
    base = float(np.median(measured["jaxrec"])) if "jaxrec" in measured else None
    for name, seconds in measured.items():
        spread = _harness.spread(seconds[:, 0])
        ratio = round(spread["seconds"] / base, 2) if base else None
        rate = facts["trees"] / spread["seconds"]
        row(peer=name, **facts, **spread, trees_per_second=round(rate, 1), times_jaxrec=ratio)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", nargs="+", type=int, default=[150], help="size of the states")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--mode", nargs="+", choices=("infer", "train"), default=["infer", "train"])
    parser.add_argument("--peers", nargs="+", default=["jaxrec", "loop", "vmap"])
    parser.add_argument("--repeats", type=int, default=7, help="at least 5 for a figure to quote")
    return parser.parse_args()


if __name__ == "__main__":
    main()
