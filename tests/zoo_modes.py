"""Ways to run a program of the zoo: each gives what jaxrec computes and what plain Python does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from zoo import JAXREC, PROGRAMS, PYTHON, Program, loss

import jaxrec as jr


def stacked(items: list[Any]) -> Any:
    """The leaves of several pytrees, stacked."""
    return jax.tree.map(lambda *x: np.asarray(jnp.stack([jnp.asarray(a) for a in x])), *items)


def loss_of(example: Program, language: Any) -> Callable[..., Any]:
    """The loss as a function of the arguments of one call."""
    fun = example.build(language)
    return lambda *args: loss(fun(*args))


def batched_loss(example: Program) -> Callable[..., Any]:
    """The sum of the losses of all lanes."""
    run = jax.vmap(example.build(JAXREC), example.in_axes)
    return lambda *args: jax.vmap(loss)(run(*args)).sum()


def gradient(fun: Callable[..., Any], example: Program) -> Callable[..., Any]:
    """The derivatives of a loss."""
    return jax.grad(fun, example.argnums)


@functools.cache
def plain_value(name: str) -> Any:
    """What plain Python returns, for one call."""
    example = PROGRAMS[name]
    return example.build(PYTHON)(*example.args)


@functools.cache
def plain_lanes(name: str) -> Any:
    """What plain Python returns, for every lane."""
    example = PROGRAMS[name]
    return stacked([example.build(PYTHON)(*args) for args in example.lanes()])


@functools.cache
def plain_gradient(name: str) -> Any:
    """The gradient of one call."""
    example = PROGRAMS[name]
    return gradient(loss_of(example, PYTHON), example)(*example.args)


@functools.cache
def plain_lane_gradients(name: str) -> Any:
    """The gradients of the lanes, stacked."""
    example = PROGRAMS[name]
    of = gradient(loss_of(example, PYTHON), example)
    return stacked([of(*args) for args in example.lanes()])


def plain_batch_gradient(name: str) -> Any:
    """The gradient of the sum over lanes: what lanes share gets the sum of theirs."""
    example, apart = PROGRAMS[name], plain_lane_gradients(name)
    mapped = [example.in_axes[k] is not None for k in example.argnums]
    return tuple(
        part if own else jax.tree.map(lambda g: g.astype(_wide(g)).sum(0), part)
        for part, own in zip(apart, mapped, strict=True)
    )


def _wide(array: np.ndarray) -> Any:
    return array.dtype if array.dtype.kind in "fc" and array.dtype.itemsize > 2 else np.float32


def value(example: Program) -> tuple[Any, Any]:
    """An eager call."""
    return example.build(JAXREC)(*example.args), plain_value(example.name)


def jit(example: Program) -> tuple[Any, Any]:
    """A compiled call, every argument traced."""
    return jax.jit(example.build(JAXREC))(*example.args), plain_value(example.name)


def vmap(example: Program) -> tuple[Any, Any]:
    """All lanes, eagerly."""
    run = jax.vmap(example.build(JAXREC), example.in_axes)
    return run(*example.batch), plain_lanes(example.name)


def jit_vmap(example: Program) -> tuple[Any, Any]:
    """All lanes, compiled."""
    run = jax.vmap(example.build(JAXREC), example.in_axes)
    return jax.jit(run)(*example.batch), plain_lanes(example.name)


def grad(example: Program) -> tuple[Any, Any]:
    """An eager gradient."""
    got = gradient(loss_of(example, JAXREC), example)(*example.args)
    return got, plain_gradient(example.name)


def jit_grad(example: Program) -> tuple[Any, Any]:
    """A compiled gradient."""
    got = jax.jit(gradient(loss_of(example, JAXREC), example))(*example.args)
    return got, plain_gradient(example.name)


def grad_vmap(example: Program) -> tuple[Any, Any]:
    """The gradient of a loss over all lanes, eagerly."""
    got = gradient(batched_loss(example), example)(*example.batch)
    return got, plain_batch_gradient(example.name)


def jit_grad_vmap(example: Program) -> tuple[Any, Any]:
    """The gradient of a loss over all lanes, compiled: a training step."""
    got = jax.jit(gradient(batched_loss(example), example))(*example.batch)
    return got, plain_batch_gradient(example.name)


def vmap_grad(example: Program) -> tuple[Any, Any]:
    """A gradient for each lane."""
    run = jax.vmap(gradient(loss_of(example, JAXREC), example), example.in_axes)
    return run(*example.batch), plain_lane_gradients(example.name)


def checkpoint(example: Program) -> tuple[Any, Any]:
    """A gradient that computes the whole call again."""
    of = jax.checkpoint(loss_of(example, JAXREC))
    return jax.jit(gradient(of, example))(*example.args), plain_gradient(example.name)


def jvp(example: Program) -> tuple[Any, Any]:
    """A derivative in one direction, forward; checked against the gradient of plain Python."""
    args = example.args
    moved = [args[k] for k in example.argnums]
    tangents = jax.tree.map(lambda x: jnp.asarray(x) / 3, moved)

    def of(*changed: Any) -> Any:
        full = list(args)
        for k, x in zip(example.argnums, changed, strict=True):
            full[k] = x
        return loss_of(example, JAXREC)(*full)

    _, got = jax.jvp(of, moved, tangents)
    pairs = zip(
        jax.tree.leaves(list(plain_gradient(example.name))), jax.tree.leaves(tangents), strict=True
    )
    want = sum(
        np.sum(np.real(np.asarray(g, _wide(np.asarray(g))) * np.asarray(t))) for g, t in pairs
    )
    return got, want


VALUES = {f.__name__: f for f in (value, jit, vmap, jit_vmap)}
DERIVATIVES = {
    f.__name__: f for f in (grad, jit_grad, grad_vmap, jit_grad_vmap, vmap_grad, checkpoint, jvp)
}


COMPILED = {"jit", "jit_vmap", "jit_grad", "jit_grad_vmap", "checkpoint"}
"""Modes that run under `jit`, which executor "host" does not."""

HOSTS = ("host-1", "host-2", "host-4")
"""Executor "host" by its number of workers."""

EXECUTORS = ("graph", *HOSTS, "reference")


def on(executor: str) -> Any:
    """The executor of a case, for a `with` block."""
    name, _, workers = executor.partition("-")
    return jr.executor(name, workers=int(workers)) if workers else jr.executor(name)


def runs(mode: str, executor: str) -> bool:
    """Whether an executor has a mode."""
    return executor not in HOSTS or mode not in COMPILED
