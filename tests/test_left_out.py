"""Calls that the derivative leaves out: what is infinite in them adds nothing to it.

The programs have infinite derivatives at zero, in calls whose result no derivative flows to, or
whose arguments have no tangent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from split import program_of
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr
from jaxrec._types import has_derivative
from jaxrec.graph._resting import Asked
from jaxrec.split._resting import derived_in_part, moved_in_part

SIZE = 12
"""Too many numbers for the native machine."""

Program = Callable[[Language], Any]

still = jax.lax.stop_gradient


def stopped(lang: Language) -> Any:
    """The result of a call is a constant; what all calls share has a derivative in it."""

    @lang.rec_fn
    def stopped(x, w, n):
        def node():
            return still(stopped(x, w, n - 1)) + x @ w

        return lang.cond(n == 0, lambda: jnp.linalg.norm(x) + w[0], node)

    return stopped


def decided(lang: Language) -> Any:
    """It is read as a predicate and as an integer."""

    @lang.rec_fn
    def decided(x, w, n):
        def node():
            below = decided(x, w, n - 1)
            return jnp.where(below > 0, 1.0, 2.0) * (x @ w) + below.astype(jnp.int32)

        return lang.cond(n == 0, lambda: jnp.sqrt(x), node)

    return decided


def untaken(lang: Language) -> Any:
    """It is read in a branch that is not taken."""

    @lang.rec_fn
    def untaken(x, w, n):
        def node():
            below = untaken(x, w, n - 1)
            return lang.cond(n == 2, lambda: jnp.tanh(below @ w), lambda: 2.0 * x)

        return lang.cond(n == 0, lambda: jnp.sqrt(x) + w[0], node)

    return untaken


def compared(lang: Language) -> Any:
    """The larger of two results, which only the results can tell."""

    @lang.rec_fn
    def compared(x, w, n):
        def node():
            one, other = compared(x, w, n - 1), jnp.tanh(compared(x + 1.0, w, n - 1) @ w)
            return lang.cond(jnp.sum(one) > 1e3, lambda: one, lambda: other)

        return lang.cond(n == 0, lambda: jnp.sqrt(x), node)

    return compared


def ignored(lang: Language) -> Any:
    """An argument that calls do not read."""

    @lang.rec_fn
    def ignored(x, y, w, n):
        def node():
            own = lang.cond(n > 5, lambda: y, lambda: x)
            return ignored(x + 1.0, jnp.sqrt(x), w, n - 1) + own @ w

        return lang.cond(n == 0, lambda: jnp.ones(SIZE), node)

    return lambda x, w, n: ignored(x, x, w, n)


def beside(lang: Language) -> Any:
    """One of two results, which one cell computes."""

    @lang.rec_fn
    def both(x, w, n):
        def node():
            one, other = both(x, w, n - 1)
            return one @ w + x, still(other) * x

        return lang.cond(n == 0, lambda: (2.0 * x, jnp.sqrt(x)), node)

    return lambda x, w, n: sum(both(x, w, n))


def solved(lang: Language) -> Any:
    """Linear systems and factors of a singular matrix."""

    @lang.rec_fn
    def solved(x, w, n):
        def leaf():
            singular = jnp.eye(SIZE) * x[0] + jnp.outer(x, x)
            return jnp.linalg.solve(w * x[0], x) + jnp.linalg.cholesky(singular)[0]

        return lang.cond(n == 0, leaf, lambda: (solved(x, w, n - 1) > 0) * x + x @ w)

    return solved


def multiplied(lang: Language) -> Any:
    """A row that is infinite, which weights multiply."""

    @lang.rec_fn
    def multiplied(x, w, n):
        def node():
            return x * jnp.argmax(multiplied(x, w, n - 1)) + x @ w

        return lang.cond(n == 0, lambda: jnp.log(x) @ w, node)

    return multiplied


def looped(lang: Language) -> Any:
    """Loops without calls."""

    @lang.rec_fn
    def looped(x, w, n):
        def leaf():
            def turn(state, _):
                state = lang.cond(n == 0, lambda: jnp.sqrt(state), lambda: state)
                return state, state @ w

            state, seen = lang.scan(turn, x, jnp.arange(3))
            return state + seen[0]

        return lang.cond(n == 0, leaf, lambda: (looped(x, w, n - 1) > 0) * x + x @ w)

    return looped


def summed(lang: Language) -> Any:
    """A loop whose turns use what all calls share."""

    @lang.rec_fn
    def summed(x, w, n):
        def leaf():
            return lang.scan(lambda state, _: (jnp.log(x) @ w + state, state), x, jnp.arange(2))[0]

        return lang.cond(n == 0, leaf, lambda: (summed(x, w, n - 1) > 0) * x + x @ w)

    return summed


def closed_over(lang: Language) -> Any:
    """A loop that takes it for a constant."""

    @lang.rec_fn
    def closed_over(x, w, n):
        def node():
            below = closed_over(x, w, n - 1)

            def turn(state, _):
                return jnp.where(below > 0, state @ w, still(below)) + x, state

            return jax.lax.scan(turn, x + 1.0, None, length=2)[0]

        return lang.cond(n == 0, lambda: jnp.sqrt(x), node)

    return closed_over


def rounded(lang: Language) -> Any:
    """Operations whose derivative is zero, and a rule without one."""

    @jax.custom_vjp
    def straight(below, x):
        return jnp.round(below) + x

    straight.defvjp(lambda below, x: (straight(below, x), None), lambda _, ct: (None, ct))

    @lang.rec_fn
    def rounded(x, w, n):
        def node():
            below = rounded(x, w, n - 1)
            return straight(below, jnp.sign(below) * (x @ w)) + jnp.floor(below) * x

        return lang.cond(n == 0, lambda: jnp.sqrt(x), node)

    return rounded


def factored(lang: Language) -> Any:
    """One of two results of an operation."""

    @lang.rec_fn
    def factored(x, w, n):
        values, vectors = jnp.linalg.eigh(jnp.diag(x) + 0.0 * w)

        def node():
            below = factored(x, w, n - 1)
            return lang.cond(n > 5, lambda: vectors @ below, lambda: below @ w) + values

        return lang.cond(n == 0, lambda: values + x, node)

    return factored


def convolved(lang: Language) -> Any:
    """Convolutions, and systems of three diagonals."""

    @lang.rec_fn
    def convolved(x, w, n):
        def leaf():
            solved = jax.lax.linalg.tridiagonal_solve(x, x, x, jnp.ones((SIZE, 1)))
            return jnp.convolve(jnp.log(x), w[0], mode="same") + solved[:, 0]

        return lang.cond(n == 0, leaf, lambda: (convolved(x, w, n - 1) > 0) * x + x @ w)

    return convolved


def channels(lang: Language) -> Any:
    """Convolutions of which image and kernel are of each call, and one channel is read."""

    @lang.rec_fn
    def channels(x, w, n):
        def convolved():
            image = jnp.stack([jnp.outer(x, x), jnp.outer(x + 1.0, w[0])])[None]
            kernel = w[:3, :3] * jnp.sum(jnp.cos(x)) * jnp.arange(1.0, 5.0).reshape(2, 2, 1, 1)
            out = jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME")
            wide = jax.lax.conv_general_dilated(image, kernel[:1], (1, 1), "SAME")
            return (out[0, 1] + wide[0, 0]).sum(0)

        def node():
            below = channels(jnp.tanh(x @ w), w, n - 1)
            return lang.cond(n == 1, lambda: below + x, lambda: (below > 0) * x + convolved())

        return lang.cond(n == 0, convolved, node)

    return channels


def infinite(lang: Language) -> Any:
    """An argument that is infinite, in a product."""

    @lang.rec_fn
    def infinite(y, x, w, n):
        def node():
            return still(infinite(y + jnp.inf, x, w, n - 1) > 0) * x + x @ w

        return lang.cond(n == 0, lambda: y @ w, node)

    return lambda x, w, n: infinite(x, x, w, n)


def before(lang: Language) -> Any:
    """What a choice without calls reads in one branch, and that is computed before."""

    @lang.rec_fn
    def before(x, w, n):
        def node():
            solved = jnp.linalg.solve(jnp.eye(SIZE) * x[n], x)
            below = before(x, w, n - 1)
            return below + lang.cond(x[n] > 0, lambda: solved * below, lambda: x @ w)

        return lang.cond(n == 0, lambda: x, node)

    return before


def unmoved(lang: Language) -> Any:
    """An argument that has no tangent in any call."""

    @lang.rec_fn
    def unmoved(y, x, w, n):
        def node():
            return unmoved(0.5 * y, jnp.tanh(x), w, n - 1) + x @ w

        return lang.cond(n == 0, lambda: x * jnp.sqrt(y), node)

    return lambda x, w, n: unmoved(jnp.zeros(SIZE), x, w, n)


def spread_out(lang: Language) -> Any:
    """One without a tangent, which a body maps beside what is mapped."""

    @lang.rec_fn
    def spread_out(x, w, n):
        def leaf():
            return jnp.exp(x) + jax.vmap(lambda row: x * row / jnp.exp(x))(w).sum(0)

        return lang.cond(n == 0, leaf, lambda: spread_out(still(x), w, n - 1) + x @ w)

    return spread_out


def at_rest(lang: Language) -> Any:
    """An argument without a tangent."""

    @lang.rec_fn
    def at_rest(x, w, n):
        def node():
            return at_rest(still(0.0 * x), w, n - 1) + x @ w

        return lang.cond(n == 0, lambda: jnp.sqrt(x) + jnp.linalg.norm(x), node)

    return at_rest


def constant(lang: Language) -> Any:
    """A result without a tangent."""

    @lang.rec_fn
    def constant(x, w, n):
        def node():
            return jnp.sqrt(constant(x, w, n - 1)) + 1.0 + x @ w

        return lang.cond(n == 0, lambda: jnp.zeros(SIZE), node)

    return constant


PROGRAMS = (stopped, decided, untaken, compared, ignored, beside, solved, multiplied, looped)
PROGRAMS += (summed, closed_over, rounded, factored, convolved, infinite, at_rest, constant)
PROGRAMS += (unmoved, spread_out, before, channels)
FORWARD = tuple(program for program in PROGRAMS if program is not rounded)  # JAX' custom_vjp


def gradient(fun: Any) -> Any:
    return jax.grad(lambda *args: jnp.sum(jnp.sin(fun(*args))), (0, 1))


def tangent(fun: Any) -> Any:
    return lambda x, w, n: jax.jvp(lambda x: fun(x, w, n), (x,), (jnp.ones_like(x),))[1]


def curvature(fun: Any) -> Any:
    return tangent(lambda *args: gradient(fun)(*args)[0])


def arguments() -> tuple[Any, ...]:
    w = 0.3 * np.random.default_rng(0).normal(size=(SIZE, SIZE))
    return jnp.zeros(SIZE), jnp.asarray(w, jnp.float32), 3


@pytest.mark.parametrize("executor", ("graph", "host"))
@pytest.mark.parametrize(
    ("derivative", "program"),
    [(gradient, program) for program in PROGRAMS] + [(tangent, program) for program in FORWARD],
    ids=lambda part: part.__name__,
)
def test_derivatives_are_those_of_python(
    derivative: Callable[[Any], Any], program: Program, executor: str
) -> None:
    args = arguments()
    with jr.executor(executor):
        got = derivative(program(JAXREC))(*args)
    expected = derivative(program(PYTHON))(*args)
    assert all(jnp.isfinite(x).all() for x in jax.tree.leaves(expected))
    assert_close(got, expected, 1e-4)


@pytest.mark.parametrize("program", (untaken, compared, before))
def test_reference(program: Program) -> None:
    args = arguments()
    with jr.executor("reference"):
        got = gradient(program(JAXREC))(*args)
    assert_close(got, gradient(program(PYTHON))(*args), 1e-4)


@pytest.mark.parametrize("program", (stopped, compared, beside, at_rest))
def test_in_lanes_and_directions(program: Program) -> None:
    x, w, n = arguments()
    xs = jnp.stack([x, x + 1.0, x])
    fun, plain = program(JAXREC), program(PYTHON)
    mapped = jax.vmap(gradient(fun), (0, None, None))(xs, w, n)
    found = [gradient(plain)(row, w, n) for row in xs]
    expected = [jnp.stack(rows) for rows in zip(*found, strict=True)]
    assert_close(mapped, tuple(expected), 1e-4)
    for jacobian in (jax.jacrev, jax.jacfwd):
        assert_close(jacobian(fun)(x, w, n), jacobian(plain)(x, w, n), 1e-4)


@pytest.mark.parametrize("program", (stopped, decided, beside, at_rest, constant, looped))
def test_second_derivatives(program: Program) -> None:
    args = arguments()
    assert_close(curvature(program(JAXREC))(*args), curvature(program(PYTHON))(*args), 1e-4)


def test_what_every_call_derives_is_as_in_jax() -> None:
    @jr.rec_fn
    def total(x, n):
        return jr.cond(n == 0, lambda: 0.0 * jnp.sqrt(x), lambda: jnp.tanh(total(x, n - 1)))

    assert jnp.isnan(jax.grad(lambda x: total(x, 3).sum())(jnp.zeros(SIZE))).all()


def parts(program: Program) -> tuple[int, int]:
    """How many cells of a program derive for calls that are left out, backward and forward."""
    made = program_of(program(JAXREC), *arguments())[1]
    by = tuple(k for k, value in enumerate(made.operands) if has_derivative(value.aval))
    return len(derived_in_part(made, Asked(frozenset({0})))), len(moved_in_part(made, by))


def attending(lang: Language) -> Any:
    """Every call and operation is derived in every call."""

    @lang.rec_fn
    def attending(x, w, n):
        def node():
            one, other = attending(x @ w, w, n - 1), attending(x + 1.0, w, n - 1)
            weights = jax.nn.softmax(jnp.stack([one, other]), 0)
            return jnp.sqrt(1.0 + weights[0] * one + weights[1] * other)

        return lang.cond(n == 0, lambda: jnp.exp(x), node)

    return attending


def test_only_cells_of_which_calls_are_left_out_look_for_zeros() -> None:
    assert parts(attending) == (0, 0)
    for program in (stopped, untaken, at_rest, constant):
        assert any(parts(program)), program.__name__
