"""What does a call cost at depth n, forward and with the gradient?

`python -m benchmarks.depth --depths 1000 10000 100000 1000000`

x^n by n nested calls, as in Vasilakopoulos (2024): there is nothing to batch, so what is measured
is the cost of a call. `jaxrec` is a recursive function under `jit`, `scan` the loop that a user of
JAX writes by hand instead, `torch` plain recursion in Python on PyTorch's eager autograd, up to
`--torch-largest`. `steps` rows are 100 steps of gradient descent at the least depth.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxrec as jr
from benchmarks._harness import Rows, interleave, seconds, spread

_X = 1 + 2**-21
"""A number of float32 whose powers stay near 1."""

_TARGET, _STEPS, _RATE = 2.0, 100, 1e-9


class _Peer(NamedTuple):
    """Functions of (x, n): the value, and the value with its derivative."""

    value: Callable[[float, int], Any]
    gradient: Callable[[float, int], Any]


@jr.rec_fn
def _power(x: jax.Array, n: jax.Array) -> Any:
    return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * _power(x, n - 1))


def _scan_power(x: jax.Array, n: int) -> jax.Array:
    return lax.scan(lambda y, _: (x * y, None), jnp.ones_like(x), length=n)[0]


def _jaxrec(n: int) -> _Peer:
    power = _power.with_options(max_calls=n + 1)
    return _Peer(jax.jit(power), jax.jit(jax.value_and_grad(power)))


def _scan(n: int) -> _Peer:
    power = partial(_scan_power, n=n)
    value, gradient = jax.jit(power), jax.jit(jax.value_and_grad(power))
    return _Peer(lambda x, _: value(x), lambda x, _: gradient(x))


def _torch(n: int) -> _Peer:
    import torch  # pyright: ignore[reportMissingImports]  # the other peers run without it

    def power(x: Any, n: int) -> Any:
        return torch.ones(()) if n == 0 else x * power(x, n - 1)

    def value(x: float, n: int) -> Any:
        with torch.no_grad():
            return power(torch.tensor(x), n)

    def gradient(x: float, n: int) -> Any:
        leaf = torch.tensor(x, requires_grad=True)
        result = power(leaf, n)
        result.backward()
        return result.detach(), leaf.grad

    sys.setrecursionlimit(max(sys.getrecursionlimit(), n + 1000))
    return _Peer(value, gradient)


_PEERS = {"jaxrec": _jaxrec, "scan": _scan, "torch": _torch}


def _descend(peer: _Peer, n: int) -> float:
    x = _X
    for _ in range(_STEPS):
        y, slope = map(float, peer.gradient(x, n))
        x -= _RATE * 2 * (y - _TARGET) * slope
    return x


def _cases(depths: list[int], names: list[str], largest: int) -> Iterator[tuple[str, int, Any]]:
    """The parts of the benchmark: for each the actions of the peers that can do it."""
    for n in depths:
        peers = {name: _PEERS[name](n) for name in names if name != "torch" or n <= largest}
        yield "forward", n, {k: partial(p.value, _X, n) for k, p in peers.items()}
        yield "gradient", n, {k: partial(p.gradient, _X, n) for k, p in peers.items()}
        if n == min(depths):
            yield "steps", n, {k: partial(_descend, p, n) for k, p in peers.items()}


def _check(part: str, n: int, results: dict[str, Any]) -> None:
    """All peers compute the same, to the rounding of n multiplications in float32."""
    exact = [_X**n, n * _X ** (n - 1)][: 2 if part == "gradient" else 1]
    for name, result in results.items():
        if part != "steps":
            got = np.asarray([float(x) for x in jax.tree.leaves(result)])
            np.testing.assert_allclose(got, exact, rtol=0.1, err_msg=f"{name}, n={n}")


def _finished(action: Callable[[], Any]) -> Any:
    return jax.block_until_ready(action())


def main() -> None:
    """Prints a row for every part, depth and peer."""
    parser = argparse.ArgumentParser(description=__doc__)
    depths = [1_000, 10_000, 100_000, 1_000_000]
    parser.add_argument("--depths", nargs="+", type=int, default=depths)
    parser.add_argument("--peers", nargs="+", choices=_PEERS, default=list(_PEERS))
    parser.add_argument("--torch-largest", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5, help="at least 5 for a figure to quote")
    args = parser.parse_args()
    rows = Rows("depth")
    for part, n, actions in _cases(args.depths, args.peers, args.torch_largest):
        _check(part, n, {name: _finished(action) for name, action in actions.items()})
        timed = {k: lambda a=a: [seconds(lambda: _finished(a))] for k, a in actions.items()}
        steps = _STEPS if part == "steps" else 1
        for peer, times in interleave(timed, args.repeats).items():
            values = spread(times)
            per_call = values["seconds"] / n / steps
            case = {"part": part, "n": n, "peer": peer, "steps": steps}
            rows(**case, **values, seconds_a_call=per_call, repeats=args.repeats)


if __name__ == "__main__":
    main()
