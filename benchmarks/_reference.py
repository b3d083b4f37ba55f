"""What the peers must compute: plain recursion over one node at a time, in float64.

Values come from NumPy, gradients from PyTorch's autograd over the same equations.
"""

from types import ModuleType
from typing import Any

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

from benchmarks._models import EPSILON, LEARNING_RATE, Params
from benchmarks._trees import Forest

_State = tuple[Any, Any]


def _sigmoid(x: Any, xp: ModuleType) -> Any:
    return 1 / (1 + xp.exp(-x))


def _leaf(model: str, p: dict[str, Any], x: Any, xp: ModuleType) -> _State:
    if model != "treelstm":
        return x, None
    n = len(p["b_leaf"]) // 3
    pre = x @ p["W_leaf"] + p["b_leaf"]
    c = _sigmoid(pre[:n], xp) * xp.tanh(pre[2 * n :])
    return _sigmoid(pre[n : 2 * n], xp) * xp.tanh(c), c


def _node(model: str, p: dict[str, Any], left: _State, right: _State, xp: ModuleType) -> _State:
    v = (np.concatenate if xp is np else torch.cat)([left[0], right[0]])
    if model == "treernn":
        return xp.tanh(v @ p["W"] + p["b"]), None
    if model == "rntn":
        return xp.tanh(xp.einsum("i,ijk,j->k", v, p["T"], v) + v @ p["W"] + p["b"]), None
    pre, n = v @ p["U"] + p["b"], len(p["b"]) // 5
    i, fl, fr, o = (_sigmoid(pre[k * n : (k + 1) * n], xp) for k in range(4))
    c = i * xp.tanh(pre[4 * n :]) + fl * left[1] + fr * right[1]
    return o * xp.tanh(c), c


def _hidden(model: str, p: dict[str, Any], forest: Forest, xp: ModuleType) -> list[Any]:
    """Hidden states of all nodes; `xp` is NumPy or PyTorch, and `p` holds its arrays."""
    hidden: list[Any] = [None] * len(forest.label)

    def visit(i: int) -> _State:
        if forest.left[i] < 0:
            state = _leaf(model, p, p["embed"][int(forest.token[i])], xp)
        else:
            left, right = visit(int(forest.left[i])), visit(int(forest.right[i]))
            state = _node(model, p, left, right, xp)
        hidden[i] = state[0]
        return state

    for root in forest.roots:
        visit(int(root))
    return hidden


def scores_and_loss(model: str, params: Params, forest: Forest) -> tuple[np.ndarray, float]:
    """Class scores of the roots, shape [trees, 5], and the loss."""
    p = {name: value.astype(np.float64) for name, value in params.items()}
    scores = np.stack(_hidden(model, p, forest, np)) @ p["Ws"] + p["bs"]
    picked = scores[np.arange(len(scores)), forest.label]
    loss = (np.log(np.exp(scores).sum(1)) - picked).sum() / len(forest.roots)
    return scores[forest.roots], float(loss)


def gradients(model: str, params: Params, forest: Forest) -> Params:
    """Gradients of the loss, in the shapes of `params`."""
    p = {n: torch.tensor(v, dtype=torch.float64, requires_grad=True) for n, v in params.items()}
    scores = torch.stack(_hidden(model, p, forest, torch)) @ p["Ws"] + p["bs"]
    picked = scores[torch.arange(len(scores)), torch.from_numpy(forest.label).long()]
    ((torch.logsumexp(scores, 1) - picked).sum() / len(forest.roots)).backward()
    return {n: t.grad.numpy() for n, t in p.items() if t.grad is not None}


def training_losses(model: str, params: Params, forests: list[Forest]) -> list[float]:
    """The losses of one Adagrad step on each of `forests`."""
    p = {name: value.astype(np.float64) for name, value in params.items()}
    totals = {name: np.zeros_like(value) for name, value in p.items()}
    losses = []
    for forest in forests:
        losses.append(scores_and_loss(model, p, forest)[1])
        for name, grad in gradients(model, p, forest).items():
            totals[name] += grad**2
            p[name] -= LEARNING_RATE * grad / (np.sqrt(totals[name]) + EPSILON)
    return losses
