"""Operations and rules that other libraries have defined."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

import jaxrec as jr

SEEN: list[float] = []

doubled_p = Primitive("doubled")


def seen(x: Any) -> Any:
    SEEN.extend(np.ravel(x).tolist())
    return np.asarray(2 * x, x.dtype)


def doubled(x: Any) -> Any:
    """Twice x. That Python computes it shows in no jaxpr; as in equinox, a parameter is `prim`."""
    return doubled_p.bind(x, prim="doubled")


@doubled_p.def_impl
def run(x: Any, prim: str) -> Any:
    return jax.pure_callback(seen, x, x, vmap_method="expand_dims")


doubled_p.def_abstract_eval(lambda x, prim: x)
mlir.register_lowering(doubled_p, mlir.lower_fun(run, multiple_results=False))
batching.primitive_batchers[doubled_p] = lambda x, axes, prim: (doubled(*x), *axes)
ad.deflinear2(doubled_p, lambda ct, x, prim: [doubled(ct)])


@jr.rec_fn
def walk(x: Any, n: Any) -> Any:
    return jr.cond(n == 0, lambda: x, lambda: jnp.sin(doubled(walk(x + 1.0, n - 1))))


def plain(x: Any, n: int) -> Any:
    return x if n == 0 else jnp.sin(2 * plain(x + 1.0, n - 1))


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_they_run_for_calls_alone(executor: str) -> None:
    """A wave has rows that no call stands for, which such an operation may not see."""
    xs, ns = jnp.linspace(0.1, 1.0, 5), [3, 1, 2, 3, 2]
    expected = [plain(x, n) for x, n in zip(xs, ns, strict=True)]
    made = np.array([x for x, n in zip(xs, ns, strict=True) for x in chain(x, n)])
    SEEN.clear()
    with jr.executor(executor):
        found = jax.vmap(walk)(xs, jnp.array(ns))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(SEEN) >= len(made)
    assert all(np.isclose(x, made, rtol=1e-5).any() for x in SEEN)


def chain(x: float, n: int) -> list[float]:
    """What `doubled` is given on the way."""
    return [plain(x + n - k, k) for k in range(n)]


@pytest.mark.parametrize("policy", [None, jax.checkpoint_policies.dots_saveable])
def test_their_parameters_do_not_clash_with_those_of_policies(policy: Any) -> None:
    f = walk.with_options(policy=policy)
    with jr.executor("host"):
        np.testing.assert_allclose(jax.grad(f)(0.3, 3), jax.grad(plain)(0.3, 3), rtol=1e-5)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_rules_of_equinox_are_told_what_has_no_tangent(executor: str) -> None:
    @jax.custom_vjp
    def scaled(x: Any, t: Any) -> Any:
        return x * t

    def forward(x: Any, t: Any) -> Any:
        assert not t.perturbed
        return x.value * t.value, t.value

    def backward(t: Any, ct: Any) -> Any:
        return ct * t, None

    backward.__module__ = "equinox.rules"
    scaled.defvjp(forward, backward, symbolic_zeros=True)

    @jr.rec_fn
    def f(x: Any, t: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: x, lambda: scaled(f(x, t, n - 1), t))

    with jr.executor(executor):
        np.testing.assert_allclose(jax.grad(f)(jnp.float32(2.0), 0.5, 3), 0.125)
