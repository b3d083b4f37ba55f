"""Functions of the C library in scalar recursion on the native machine, against XLA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from native_programs import is_native
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])
EVERYWHERE = [0.0, -0.0, 0.3, -0.7, 1.0, -1.0, 2.5, -6.0, 30.0, 1e-20, np.inf, -np.inf, np.nan]


def cubic(x: Any) -> Any:
    return jnp.polyval(jnp.array([0.3, -1.0, 0.5, 2.0], x.dtype), x)


def slope_of_tanh(x: Any) -> Any:
    return jax.jvp(jnp.tanh, (x,), (jnp.ones_like(x),))[1]


FUNCTIONS: list[Callable[..., Any]] = [
    *(lax.exp, lax.exp2, lax.expm1, lax.log, lax.log1p, lax.rsqrt, lax.cbrt, lax.sin, lax.cos),
    *(lax.tan, lax.asin, lax.acos, lax.atan, lax.sinh, lax.cosh, lax.tanh, lax.asinh, lax.acosh),
    *(lax.atanh, lax.logistic, lax.erf, lax.erfc, jnp.log2, cubic),
    slope_of_tanh,
]
OF_TWO: list[Callable[..., Any]] = [lax.pow, lax.atan2]
ULPS = 8


def after_two_calls(fun: Callable[..., Any], *args: Any) -> Any:
    """A function of the arguments as a scalar recursion computes it, for each element of them."""

    @jr.rec_fn
    def f(args: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: fun(*args), lambda: f(args, n - 1))

    assert is_native(f, tuple(x[0] for x in args), 1)
    return jax.vmap(f, (0, None))(args, 1)


def check(fun: Callable[..., Any], *args: Any) -> None:
    found, exact = after_two_calls(fun, *args), jax.jit(fun)(*args)
    close = ULPS * float(jnp.finfo(exact.dtype).eps)
    np.testing.assert_allclose(found, exact, rtol=close, atol=close)


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
class TestFunctions:
    @pytest.mark.parametrize("fun", FUNCTIONS, ids=lambda f: f.__name__)
    def test_of_one_number(self, fun, double):
        with jax.enable_x64(double):
            check(fun, jnp.array([*EVERYWHERE, *np.linspace(-8, 8, 50)], dtype=float))

    @pytest.mark.parametrize("fun", OF_TWO, ids=lambda f: f.__name__)
    def test_of_two_numbers(self, fun, double):
        with jax.enable_x64(double):
            x, y = map(jnp.ravel, jnp.meshgrid(*[jnp.array(EVERYWHERE, dtype=float)] * 2))
            check(fun, x, y)

    def test_powers_by_integers(self, double):
        with jax.enable_x64(double):
            x, n = map(jnp.ravel, jnp.meshgrid(jnp.array([0.0, -1.5, 3.0]), jnp.arange(-3, 4)))
            check(lax.pow, x, n)


def quadrature(lang: Language) -> Any:
    """Simpson's rule where it is good enough, in halves elsewhere."""

    def height(w, x):
        return jnp.exp(-w * x * x) * jnp.sin(3 * x)

    def rule(w, a, b):
        return (b - a) / 6 * (height(w, a) + 4 * height(w, (a + b) / 2) + height(w, b))

    @lang.rec_fn
    def area(w, a, b, n):
        middle = (a + b) / 2
        whole, halves = rule(w, a, b), rule(w, a, middle) + rule(w, middle, b)
        return lang.cond(
            (jnp.abs(halves - whole) < 1e-3) | (n == 0),
            lambda: halves,
            lambda: area(w, a, middle, n - 1) + area(w, middle, b, n - 1),
        )

    return area


def walk(lang: Language) -> Any:
    """Small vectors, a loop, and functions that are computed from others."""

    @lang.rec_fn
    def walk(x, n):
        def step():
            y = jax.nn.sigmoid(x) - jnp.logaddexp(x, 0.5 * x[::-1])
            y = lang.fori_loop(0, 3, lambda k, y: jnp.arctan2(y, 2.0 + jnp.cos(k * y)), y)
            return jnp.hypot(x, 1.0) * walk(y, n - 1) ** 2.5

        return lang.cond(n == 0, lambda: jax.nn.softplus(x), step)

    return walk


PROGRAMS: dict[Any, tuple[Any, ...]] = {
    quadrature: (0.7, 0.0, 3.0, 5),
    walk: (jnp.array([0.4, -0.9, 1.3]), 3),
}
programs = pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)


def total(fun: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: jnp.sum(fun(*args))


@programs
class TestPrograms:
    @executors
    def test_value_and_gradient(self, build, executor):
        first, *rest = PROGRAMS[build]
        want = jax.value_and_grad(total(build(PYTHON)))(jnp.asarray(first), *rest)
        with jr.executor(executor):
            found = jax.value_and_grad(total(build(JAXREC)))(first, *rest)
        assert_close(found, want, 1e-5)

    def test_compiled_without_a_bound(self, build):
        first, *rest = PROGRAMS[build]
        assert is_native(build(JAXREC), first, *rest)
        slope = jax.jit(jax.grad(total(build(JAXREC))))
        assert_close(slope(first, *rest), jax.grad(total(build(PYTHON)))(first, *rest), 1e-5)

    def test_second_derivative(self, build):
        first, *rest = PROGRAMS[build]
        want = jax.hessian(total(build(PYTHON)))(first, *rest)
        assert_close(jax.hessian(total(build(JAXREC)))(first, *rest), want, 1e-4)

    def test_calls_are_those_of_the_schedule(self, build):
        fun, args = build(JAXREC).with_options(max_calls=100), PROGRAMS[build]
        found, calls = jr.collect(fun)(*args)
        assert int(calls.valid.sum()) == fun.schedule(*args).num_calls > 3
        assert_close(fun(*args), found, 1e-6)


def test_larger_arrays_are_for_waves():
    @jr.rec_fn
    def sines(x, n):
        return jr.cond(n == 0, lambda: x, lambda: jnp.sin(sines(x, n - 1)))

    assert is_native(sines, jnp.ones(16), 2)
    assert not is_native(sines, jnp.ones(17), 2)
    for x in (jnp.linspace(0, 1, 16), jnp.linspace(0, 1, 17)):
        np.testing.assert_allclose(sines(x, 2), jnp.sin(jnp.sin(x)), rtol=1e-6)


def test_choices_of_waves_are_cells():
    """What decides there must be what cells compute, to the last bit."""

    @jr.rec_fn(max_calls=100)
    def f(w, x):
        below = lambda: f(w, x / 2) @ w  # noqa: E731
        return jr.cond(jnp.exp(x) < 1.5, lambda: jnp.full(3, jnp.exp(x)), below)

    matrix, plain = jnp.eye(3) * 0.9, np.exp(np.float32(3.0) / 8)
    assert not is_native(f, matrix, 3.0)
    np.testing.assert_allclose(f(matrix, 3.0), np.full(3, plain * 0.9**3), rtol=1e-5)
