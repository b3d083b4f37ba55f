"""A zoo of recursive programs: what every test of values and gradients runs.

A program is written once, against a `Language`: a decorator, choices and loops. Spoken in `JAXREC`
it is the recursion under test; spoken in `PYTHON` the same text is a plain Python function whose
choices are `if`s and whose loops are loops, which is what a recursive function means.

The programs are in `zoo_trees`, `zoo_control`, `zoo_functions`, `zoo_loops` and `zoo_types`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxrec as jr


class Language(NamedTuple):
    """What a recursive program is written with."""

    rec_fn: Callable[..., Any]
    cond: Callable[..., Any]
    switch: Callable[..., Any]
    while_loop: Callable[..., Any]
    fori_loop: Callable[..., Any]
    scan: Callable[..., Any]
    map: Callable[..., Any]
    vmap: Callable[..., Any]


def _undecorated(fun: Any = None, **_options: Any) -> Any:
    return fun if fun is not None else _undecorated


def _if(pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
    return true_fun(*operands) if bool(pred) else false_fun(*operands)


def _choose(index: Any, branches: Sequence[Any], *operands: Any) -> Any:
    return branches[min(max(int(index), 0), len(branches) - 1)](*operands)


def _while(pred: Any, body: Any, state: Any) -> Any:
    while bool(pred(state)):
        state = body(state)
    return state


def _for(low: Any, high: Any, body: Any, state: Any) -> Any:
    for k in range(int(low), int(high)):
        state = body(jnp.int32(k), state)
    return state


def _lanes(tree: Any) -> list[Any]:
    return [_lane(tree, k) for k in range(len(jax.tree.leaves(tree)[0]))]


def _stack(items: Sequence[Any], axis: int = 0) -> Any:
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x], axis), *items)


def _scan(body: Any, state: Any, xs: Any, reverse: bool = False) -> Any:
    elements, seen = _lanes(xs), []
    for x in reversed(elements) if reverse else elements:
        state, y = body(state, x)
        seen.append(y)
    return state, _stack(seen[::-1] if reverse else seen)


def _map(fun: Any, xs: Any) -> Any:
    return _stack([fun(x) for x in _lanes(xs)])


def _vmap(fun: Any, in_axes: Any = 0, out_axes: int = 0) -> Any:
    def mapped(*args: Any) -> Any:
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        over = [jnp.moveaxis(x, a, 0) for x, a in zip(args, axes, strict=True) if a is not None]

        def one(lane: Sequence[Any]) -> Any:
            rest = iter(lane)
            return fun(*(x if a is None else next(rest) for x, a in zip(args, axes, strict=True)))

        return _stack([one(lane) for lane in zip(*over, strict=True)], out_axes)

    return mapped


JAXREC = Language(
    jr.rec_fn,
    jr.cond,
    jr.switch,
    jax.lax.while_loop,
    jax.lax.fori_loop,
    jax.lax.scan,
    jax.lax.map,
    jax.vmap,
)
PYTHON = Language(_undecorated, _if, _choose, _while, _for, _scan, _map, _vmap)


@dataclasses.dataclass(frozen=True)
class Program:
    """A recursive program with arguments.

    Attributes:
        name: of the program.
        build: makes the function in a language, the same one each time.
        make_args: arguments of one call.
        make_mapped: for some arguments, by position, their values for several lanes.
        argnums: arguments with derivatives; empty if the results have none.
        rtol: tolerance of values; gradients get ten times as much.
        x64: whether it runs with 64-bit types.
        forward: whether it has forward derivatives; JAX has none of a `custom_vjp`.
    """

    name: str
    build: Callable[[Language], Any]
    make_args: Callable[[], tuple[Any, ...]]
    make_mapped: Callable[[], Mapping[int, Any]]
    argnums: tuple[int, ...]
    rtol: float
    x64: bool
    forward: bool

    @property
    def args(self) -> tuple[Any, ...]:
        """Arguments of one call."""
        return self.make_args()

    @property
    def batch(self) -> tuple[Any, ...]:
        """Arguments of several lanes."""
        mapped = self.make_mapped()
        return tuple(mapped.get(k, x) for k, x in enumerate(self.args))

    @property
    def in_axes(self) -> tuple[int | None, ...]:
        """The mapped axes of `batch`."""
        return tuple(0 if k in self.make_mapped() else None for k in range(len(self.args)))

    def lanes(self) -> list[tuple[Any, ...]]:
        """The arguments of each lane of `batch`."""
        mapped = self.make_mapped()
        size = len(jax.tree.leaves(list(mapped.values()))[0])
        return [
            tuple(_lane(x, k) if p in mapped else x for p, x in enumerate(self.batch))
            for k in range(size)
        ]

    def precision(self) -> Any:
        """The context to run in."""
        return jax.enable_x64(self.x64)


def _lane(value: Any, lane: int) -> Any:
    return jax.tree.map(lambda x: x[lane], value)


PROGRAMS: dict[str, Program] = {}


def program(
    args: Callable[[], tuple[Any, ...]],
    mapped: Callable[[], Mapping[int, Any]],
    argnums: tuple[int, ...] = (0,),
    rtol: float = 1e-5,
    x64: bool = False,
    forward: bool = True,
) -> Callable[[Any], Any]:
    """Registers a function `Language -> recursive function` as a program of the zoo."""

    def register(build: Any) -> Any:
        name = build.__name__
        assert name not in PROGRAMS
        once = functools.cache(build)
        PROGRAMS[name] = Program(name, once, args, mapped, argnums, rtol, x64, forward)
        return build

    return register


class Tree(NamedTuple):
    """Binary trees; -1 for none."""

    left: Any
    right: Any
    token: Any


SIZES = (5, 1, 8)
"""Leaves of the trees of `forest()`."""


def random_trees(rng: np.random.Generator, sizes: Sequence[int]) -> tuple[Tree, np.ndarray]:
    """Random binary trees with these numbers of leaves, and their roots."""
    left: list[int] = []
    right: list[int] = []

    def grow(leaves: int) -> int:
        node = len(left)
        left.append(-1)
        right.append(-1)
        if leaves > 1:
            first = int(rng.integers(1, leaves))
            left[node], right[node] = grow(first), grow(leaves - first)
        return node

    roots = [grow(n) for n in sizes]
    token = rng.integers(0, 6, len(left))
    arrays = [np.asarray(x, np.int32) for x in (left, right, token)]
    return Tree(*arrays), np.asarray(roots, np.int32)


def forest() -> Tree:
    """The trees that programs of the zoo run on."""
    return Tree(*map(jnp.asarray, random_trees(np.random.default_rng(7), SIZES)[0]))


def roots() -> jax.Array:
    """The roots of `forest()`."""
    return jnp.asarray(random_trees(np.random.default_rng(7), SIZES)[1])


def normal(seed: int, *shape: int, dtype: Any = jnp.float32) -> jax.Array:
    """Random numbers with a standard deviation of 1/2."""
    return jnp.asarray(0.5 * np.random.default_rng(seed).normal(size=shape), dtype)


def loss(result: Any) -> jax.Array:
    """A scalar to differentiate: every element of the inexact leaves counts differently."""
    total = jnp.zeros(())
    for k, leaf in enumerate(map(jnp.asarray, jax.tree.leaves(result))):
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            wide = leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)).ravel()
            weights = jnp.cos(jnp.arange(wide.size) + k).astype(jnp.finfo(wide.dtype).dtype)
            total += jnp.sum(jnp.real(wide * (weights + wide))) + jnp.sum(jnp.imag(wide) * weights)
    return total


def assert_close(got: Any, want: Any, rtol: float) -> None:
    """Checks that two pytrees are equal to rounding, element by element, NaN nowhere."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        a, b = _comparable(a), _comparable(b)
        assert a.shape == b.shape
        scale = max(1.0, float(np.abs(b).max(initial=0.0)))
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * scale, equal_nan=False)


def _comparable(value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "V" or array.dtype == bool:  # bfloat16 is a void type to NumPy
        return array.astype(np.float32)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
