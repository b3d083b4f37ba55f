"""JAX batched by hand: what one writes for these models alone, with neither recursion nor jaxrec.

One program a shape: leaves at once, then a loop over chunks of ready nodes (`_hand_jax_order`). The
gradient is written out too: the reverse loop keeps the pre-activation cotangents, and the weight
gradients are one matmul after it. Every row is read by one parent, so that cotangents are gathered,
not scattered. Word vectors are updated by row.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from benchmarks._models import Params
from benchmarks._trees import Forest
from benchmarks.peers._hand_jax_cells import CELLS, Cell, State
from benchmarks.peers._hand_jax_order import Plan, chunk_width, plan
from benchmarks.peers._jax_common import Arrays, Step, Weights, adagrad, full_table, word_rows
from benchmarks.peers._protocol import Gradients, Program


class _Tapes(NamedTuple):
    """States of all rows, [rows, hidden] each; of inner rows, what is kept and what was read."""

    states: State
    kept: Array
    hidden: Array


def _rows(array: Array, index: Array) -> Array:
    return array.at[index].get(mode="promise_in_bounds")


def _read_pairs(states: State, index: Array) -> State:
    """The rows of [left, right], side by side."""
    return tuple(_rows(s, index).reshape(index.shape[0] // 2, -1) for s in states)


def _write(tape: Array, rows: Array, start: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(tape, rows, start, 0)


def _forward(cell: Cell, params: Arrays, batch: Plan, x: Array) -> tuple[_Tapes, Array]:
    """States of all rows, and what the leaves keep."""
    leaf_state, leaf_kept = cell.leaf(params, x)
    leaves, (capacity, pair) = len(x), batch.children.shape
    inner, size = capacity * pair // 2, leaf_state[0].shape[1]
    states = tuple(jnp.concatenate([s, jnp.zeros((inner, size))]) for s in leaf_state)
    kept, hidden = jnp.zeros((inner, cell.gates * size)), jnp.zeros((inner, 2 * size))

    def chunk(k: Array, tapes: _Tapes) -> _Tapes:
        children = _read_pairs(tapes.states, batch.children[k])
        new, kept = cell.forward(params, children)
        row = k * (pair // 2)
        states = tuple(_write(t, s, leaves + row) for t, s in zip(tapes.states, new, strict=True))
        return _Tapes(states, _write(tapes.kept, kept, row), _write(tapes.hidden, children[0], row))

    return lax.fori_loop(0, batch.chunks, chunk, _Tapes(states, kept, hidden)), leaf_kept


def _label_loss(params: Arrays, hidden: Array, label: Array) -> Array:
    logits = hidden @ params["Ws"] + params["bs"]
    picked = jnp.take_along_axis(logits, jnp.maximum(label, 0)[:, None], 1)[:, 0]
    return jnp.where(label < 0, 0.0, jax.nn.logsumexp(logits, 1) - picked).sum()


def _backward(
    cell: Cell, params: Arrays, batch: Plan, tapes: _Tapes, dhidden: Array
) -> tuple[Array, State]:
    """Cotangents of the inner pre-activations, and of everything that the inner rows have read."""
    inner, size = len(tapes.hidden), dhidden.shape[1]
    leaves, width = len(dhidden) - inner, batch.children.shape[1] // 2
    dread = tuple(jnp.zeros((2 * inner + 1, size)) for _ in range(cell.parts))
    # A tape of its own: written over `kept`, XLA would copy that whole tape in every iteration.
    pre_tape = jnp.zeros_like(tapes.kept)

    def chunk(step: Array, carry: tuple[Array, State]) -> tuple[Array, State]:
        pre_tape, dread = carry
        k = batch.chunks - 1 - step
        row = k * width

        def cut(tape: Array, start: Array) -> Array:
            return lax.dynamic_slice_in_dim(tape, start, width)

        children = (cut(tapes.hidden, row), *_read_pairs(tapes.states[1:], batch.children[k]))
        cotangent = _received(dread, cut(batch.reader, leaves + row), cut(dhidden, leaves + row))
        pre, dchildren = cell.backward(params, cut(tapes.kept, row), children, cotangent)
        pairs = zip(dread, dchildren, strict=True)
        dread = tuple(_write(tape, d.reshape(-1, size), 2 * row) for tape, d in pairs)
        return _write(pre_tape, pre, row), dread

    return lax.fori_loop(0, batch.chunks, chunk, (pre_tape, dread))


def _received(dread: State, reader: Array, dhidden: Array) -> State:
    """What the one reader of each row sends back, with the loss added to the hidden state's."""
    first, *rest = (_rows(d, reader) for d in dread)
    return first + dhidden, *rest


def _loss_and_gradients(cell: Cell, params: Arrays, batch: Plan) -> tuple[Array, Arrays]:
    """The loss and all gradients, that of `embed` for the rows `batch.words`."""
    vectors = word_rows(params["embed"], batch.words)
    x = _rows(vectors, batch.word)
    tapes, leaf_kept = _forward(cell, params, batch, x)
    output = {name: params[name] for name in ("Ws", "bs")}
    value_and_grad = jax.value_and_grad(_label_loss, (0, 1))
    loss, (grads, dhidden) = value_and_grad(output, tapes.states[0], batch.label)
    pre, dread = _backward(cell, params, batch, tapes, dhidden)
    received = _received(dread, batch.reader[: len(x)], dhidden[: len(x)])
    leaf_grads, dx = cell.leaf_backward(params, x, leaf_kept, received)
    grads = {**grads, **leaf_grads, **cell.weights(tapes.hidden, pre)}
    grads["embed"] = jnp.zeros_like(vectors).at[batch.word].add(dx)
    return jax.tree.map(lambda value: value / len(batch.roots), (loss, grads))


@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def _train_step(model: str, params: Arrays, totals: Arrays, batch: Plan) -> Step:
    loss, grads = _loss_and_gradients(CELLS[model], params, batch)
    return *adagrad(params, totals, grads, batch.words), loss


@partial(jax.jit, static_argnums=0)
def _infer(model: str, params: Arrays, batch: Plan) -> Array:
    x = _rows(params["embed"], batch.words[batch.word])
    tapes, _ = _forward(CELLS[model], params, batch, x)
    return _rows(tapes.states[0], batch.roots) @ params["Ws"] + params["bs"]


@partial(jax.jit, static_argnums=0)
def _gradients(model: str, params: Arrays, batch: Plan) -> tuple[Array, Arrays]:
    loss, grads = _loss_and_gradients(CELLS[model], params, batch)
    return loss, grads | {"embed": full_table(params["embed"], batch.words, grads["embed"])}


def build(model: str, params: Params) -> Program:
    """Builds `model` as one jitted program for each shape of batch."""
    weights = Weights(params)

    def prepare(forest: Forest) -> Plan:
        return plan(forest, len(params["embed"]), chunk_width(forest))

    def train_step(batch: Plan) -> float:
        new = _train_step(model, weights.params, weights.totals, batch)
        weights.params, weights.totals, loss = new
        return float(loss)

    def infer(batch: Plan) -> np.ndarray:
        return np.asarray(_infer(model, weights.params, batch))

    def gradients(batch: Plan) -> Gradients:
        loss, grads = _gradients(model, weights.params, batch)
        return float(loss), {name: np.asarray(grad) for name, grad in grads.items()}

    return Program(prepare, train_step, infer, gradients)
