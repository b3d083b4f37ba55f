"""Do all peers compute the same model? `python -m benchmarks.check_peers [peer ...]`.

Scores, losses and gradients of every peer on small trees are compared with a plain recursion in
float64: NumPy for the values, PyTorch's autograd for the gradients; then the losses of three
training steps are compared with the same steps in NumPy.
"""

import argparse
import json

import numpy as np
import torch

from benchmarks import _models, _trees
from benchmarks.peers import PEERS, build

_SMALL = {"treelstm": _models.Sizes(7, 6), "treernn": _models.Sizes(6, 6), "rntn": _models.Sizes(4, 4)}
_WORDS = 40
_Tensors = dict[str, torch.Tensor]


def _node_states(model: str, p, forest: _trees.Forest, xp) -> list:
    """Hidden states of all nodes by recursion; `xp` is NumPy or PyTorch, `p` its arrays."""
    concatenate = np.concatenate if xp is np else torch.cat
    hidden: list = [None] * len(forest.label)

    def sigmoid(x):
        return 1 / (1 + xp.exp(-x))

    def leaf(x):
        if model != "treelstm":
            return x, x
        n = len(p["b_leaf"]) // 3
        pre = x @ p["W_leaf"] + p["b_leaf"]
        c = sigmoid(pre[:n]) * xp.tanh(pre[2 * n :])
        return sigmoid(pre[n : 2 * n]) * xp.tanh(c), c

    def node(left, right):
        v = concatenate([left[0], right[0]])
        if model == "treernn":
            return xp.tanh(v @ p["W"] + p["b"]), left[1]
        if model == "rntn":
            return xp.tanh(xp.einsum("i,ijk,j->k", v, p["T"], v) + v @ p["W"] + p["b"]), left[1]
        pre, n = v @ p["U"] + p["b"], len(p["b"]) // 5
        i, fl, fr, o = (sigmoid(pre[k * n : (k + 1) * n]) for k in range(4))
        c = i * xp.tanh(pre[4 * n :]) + fl * left[1] + fr * right[1]
        return o * xp.tanh(c), c

    def visit(i: int):
        if forest.left[i] < 0:
            state = leaf(p["embed"][int(forest.token[i])])
        else:
            state = node(visit(int(forest.left[i])), visit(int(forest.right[i])))
        hidden[i] = state[0]
        return state

    for root in forest.roots:
        visit(int(root))
    return hidden


def _numpy_value(model: str, params: _models.Params, forest: _trees.Forest):
    """Scores of the roots and the loss, in NumPy float64."""
    p = {name: value.astype(np.float64) for name, value in params.items()}
    scores = np.stack(_node_states(model, p, forest, np)) @ p["Ws"] + p["bs"]
    picked = scores[np.arange(len(scores)), forest.label]
    loss = (np.log(np.exp(scores).sum(1)) - picked).sum() / len(forest.roots)
    return scores[forest.roots], loss


def _torch_loss(model: str, p: _Tensors, forest: _trees.Forest) -> torch.Tensor:
    scores = torch.stack(_node_states(model, p, forest, torch)) @ p["Ws"] + p["bs"]
    picked = scores[torch.arange(len(scores)), torch.from_numpy(forest.label).long()]
    return (torch.logsumexp(scores, 1) - picked).sum() / len(forest.roots)


def _torch_gradients(model: str, params: _models.Params, forest: _trees.Forest):
    p = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()}
    _torch_loss(model, p, forest).backward()
    return {n: t.grad.numpy() for n, t in p.items() if t.grad is not None}


def _trained_losses(model: str, params: _models.Params, forests: list[_trees.Forest]) -> list[float]:
    """The losses of Adagrad steps on `forests`, in float64."""
    p = {name: value.astype(np.float64) for name, value in params.items()}
    total = {name: np.zeros_like(value) for name, value in p.items()}
    losses = []
    for forest in forests:
        losses.append(_numpy_value(model, p, forest)[1])
        for name, grad in _torch_gradients(model, p, forest).items():
            total[name] += grad**2
            p[name] -= _models.LEARNING_RATE * grad / (np.sqrt(total[name]) + _models.EPSILON)
    return losses


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    """Largest difference, relative to the largest expected entry."""
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30))


def _check(peer: str, model: str) -> dict[str, float]:
    """The largest relative errors of one peer on one model."""
    params = _models.init_params(model, _WORDS, _SMALL[model], seed=1)
    trees = [_trees.shaped_tree(s, n, _WORDS, seed=n) for n, s in
             enumerate(["balanced", "moderate", "linear", "moderate", "balanced"] * 2, start=1)]
    forests = [_trees.concatenate(trees[k::3]) for k in range(3)]
    program = build(peer, model, params)
    scores, loss = _numpy_value(model, params, forests[0])
    got_loss, grads = program.gradients(program.prepare(forests[0]))
    expected = _torch_gradients(model, params, forests[0])
    assert grads.keys() == expected.keys(), (peer, model, grads.keys(), expected.keys())
    program = build(peer, model, params)
    inferred = program.infer(program.prepare(forests[0]))
    steps = [program.train_step(program.prepare(f)) for f in forests * 2]
    return {
        "scores": _error(inferred, scores),
        "loss": _error(np.array(got_loss), np.array(loss)),
        "gradients": max(_error(grads[name], expected[name]) for name in expected),
        "training": _error(np.array(steps), np.array(_trained_losses(model, params, forests * 2))),
    }


def main() -> None:
    """Checks the peers named on the command line, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peers", nargs="*", default=list(PEERS))
    for peer in parser.parse_args().peers:
        for model in _models.SIZES:
            errors = _check(peer, model)
            ok = all(error < 2e-5 for error in errors.values())
            print(json.dumps({"peer": peer, "model": model, "ok": ok, **errors}), flush=True)
            if not ok:
                raise SystemExit(f"{peer} does not compute {model}")


if __name__ == "__main__":
    main()
