"""Second derivatives of programs of the zoo against plain Python, in every order of modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import zoo_all
import zoo_modes
from cases import spread
from zoo import JAXREC, PYTHON, Program, assert_close

Loss = Callable[..., Any]


def dot(xs: Any, ys: Any) -> Any:
    pairs = zip(jax.tree.leaves(xs), jax.tree.leaves(ys), strict=True)
    return sum(jnp.sum(jnp.real(x * y)) for x, y in pairs)


def gradient(fun: Loss, at: tuple[Any, ...]) -> Any:
    return jax.grad(fun, tuple(range(len(at))))


def forward_over_reverse(fun: Loss, at: tuple[Any, ...], by: Any) -> Any:
    return jax.jvp(gradient(fun, at), at, by)[1]


def reverse_over_reverse(fun: Loss, at: tuple[Any, ...], by: Any) -> Any:
    return gradient(lambda *xs: dot(gradient(fun, at)(*xs), by), at)(*at)


def reverse_over_forward(fun: Loss, at: tuple[Any, ...], by: Any) -> Any:
    return gradient(lambda *xs: jax.jvp(fun, xs, by)[1], at)(*at)


def forward_over_forward(fun: Loss, at: tuple[Any, ...], by: Any) -> Any:
    return jax.jvp(lambda *xs: jax.jvp(fun, xs, by)[1], at, by)[1]


MODES = {
    f.__name__: f
    for f in (
        forward_over_reverse,
        reverse_over_reverse,
        reverse_over_forward,
        forward_over_forward,
    )
}


def moved(example: Program) -> tuple[Any, ...]:
    return tuple(jax.tree.map(jnp.asarray, example.args[k]) for k in example.argnums)


def loss_of(example: Program, language: Any) -> Loss:
    fun = zoo_modes.loss_of(example, language)

    def of(*changed: Any) -> Any:
        full = list(example.args)
        for k, x in zip(example.argnums, changed, strict=True):
            full[k] = x
        return fun(*full)

    return of


def direction(at: Any) -> Any:
    """Neither the point itself nor alike in two elements."""

    def of(x: Any) -> Any:
        return jnp.cos(1.7 * jnp.arange(x.size)).reshape(x.shape).astype(x.dtype)

    return jax.tree.map(of, at)


PAIRS = spread(
    (
        (name, mode)
        for name, p in zoo_all.PROGRAMS.items()
        if p.argnums and p.forward and name != "mixed_precision"  # which rounds in other places
        for mode in MODES
    ),
    fast=1,
    slow=1,
    of=2 * 41,  # two of the modes are fast, the other two are slow
)


@pytest.mark.parametrize(("name", "mode"), PAIRS)
def test_second_derivatives(name: str, mode: str):
    example = zoo_all.PROGRAMS[name]
    with example.precision():
        at = moved(example)
        by = direction(at)
        run, own = MODES[mode], loss_of(example, JAXREC)
        got = jax.jit(lambda at, by: run(own, at, by))(at, by)
        want = run(loss_of(example, PYTHON), at, by)
    assert_close(got, want, 30 * example.rtol)
