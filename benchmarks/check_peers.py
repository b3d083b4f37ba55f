"""Do all peers compute the same model? `python -m benchmarks.check_peers [peer ...]`.

Scores, loss, gradients and the losses of six training steps of every peer, on small trees, are
compared with a plain recursion in float64. Prints the largest relative errors, a line a model.
"""

import argparse
import json

import numpy as np

from benchmarks import _models, _reference, _trees
from benchmarks.peers import PEERS, build

_SIZES = {
    "treelstm": _models.Sizes(7, 6),
    "treernn": _models.Sizes(6, 6),
    "rntn": _models.Sizes(4, 4),
}
_WORDS = 40
_TOLERANCE = 2e-5


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected entry."""
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30))


def _forests() -> list[_trees.Forest]:
    """Three small batches of trees with 1 to 10 leaves."""
    shapes = ["balanced", "moderate", "linear", "moderate", "balanced"] * 2
    trees = [_trees.shaped_tree(s, n, _WORDS, seed=n) for n, s in enumerate(shapes, start=1)]
    return [_trees.concatenate(trees[k::3]) for k in range(3)]


def check(peer: str, model: str) -> dict[str, float]:
    """The largest relative errors of one peer on one model."""
    params = _models.init_params(model, _WORDS, _SIZES[model], seed=1)
    first, *_ = forests = _forests()
    scores, loss = _reference.scores_and_loss(model, params, first)
    expected = _reference.gradients(model, params, first)
    program = build(peer, model, params)
    got_loss, grads = program.gradients(program.prepare(first))
    if grads.keys() != expected.keys():
        raise ValueError(f"{peer} gives gradients of {sorted(grads)}, not {sorted(expected)}")
    program = build(peer, model, params)
    got_scores = program.infer(program.prepare(first))
    steps = [program.train_step(program.prepare(forest)) for forest in forests * 2]
    losses = _reference.training_losses(model, params, forests * 2)
    return {
        "scores": _error(got_scores, scores),
        "loss": _error(np.array(got_loss), np.array(loss)),
        "gradients": max(_error(grads[name], expected[name]) for name in expected),
        "training": _error(np.array(steps), np.array(losses)),
    }


def main() -> None:
    """Checks the peers named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", default=list(PEERS))
    for peer in parser.parse_args().peers:
        for model in _models.SIZES:
            errors = check(peer, model)
            ok = max(errors.values()) < _TOLERANCE
            print(json.dumps({"peer": peer, "model": model, "ok": ok, **errors}), flush=True)
            if not ok:
                raise SystemExit(f"{peer} does not compute {model}")


if __name__ == "__main__":
    main()
