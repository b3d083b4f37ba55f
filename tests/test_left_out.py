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
from hypothesis import given, settings
from hypothesis import strategies as st
from split import program_of
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr
from jaxrec._types import has_derivative
from jaxrec._zeros import keeping_zeros
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


@st.composite
def products(draw: st.DrawFn) -> tuple[Any, Any, Any, int]:
    """Operands of a `dot_general` with up to two axes of each kind, and the axis of rows."""
    sizes = st.lists(st.integers(1, 3), max_size=2)
    batch, summed, left, right = (draw(sizes) for _ in range(4))
    orders, operands = [], []
    for free in (left, right):
        order = draw(st.permutations(range(len(batch) + len(summed) + len(free))))
        shape = np.array([*batch, *summed, *free], int)[list(order)]
        place = [order.index(k) for k in range(len(order))]
        orders.append((place[: len(batch)], place[len(batch) : len(batch) + len(summed)]))
        operands.append(np.array(draw(st.lists(st.integers(-2, 2), min_size=1))))
        operands[-1] = np.resize(operands[-1], shape).astype(np.float32)
    numbers = ((orders[0][1], orders[1][1]), (orders[0][0], orders[1][0]))
    return (*operands, numbers, draw(st.integers(-1, operands[0].ndim - 1)))


@settings(max_examples=60, deadline=None)
@given(products(), st.booleans())
def test_products_with_zeros(product: Any, swapped: bool) -> None:
    """As where the infinite elements that meet zeros are zeros."""
    carried, other, (summed, batch), rows = product
    if swapped:
        summed, batch = summed[::-1], batch[::-1]

    def multiply(carried: Any, other: Any) -> Any:
        pair = (other, carried) if swapped else (carried, other)
        return jax.lax.dot_general(*pair, (summed, batch))

    closed = jax.make_jaxpr(multiply)(carried, other)
    axis = {closed.jaxpr.invars[0]: rows} if rows >= 0 else None
    (got,) = keeping_zeros(closed, [carried, other], [True, False], axis)
    np.testing.assert_array_equal(got, multiply(carried, other))
    (got,) = keeping_zeros(closed, [0 * carried, np.full_like(other, np.inf)], [True, False], axis)
    np.testing.assert_array_equal(got, 0 * multiply(carried, np.ones_like(other)))


def test_rows_of_zeros_add_nothing_to_sums() -> None:
    rows, other = np.eye(3, dtype=np.float32), np.full((3, 2), 7, np.float32)
    rows[1], other[1] = 0, np.inf

    def summed(rows: Any, other: Any) -> Any:
        return jax.lax.dot_general(rows, other, (((0,), (0,)), ((), ())))

    closed = jax.make_jaxpr(summed)(rows, other)
    (got,) = keeping_zeros(closed, [rows, other], [True, False], {closed.jaxpr.invars[0]: 0})
    np.testing.assert_array_equal(got, [[7, 7], [0, 0], [7, 7]])


def test_loops_carry_zeros_and_values() -> None:
    def turned(x: Any) -> Any:
        state = (0, x, jnp.ones_like(x))
        return jax.lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] ** 0.5, s[1]), state
        )

    def moved(x: Any, dot: Any) -> Any:
        outs, dots = jax.jvp(turned, (x,), (dot,))
        return *outs, *dots[1:]

    for x, dot in ((0.0, 0.0), (16.0, 1.0)):
        closed = jax.make_jaxpr(moved)(x, dot)
        got = keeping_zeros(closed, [x, dot], [False, True])
        expected = moved(x, dot) if dot else (3, x, x, 0.0, 0.0)
        np.testing.assert_allclose(got, expected, rtol=1e-6)
