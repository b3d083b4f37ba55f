"""The cells of the hand-batched JAX program, with their gradients written out.

`children` holds, for each part of the state, rows [left, right]. `forward` also gives what the
backward pass keeps of a row. `backward` gives the cotangent of the pre-activation, from which
`weights` makes all weight gradients of a whole tape with one matmul, and those of the children.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Arrays = dict[str, Array]
State = tuple[Array, ...]


class Cell(NamedTuple):
    """One model; `parts` is the length of its state and `gates` the width kept, in hidden sizes."""

    parts: int
    gates: int
    leaf: Callable[[Arrays, Array], tuple[State, Array]]
    leaf_backward: Callable[[Arrays, Array, Array, State], tuple[Arrays, Array]]
    forward: Callable[[Arrays, State], tuple[State, Array]]
    backward: Callable[[Arrays, Array, State, State], tuple[Array, State]]
    weights: Callable[[Array, Array], Arrays]


def _lstm_leaf(params: Arrays, x: Array) -> tuple[State, Array]:
    i, o, u = jnp.split(x @ params["W_leaf"] + params["b_leaf"], 3, axis=1)
    i, o, u = jax.nn.sigmoid(i), jax.nn.sigmoid(o), jnp.tanh(u)
    c = i * u
    return (o * jnp.tanh(c), c), jnp.concatenate([i, o, u], 1)


def _lstm_leaf_backward(
    params: Arrays, x: Array, gates: Array, cotangent: State
) -> tuple[Arrays, Array]:
    i, o, u = jnp.split(gates, 3, axis=1)
    dh, dc = cotangent
    tanh_c = jnp.tanh(i * u)
    dc = dc + dh * o * (1 - tanh_c**2)
    pre = jnp.concatenate([dc * u * i * (1 - i), dh * tanh_c * o * (1 - o), dc * i * (1 - u**2)], 1)
    return {"W_leaf": x.T @ pre, "b_leaf": pre.sum(0)}, pre @ params["W_leaf"].T


def _lstm_forward(params: Arrays, children: State) -> tuple[State, Array]:
    pre = children[0] @ params["U"] + params["b"]
    i, fl, fr, o, u = jnp.split(pre, 5, axis=1)
    i, fl, fr, o = (jax.nn.sigmoid(gate) for gate in (i, fl, fr, o))
    u = jnp.tanh(u)
    cl, cr = jnp.split(children[1], 2, axis=1)
    c = i * u + fl * cl + fr * cr
    return (o * jnp.tanh(c), c), jnp.concatenate([i, fl, fr, o, u], 1)


def _lstm_backward(
    params: Arrays, gates: Array, children: State, cotangent: State
) -> tuple[Array, State]:
    i, fl, fr, o, u = jnp.split(gates, 5, axis=1)
    cl, cr = jnp.split(children[1], 2, axis=1)
    dh, dc = cotangent
    tanh_c = jnp.tanh(i * u + fl * cl + fr * cr)
    dc = dc + dh * o * (1 - tanh_c**2)
    pre = jnp.concatenate(
        [
            dc * u * i * (1 - i),
            dc * cl * fl * (1 - fl),
            dc * cr * fr * (1 - fr),
            dh * tanh_c * o * (1 - o),
            dc * i * (1 - u**2),
        ],
        1,
    )
    return pre, (pre @ params["U"].T, jnp.concatenate([dc * fl, dc * fr], 1))


def _lstm_weights(hidden: Array, pre: Array) -> Arrays:
    return {"U": hidden.T @ pre, "b": pre.sum(0)}


def _word(params: Arrays, x: Array) -> tuple[State, Array]:
    return (x,), x


def _word_backward(params: Arrays, x: Array, kept: Array, cotangent: State) -> tuple[Arrays, Array]:
    return {}, cotangent[0]


def _rnn_forward(params: Arrays, children: State) -> tuple[State, Array]:
    h = jnp.tanh(children[0] @ params["W"] + params["b"])
    return (h,), h


def _rnn_backward(
    params: Arrays, h: Array, children: State, cotangent: State
) -> tuple[Array, State]:
    pre = cotangent[0] * (1 - h**2)
    return pre, (pre @ params["W"].T,)


def _rnn_weights(hidden: Array, pre: Array) -> Arrays:
    return {"W": hidden.T @ pre, "b": pre.sum(0)}


def _rntn_forward(params: Arrays, children: State) -> tuple[State, Array]:
    (v,) = children
    size = v.shape[1]
    inner = (v @ params["T"].reshape(size, -1)).reshape(-1, size, size // 2)
    h = jnp.tanh((inner * v[:, :, None]).sum(1) + v @ params["W"] + params["b"])
    return (h,), h


def _rntn_backward(
    params: Arrays, h: Array, children: State, cotangent: State
) -> tuple[Array, State]:
    """v enters twice, so its cotangent uses the tensor plus its transpose in (i, j)."""
    (v,) = children
    pre = cotangent[0] * (1 - h**2)
    both = params["T"] + params["T"].transpose(1, 0, 2)
    dv = _outer(v, pre) @ both.reshape(v.shape[1], -1).T + pre @ params["W"].T
    return pre, (dv,)


def _rntn_weights(v: Array, pre: Array) -> Arrays:
    tensor = (v.T @ _outer(v, pre)).reshape(v.shape[1], v.shape[1], -1)
    return {"T": tensor, "W": v.T @ pre, "b": pre.sum(0)}


def _outer(a: Array, b: Array) -> Array:
    """Row by row outer products, flattened."""
    return (a[:, :, None] * b[:, None, :]).reshape(len(a), -1)


CELLS = {
    "treelstm": Cell(
        2, 5, _lstm_leaf, _lstm_leaf_backward, _lstm_forward, _lstm_backward, _lstm_weights
    ),
    "treernn": Cell(1, 1, _word, _word_backward, _rnn_forward, _rnn_backward, _rnn_weights),
    "rntn": Cell(1, 1, _word, _word_backward, _rntn_forward, _rntn_backward, _rntn_weights),
}
