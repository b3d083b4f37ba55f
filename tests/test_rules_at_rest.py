"""Derivative rules of values that a derivative is not taken by: JAX does not apply them.

The oracle is the same text as plain Python recursion under the same transformations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from cases import picked
from waves import in_waves
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr


@jax.custom_jvp
def rounded(x: Any) -> Any:
    """A straight-through estimator: the slope of its rule is one, that of its code zero."""
    return jnp.round(4 * x) / 4


rounded.defjvp(lambda p, t: (jnp.round(4 * p[0]) / 4, t[0]))


@jax.custom_vjp
def bounded(x: Any) -> Any:
    return jnp.clip(x, -1, 1)


bounded.defvjp(lambda x: (jnp.clip(x, -1, 1), None), lambda _, g: (2 * g,))


def quantised(lang: Language, through: Callable[[Any], Any], rule: Any) -> Any:
    """An energy of positions `x` whose weights `w` are rounded, in each call and on its way down.

    Args:
        lang: the language.
        through: what the positions go through.
        rule: the function with a derivative rule.
    """

    @lang.rec_fn(max_calls=32)
    def energy(x, w, n):
        def below():
            deep = energy(0.5 * x, 0.9 * w, n - 1)
            return rule(w) * through(x) * x + rule(deep) + rule(x) * w

        return lang.cond(n == 0, lambda: jnp.sin(x) * rule(w) + rule(x * w), below)

    return energy


def _of_value(f: Any) -> Any:
    """By `w`, of the value that comes with a derivative by `x`."""
    return jax.grad(lambda w, x: jax.value_and_grad(f)(x, w, 3)[0])


def _of_force(f: Any) -> Any:
    """By `w`, of the derivative by `x`, as where forces are fitted."""
    return jax.grad(lambda w, x: jax.grad(f)(x, w, 3) ** 2)


def _of_tangent(f: Any) -> Any:
    return jax.grad(lambda w, x: jax.jvp(lambda x: f(x, w, 3), (x,), (jnp.ones_like(x),))[1])


def _forward(f: Any) -> Any:
    return jax.jacfwd(lambda w, x: jax.value_and_grad(f)(x, w, 3))


def _both_ways(f: Any) -> Any:
    """Each by the other, and one by both."""
    return lambda w, x: (
        jax.grad(lambda x: jax.grad(f, argnums=1)(x, w, 3))(x),
        jax.hessian(lambda a: f(a[0], a[1], 3))((x, w)),
    )


DERIVATIVES = [_of_value, _of_force, _of_tangent, _forward, _both_ways]
WAYS = {"native": (jnp.cos, "graph"), "waves": (in_waves, "graph")}
WAYS |= {"host": (in_waves, "host"), "reference": (in_waves, "reference")}
FAST = [(_of_tangent, "waves"), (_of_force, "host"), (_both_ways, "native"), (_of_force, "native")]
FAST += [(take, "reference") for take in (_of_value, _both_ways)]
SLOW = [(_of_value, "native"), (_of_force, "reference"), (_of_tangent, "native")]
SLOW += [(_forward, way) for way in ("native", "reference")]
CASES = picked(((take, way) for take in DERIVATIVES for way in WAYS), FAST, SLOW)


@pytest.mark.parametrize(("take", "way"), CASES)
def test_what_rests_keeps_its_rule(take, way):
    through, executor = WAYS[way]
    x, w = jnp.float32(0.7), jnp.float32(0.55)
    want = take(quantised(PYTHON, through, rounded))(w, x)
    with jr.executor(executor):
        assert_close(take(quantised(JAXREC, through, rounded))(w, x), want, 1e-4)


@pytest.mark.parametrize("way", ["native", "waves"])
def test_compiled_and_mapped(way):
    xs, w = jnp.linspace(0.3, 0.9, 3, dtype=jnp.float32), jnp.float32(0.55)
    languages = PYTHON, JAXREC
    python, native = (_of_value(quantised(lang, WAYS[way][0], rounded)) for lang in languages)
    want = jnp.stack([python(w, x) for x in xs])
    assert_close(jax.jit(jax.vmap(native, (None, 0)))(w, xs), want, 1e-4)


@pytest.mark.parametrize(
    "way", [pytest.param("native", marks=pytest.mark.exhaustive), "waves", "host"]
)
def test_a_rule_for_reverse_mode(way):
    (through, executor), x, w = WAYS[way], jnp.float32(0.7), jnp.float32(0.55)
    take = _of_force if way == "waves" else _of_value
    want = take(quantised(PYTHON, through, bounded))(w, x)
    with jr.executor(executor):
        assert_close(take(quantised(JAXREC, through, bounded))(w, x), want, 1e-4)


@jax.custom_vjp
def halved(x: Any) -> Any:
    return x * 1.5


halved.defvjp(lambda x: (x * 1.5, x), lambda x, g: (0.5 * g * x,))


def _in_a_scan(x: Any, w: Any, d: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        return (carry[0] * x, carry[1] * w), None

    (a, b), _ = jax.lax.scan(step, (jnp.sin(x), w), None, length=2)
    return rounded(b) * a + d


def _sorted(x: Any, w: Any, d: Any) -> Any:
    _, a, b = jax.lax.sort((jnp.arange(2), x * jnp.ones(2), w * jnp.ones(2)), num_keys=1)
    return rounded(b[0]) * a[0] + d


def _chosen(x: Any, w: Any, d: Any) -> Any:
    a, b = jax.lax.cond(x > 0, lambda: (x * w, 3 * w), lambda: (x, w * w))
    return in_waves(rounded(b)) * a + d


BODIES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "no derivative": lambda x, w, d: rounded(jnp.sign(x) * jnp.floor(1 + x) * w) * x + d,
    "scan": _in_a_scan,
    "checkpoint": lambda x, w, d: rounded(jax.checkpoint(lambda x, w: (x, w))(x, w)[1]) * x + d,
    "sort": _sorted,
    "choice": _chosen,
    "rule in a rule": lambda x, w, d: halved(halved(w)) * x + halved(d * w),
    "in waves": lambda x, w, d: in_waves(rounded(3 * w)) * x + d,
}


def recursion(lang: Language, body: Callable[[Any, Any, Any], Any]) -> Any:
    @lang.rec_fn(max_calls=8)
    def f(x, w, n):
        return lang.cond(n == 0, lambda: x * w, lambda: body(x, w, f(0.9 * x, 0.8 * w, n - 1)))

    return f


def _thrice(f: Any) -> Any:
    """By `w`, of a second derivative by `x`."""
    return jax.grad(lambda w, x: jax.jacfwd(jax.grad(f))(x, w, 3))


MOVING = picked(
    ((take, body) for take in (_of_value, _of_force) for body in BODIES),
    fast=[(_of_force, body) for body in BODIES if body != "sort"],
    slow=[
        (_of_force, "sort"),
        *((_of_value, body) for body in ("no derivative", "scan", "checkpoint")),
    ],
)


@pytest.mark.parametrize(("take", "body"), MOVING)
def test_results_move_each_by_itself(take, body):
    x, w = jnp.float32(0.7), jnp.float32(0.55)
    found, want = (take(recursion(lang, BODIES[body]))(w, x) for lang in (JAXREC, PYTHON))
    assert_close(found, want, 1e-4)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("choice", marks=pytest.mark.slow),
        *(pytest.param(body, marks=pytest.mark.exhaustive) for body in ("in waves", "sort")),
    ],
)
def test_derivatives_of_third_order(body):
    x, w = jnp.float32(0.7), jnp.float32(0.55)
    found, want = (_thrice(recursion(lang, BODIES[body]))(w, x) for lang in (JAXREC, PYTHON))
    assert_close(found, want, 1e-3)


@pytest.mark.parametrize("take", [_of_value, _of_force, _thrice], ids=lambda take: take.__name__)
def test_what_all_calls_share(take):
    """An outer value that a derivative is not taken by has no tangent to begin with."""

    def build(lang: Language) -> Any:
        @lang.rec_fn(max_calls=8)
        def f(x, w, n):
            def below():
                return in_waves(rounded(w)) * x + jnp.sin(f(0.9 * x, w, n - 1)) * rounded(x)

            return lang.cond(n == 0, lambda: x * rounded(w), below)

        return f

    x, w = jnp.float32(0.7), jnp.float32(0.55)
    assert_close(take(build(JAXREC))(w, x), take(build(PYTHON))(w, x), 1e-3)
