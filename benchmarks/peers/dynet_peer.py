"""DyNet with automatic batching (Neubig, Goldberg and Dyer 2017): one expression graph a batch.

DyNet runs on one thread. Its graph is built for every batch, so that there is nothing to prepare;
word vectors are lookup parameters, which DyNet updates sparsely.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import dynet_config  # pyright: ignore[reportMissingImports]

dynet_config.set(  # which is read when dynet is imported
    autobatch=1, mem=1024, random_seed=1
)

import dynet as dy  # noqa: E402  # pyright: ignore[reportMissingImports]
import numpy as np  # noqa: E402

from benchmarks._models import LEARNING_RATE, Params  # noqa: E402
from benchmarks._trees import Forest  # noqa: E402
from benchmarks.peers._protocol import Gradients, Program  # noqa: E402

Expression = Any
Expressions = dict[str, Any]
State = tuple[Expression, ...]


class _Cell(NamedTuple):
    leaf: Callable[[Expressions, Expression], State]
    node: Callable[[Expressions, State, State], State]


def _lstm_leaf(params: Expressions, x: Expression) -> State:
    pre = dy.affine_transform([params["b_leaf"], params["W_leaf"], x])
    size = pre.dim()[0][0] // 3
    i, o = (dy.logistic(dy.pick_range(pre, k * size, (k + 1) * size)) for k in (0, 1))
    c = dy.cmult(i, dy.tanh(dy.pick_range(pre, 2 * size, 3 * size)))
    return dy.cmult(o, dy.tanh(c)), c


def _lstm_node(params: Expressions, left: State, right: State) -> State:
    pre = dy.affine_transform([params["b"], params["U"], dy.concatenate([left[0], right[0]])])
    size = pre.dim()[0][0] // 5
    gates = dy.logistic(dy.pick_range(pre, 0, 4 * size))
    i, fl, fr, o = (dy.pick_range(gates, k * size, (k + 1) * size) for k in range(4))
    u = dy.tanh(dy.pick_range(pre, 4 * size, 5 * size))
    c = dy.cmult(i, u) + dy.cmult(fl, left[1]) + dy.cmult(fr, right[1])
    return dy.cmult(o, dy.tanh(c)), c


def _rnn_node(params: Expressions, left: State, right: State) -> State:
    children = dy.concatenate([left[0], right[0]])
    return (dy.tanh(dy.affine_transform([params["b"], params["W"], children])),)


def _rntn_node(params: Expressions, left: State, right: State) -> State:
    v = dy.concatenate([left[0], right[0]])
    width = v.dim()[0][0]
    inner = dy.reshape(params["T"] * v, (width // 2, width))
    return (dy.tanh(inner * v + dy.affine_transform([params["b"], params["W"], v])),)


def _word(params: Expressions, x: Expression) -> State:
    return (x,)


_CELLS = {
    "treelstm": _Cell(_lstm_leaf, _lstm_node),
    "treernn": _Cell(_word, _rnn_node),
    "rntn": _Cell(_word, _rntn_node),
}


def _to_dynet(value: np.ndarray) -> np.ndarray:
    """DyNet keeps weights as [outputs, inputs]; the tensor of an RNTN as [(k, j), i]."""
    if value.ndim == 3:
        return value.transpose(1, 2, 0).reshape(-1, value.shape[0])
    return value.T


def _from_dynet(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if len(shape) == 3:
        return value.reshape(shape[1], shape[2], shape[0]).transpose(2, 0, 1)
    return value.T


def _states(cell: _Cell, params: Expressions, table: Any, forest: Forest) -> list[Expression]:
    """The hidden state of every node; children come first in a forest, so a loop will do."""
    states: list[State] = []
    columns = (column.tolist() for column in (forest.token, forest.left, forest.right))
    for token, left, right in zip(*columns, strict=True):
        if left < 0:
            states.append(cell.leaf(params, table[token]))
        else:
            states.append(cell.node(params, states[left], states[right]))
    return [state[0] for state in states]


def _scores(params: Expressions, hidden: Expression) -> Expression:
    return dy.affine_transform([params["bs"], params["Ws"], hidden])


class _Weights(NamedTuple):
    """The parameters, with their owner: a trainer keeps only a C++ pointer to the collection."""

    collection: Any
    table: Any
    dense: Expressions


def _weights(params: Params) -> _Weights:
    collection = dy.ParameterCollection()
    dense = {
        name: collection.parameters_from_numpy(_to_dynet(value))
        for name, value in params.items()
        if name != "embed"
    }
    return _Weights(collection, collection.lookup_parameters_from_numpy(params["embed"]), dense)


def _trainer(weights: _Weights) -> Any:
    """Adagrad as the other peers do it: sparse for word vectors, and no clipping of gradients."""
    trainer = dy.AdagradTrainer(weights.collection, learning_rate=LEARNING_RATE)
    trainer.set_clip_threshold(0.0)
    trainer.set_sparse_updates(True)
    return trainer


def build(model: str, params: Params) -> Program:
    """Builds `model` as expressions; the weights live in a DyNet parameter collection."""
    cell, weights = _CELLS[model], _weights(params)
    trainer = _trainer(weights)

    def hidden(forest: Forest) -> list[Expression]:
        dy.renew_cg()
        return _states(cell, weights.dense, weights.table, forest)

    def back_propagated_loss(forest: Forest) -> float:
        pairs = zip(hidden(forest), forest.label.tolist(), strict=True)
        losses = [dy.pickneglogsoftmax(_scores(weights.dense, h), label) for h, label in pairs]
        loss = dy.esum(losses) * (1 / len(forest.roots))
        value = loss.value()
        loss.backward()
        return value

    def train_step(forest: Forest) -> float:
        value = back_propagated_loss(forest)
        trainer.update()
        return value

    def infer(forest: Forest) -> np.ndarray:
        states = hidden(forest)
        scores = [_scores(weights.dense, states[root]) for root in forest.roots.tolist()]
        return np.atleast_2d(dy.concatenate_to_batch(scores).npvalue().T)

    def gradients(forest: Forest) -> Gradients:
        value, pairs = back_propagated_loss(forest), weights.dense.items()
        grads = {n: _from_dynet(p.grad_as_array(), params[n].shape) for n, p in pairs}
        return value, grads | {"embed": weights.table.grad_as_array()}

    return Program(lambda forest: forest, train_step, infer, gradients)
