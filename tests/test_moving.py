"""Which results of an operation move with which operands, as JAX says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxrec._compat import moved_results
from jaxrec.graph._moving import ALWAYS

X, Y = jnp.ones((2, 3)), jnp.full((2, 3), 2.0)
OF_ONE: dict[str, Callable[[Any], Any]] = {
    "neg": lax.neg,
    "exp": lax.exp,
    "log": lax.log,
    "sin": lax.sin,
    "cos": lax.cos,
    "tanh": lax.tanh,
    "logistic": lax.logistic,
    "sqrt": lax.sqrt,
    "rsqrt": lax.rsqrt,
    "broadcast_in_dim": lambda x: lax.broadcast_in_dim(x, (1, 2, 3), (1, 2)),
    "reshape": lambda x: lax.reshape(x, (6,)),
    "transpose": lambda x: lax.transpose(x, (1, 0)),
    "squeeze": lambda x: lax.squeeze(x[:1], (0,)),
    "slice": lambda x: lax.slice(x, (0, 0), (1, 3)),
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (0, 0), (1, 2)),
    "gather": lambda x: x[jnp.array([0, 1])],
    "reduce_sum": lambda x: lax.reduce_sum(x, (0,)),
    "integer_pow": lambda x: lax.integer_pow(x, 3),
    "square": lax.square,
    "abs": lax.abs,
    "log1p": lax.log1p,
    "expm1": lax.expm1,
    "erf": lax.erf,
    "reduce_max": lambda x: lax.reduce_max(x, (0,)),
    "reduce_min": lambda x: lax.reduce_min(x, (0,)),
    "cumsum": lax.cumsum,
    "rev": lambda x: lax.rev(x, (0,)),
    "convert_element_type": lambda x: lax.convert_element_type(x, jnp.float16),
}
OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "max": lax.max,
    "min": lax.min,
    "dot_general": lambda x, y: lax.dot_general(x, y, (((1,), (1,)), ((), ()))),
    "select_n": lambda x, y: lax.select_n(x > y, x, y),
    "concatenate": lambda x, y: lax.concatenate([x, y], 0),
    "pow": lax.pow,
    "pad": lambda x, y: lax.pad(x, y[0, 0], ((1, 0, 0), (0, 0, 0))),
    "dynamic_update_slice": lambda x, y: lax.dynamic_update_slice(x, y[:1], (0, 0)),
}


def moved(fun: Any, operands: list[Any], which: list[bool]) -> list[bool]:
    return list(moved_results(jax.make_jaxpr(fun)(*operands), which))


@pytest.mark.parametrize("name", sorted(ALWAYS))
def test_what_passes_every_derivative_on(name):
    if name in OF_ONE:
        assert moved(OF_ONE[name], [X], [True]) == [True]
        assert moved(OF_ONE[name], [X], [False]) == [False]
    else:
        found = [moved(OF_TWO[name], [X, Y], which) for which in ([True, False], [False, True])]
        assert found == [[True], [True]]


def test_what_does_not():
    assert (
        moved(lambda x: [jnp.sign(x), jnp.floor(x), lax.stop_gradient(x)], [X], [True])
        == [False] * 3
    )
    assert moved(lambda x, y: (x * 2, y), [X, Y], [True, False]) == [True, False]
