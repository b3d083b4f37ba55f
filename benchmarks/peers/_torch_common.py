"""What the two PyTorch peers share: cells on rows, the loss, and the Adagrad training step.

They run on a GPU if there is one, as the programs of JAX do, in JAX's default precision of
products.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]

from benchmarks._models import EPSILON, LEARNING_RATE, Params
from benchmarks._trees import Forest
from benchmarks.peers._protocol import Gradients, Program

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

Tensors = dict[str, Tensor]
State = tuple[Tensor, ...]


class Cell(NamedTuple):
    """A model on rows; `children` of `node` holds [left, right] of each part of the state."""

    leaf: Callable[[Tensors, Tensor], State]
    node: Callable[[Tensors, State], State]


def _lstm_leaf(params: Tensors, x: Tensor) -> State:
    i, o, u = torch.addmm(params["b_leaf"], x, params["W_leaf"]).chunk(3, 1)
    c = i.sigmoid() * u.tanh()
    return o.sigmoid() * c.tanh(), c


def _lstm_node(params: Tensors, children: State) -> State:
    hidden, cells = children
    gates, u = torch.addmm(params["b"], hidden, params["U"]).tensor_split([2 * hidden.shape[1]], 1)
    i, forget, o = gates.sigmoid().tensor_split([cells.shape[1] // 2, -cells.shape[1] // 2], 1)
    kept_left, kept_right = (forget * cells).chunk(2, 1)
    c = i * u.tanh() + kept_left + kept_right
    return o * c.tanh(), c


def _rnn_node(params: Tensors, children: State) -> State:
    return (torch.addmm(params["b"], children[0], params["W"]).tanh(),)


def _rntn_node(params: Tensors, children: State) -> State:
    (v,) = children
    tensor = params["T"]
    inner = (v @ tensor.flatten(1)).view(-1, *tensor.shape[1:])
    product = torch.bmm(v.unsqueeze(1), inner).squeeze(1)
    return ((product + torch.addmm(params["b"], v, params["W"])).tanh(),)


def _word(params: Tensors, x: Tensor) -> State:
    return (x,)


CELLS = {
    "treelstm": Cell(_lstm_leaf, _lstm_node),
    "treernn": Cell(_word, _rnn_node),
    "rntn": Cell(_word, _rntn_node),
}


def integers(values: np.ndarray) -> Tensor:
    """Indices or labels, where the parameters are."""
    return torch.from_numpy(values.astype(np.int64)).to(DEVICE)


def look_up(params: Tensors, token: Tensor) -> Tensor:
    """Word vectors; the gradient of the table is sparse."""
    return F.embedding(token, params["embed"], sparse=True)


def logits(params: Tensors, hidden: Tensor) -> Tensor:
    """Class scores of rows of hidden states."""
    return torch.addmm(params["bs"], hidden, params["Ws"])


def label_loss(params: Tensors, hidden: Tensor, label: Tensor) -> Tensor:
    """Cross entropy summed over the rows."""
    return F.cross_entropy(logits(params, hidden), label, reduction="sum")


def program(
    params: Params,
    prepare: Callable[[Forest], Any],
    loss: Callable[[Tensors, Any], Tensor],
    scores: Callable[[Tensors, Any], Tensor],
) -> Program:
    """Wraps a loss and a score function in the training step and the rest of the protocol."""
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.sparse.check_sparse_tensor_invariants.disable()  # the default, said to be without warning
    tensors = {
        name: torch.tensor(value, device=DEVICE, requires_grad=True)
        for name, value in params.items()
    }
    optimizer = torch.optim.Adagrad(tensors.values(), lr=LEARNING_RATE, eps=EPSILON)

    def train_step(batch: Any) -> float:
        optimizer.zero_grad(set_to_none=True)
        value = loss(tensors, batch)
        value.backward()
        optimizer.step()
        return value.item()

    def infer(batch: Any) -> np.ndarray:
        with torch.inference_mode():
            return scores(tensors, batch).cpu().numpy()

    def gradients(batch: Any) -> Gradients:
        optimizer.zero_grad(set_to_none=True)
        value = loss(tensors, batch)
        value.backward()
        grads = {name: tensor.grad for name, tensor in tensors.items()}
        dense = {n: g.to_dense().cpu().numpy().copy() for n, g in grads.items() if g is not None}
        return value.item(), dense

    return Program(prepare, train_step, infer, gradients)
