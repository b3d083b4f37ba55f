"""What does a scalar recursion cost for each of many lanes, against a loop that JAX maps?

`python -m benchmarks.lanes --repeats 7`

Five recursions under `jax.vmap` and `jax.jit`: Mandelbrot's escape time on a grid, the steps of
Collatz' sequence, Newton's square root, Kepler's equation, and adaptive quadrature by Simpson's
rule (Lyness, "Notes on the adaptive Simpson quadrature routine", J. ACM 1969), with its gradient.
`loop` is the same as a `lax.while_loop` under `jax.vmap`, which turns as often as the
slowest lane needs; for quadrature it keeps a stack of intervals in an array, and has no gradient.
`ratio` is how many times the seconds of the loop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxrec as jr
from benchmarks._harness import Rows, interleave, spread, warm_seconds

_MOST_TURNS = 200


@jr.rec_fn
def escape(x: Any, y: Any, a: Any, b: Any, n: Any) -> Any:
    return jr.cond(
        (n >= _MOST_TURNS) | (x * x + y * y > 4),
        lambda: n,
        lambda: escape(x * x - y * y + a, 2 * x * y + b, a, b, n + 1),
    )


def _escape_loop(a: Any, b: Any) -> Any:
    def goes_on(at: Any) -> Any:
        x, y, n = at
        return (n < _MOST_TURNS) & (x * x + y * y <= 4)

    def step(at: Any) -> Any:
        x, y, n = at
        return x * x - y * y + a, 2 * x * y + b, n + 1

    return lax.while_loop(goes_on, step, (0 * a, 0 * b, jnp.int32(0)))[2]


@jr.rec_fn
def collatz(n: Any, steps: Any) -> Any:
    def more() -> Any:
        return collatz(jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1)

    return jr.cond(n <= 1, lambda: steps, more)


def _collatz_loop(n: Any) -> Any:
    def step(at: Any) -> Any:
        n, steps = at
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), steps + 1

    return lax.while_loop(lambda at: at[0] > 1, step, (n, jnp.int32(0)))[1]


@jr.rec_fn
def newton(x: Any, a: Any, n: Any) -> Any:
    return jr.cond(
        (n >= 50) | (jnp.abs(x * x - a) < 1e-5 * a),
        lambda: x,
        lambda: newton(0.5 * (x + a / x), a, n + 1),
    )


def _newton_loop(a: Any) -> Any:
    def goes_on(at: Any) -> Any:
        return (at[1] < 50) & (jnp.abs(at[0] * at[0] - a) >= 1e-5 * a)

    def step(at: Any) -> Any:
        return 0.5 * (at[0] + a / at[0]), at[1] + 1

    return lax.while_loop(goes_on, step, (a, jnp.int32(0)))[0]


def _kepler_step(at: Any, mean: Any, e: Any) -> Any:
    return (at - e * jnp.sin(at) - mean) / (1 - e * jnp.cos(at))


@jr.rec_fn
def kepler(at: Any, mean: Any, e: Any, n: Any) -> Any:
    step = _kepler_step(at, mean, e)
    last = (n >= 30) | (jnp.abs(step) < 1e-6)
    return jr.cond(last, lambda: at, lambda: kepler(at - step, mean, e, n + 1))


def _kepler_loop(mean: Any, e: Any) -> Any:
    def goes_on(at: Any) -> Any:
        return (at[1] < 30) & (jnp.abs(_kepler_step(at[0], mean, e)) >= 1e-6)

    def step(at: Any) -> Any:
        return at[0] - _kepler_step(at[0], mean, e), at[1] + 1

    return lax.while_loop(goes_on, step, (mean, jnp.int32(0)))[0]


_TOLERANCE, _DEEPEST = 1e-4, 12


def _peak(x: Any, w: Any) -> Any:
    return 1 / (1 + w * x * x)


def _halves(at: Any, w: Any) -> Any:
    """The two halves of an interval with its ends, and the sum over it if that is precise."""
    low, high, f_low, f_middle, f_high, tolerance, depth = at
    middle, h = (low + high) / 2, high - low
    f_left, f_right = _peak((low + middle) / 2, w), _peak((middle + high) / 2, w)
    left = h / 12 * (f_low + 4 * f_left + f_middle)
    right = h / 12 * (f_middle + 4 * f_right + f_high)
    error = left + right - h / 6 * (f_low + 4 * f_middle + f_high)
    precise = (depth >= _DEEPEST) | (jnp.abs(error) <= 15 * tolerance)
    first = low, middle, f_low, f_left, f_middle, tolerance / 2, depth + 1
    second = middle, high, f_middle, f_right, f_high, tolerance / 2, depth + 1
    return first, second, left + right + error / 15, precise


@jr.rec_fn
def simpson(at: Any, w: Any) -> Any:
    first, second, total, precise = _halves(at, w)
    return jr.cond(precise, lambda: total, lambda: simpson(first, w) + simpson(second, w))


def _interval(w: Any) -> Any:
    ends = _peak(jnp.float32(1), w)
    middle = jnp.ones_like(w)
    return 0 * w - 1, 0 * w + 1, ends, middle, ends, 0 * w + _TOLERANCE, jnp.int32(0)


def _simpson_loop(w: Any) -> Any:
    stack = [jnp.zeros(_DEEPEST + 2, x.dtype).at[0].set(x) for x in map(jnp.asarray, _interval(w))]

    def step(at: Any) -> Any:
        stack, size, total = at
        first, second, part, precise = _halves([x[size - 1] for x in stack], w)
        pushed = [
            x.at[size - 1].set(a).at[size].set(b)
            for x, a, b in zip(stack, first, second, strict=True)
        ]
        stack = [jnp.where(precise, x, y) for x, y in zip(stack, pushed, strict=True)]
        return stack, jnp.where(precise, size - 1, size + 1), total + jnp.where(precise, part, 0)

    return lax.while_loop(lambda at: at[1] > 0, step, (stack, jnp.int32(1), 0 * w))[2]


class _Program(NamedTuple):
    """One recursion of a lane, and the same as a loop."""

    name: str
    recursion: Callable[..., Any]
    loop: Callable[..., Any] | None
    arrays: Callable[[], tuple[Any, ...]]


def _grid(size: int) -> tuple[Any, ...]:
    x, y = jnp.meshgrid(jnp.linspace(-2, 0.6, size), jnp.linspace(-1.2, 1.2, size))
    return x.ravel(), y.ravel()


_ZERO = jnp.int32(0)
_PROGRAMS = [
    _Program(
        "mandelbrot 64 x 64",
        lambda a, b: escape(0 * a, 0 * b, a, b, _ZERO),
        _escape_loop,
        lambda: _grid(64),
    ),
    _Program(
        "mandelbrot 400 x 400",
        lambda a, b: escape(0 * a, 0 * b, a, b, _ZERO),
        _escape_loop,
        lambda: _grid(400),
    ),
    _Program(
        "collatz",
        lambda n: collatz(n, _ZERO),
        _collatz_loop,
        lambda: (jnp.arange(1, 100_001),),
    ),
    _Program(
        "newton",
        lambda a: newton(a, a, _ZERO),
        _newton_loop,
        lambda: (jnp.linspace(0.1, 1e4, 100_000),),
    ),
    _Program(
        "kepler",
        lambda m, e: kepler(m, m, e, _ZERO),
        _kepler_loop,
        lambda: (jnp.linspace(0, 6.28, 50_000), jnp.full(50_000, 0.6)),
    ),
    _Program(
        "simpson",
        lambda w: simpson(_interval(w), w),
        _simpson_loop,
        lambda: (jnp.linspace(1, 400, 4096),),
    ),
    _Program(
        "simpson, gradient",
        jax.grad(lambda w: simpson(_interval(w), w)),
        None,
        lambda: (jnp.linspace(1, 400, 4096),),
    ),
]


def _measure(program: _Program, repeats: int) -> Iterator[dict[str, Any]]:
    arrays = program.arrays()
    peers = {"jaxrec": program.recursion}
    if program.loop is not None:
        peers["loop"] = program.loop
    compiled = {peer: jax.jit(jax.vmap(f)) for peer, f in peers.items()}
    results = [np.asarray(f(*arrays), float) for f in compiled.values()]
    # Where one stops a turn earlier by a last bit, its escape time is another.
    assert all(np.mean(np.abs(r - results[0]) > 1e-3 * (1 + np.abs(r))) < 1e-2 for r in results)
    timed = {
        peer: lambda f=f: [warm_seconds(lambda: jax.block_until_ready(f(*arrays)))]
        for peer, f in compiled.items()
    }
    measured = interleave(timed, repeats)
    loop = float(np.median(measured["loop"])) if "loop" in measured else None
    for peer, values in measured.items():
        row = {"program": program.name, "lanes": len(arrays[0]), "peer": peer, **spread(values)}
        yield row | ({} if loop is None else {"ratio": row["seconds"] / loop})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [program.name for program in _PROGRAMS]
    parser.add_argument("--programs", nargs="+", default=names, choices=names)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    rows = Rows("lanes")
    for program in _PROGRAMS:
        for row in _measure(program, options.repeats) if program.name in options.programs else []:
            rows(**row)


if __name__ == "__main__":
    main()
