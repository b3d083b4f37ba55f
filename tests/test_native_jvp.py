"""Derivatives of scalar recursion on the native machine, against plain Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import in_turn
from hypothesis import given, settings
from hypothesis import strategies as st
from native_programs import is_native
from processes import check_in_a_process
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr
from jaxrec.primitives import _native_jvp

EXECUTORS = ("graph", "host")


def power(lang: Language) -> Any:
    @lang.rec_fn
    def power(x, n):
        return lang.cond(n == 0, lambda: 0 * x + 1.0, lambda: x * power(x, n - 1))

    return power


def newton(lang: Language) -> Any:
    """An argument that moves though it rests at the root."""

    @lang.rec_fn
    def newton(x, guess, n):
        def step():
            return newton(x, 0.5 * (guess + x / guess), n - 1)

        return lang.cond(n == 0, lambda: guess, step)

    return newton


def horner(lang: Language) -> Any:
    """An array that all calls read."""

    @lang.rec_fn
    def horner(coefficients, x, n):
        def more():
            return coefficients[n] + x * horner(coefficients, x, n + 1)

        return lang.cond(n == coefficients.shape[0], lambda: 0.0, more)

    return horner


def branches(lang: Language) -> Any:
    """A choice by what moves, between what moves and what rests, of two results."""

    @lang.rec_fn
    def branches(x, y, n):
        def more():
            a, k = branches(x * 0.5, y + x, n - 1)
            b, _ = branches(y, jnp.abs(x) - 1.0, n - 2)
            return lang.cond(a < b, lambda: (a * y, k + 1), lambda: (jnp.sqrt(b * b + 1.0), k))

        return lang.cond(n <= 0, lambda: (lang.cond(x < y, lambda: 2.0, lambda: x * y), n), more)

    return branches


def mutual(lang: Language) -> Any:
    """Two functions with a loop, small arrays, and a value that no derivative flows through."""

    @lang.rec_fn
    def outer(x, n):
        start = jnp.stack([x, x * x, jax.lax.stop_gradient(x)])
        return lang.cond(n == 0, lambda: jnp.sum(start), lambda: inner(start, n))

    @lang.rec_fn
    def inner(v, n):
        y = lang.fori_loop(0, n, lambda k, y: y * v[0] + v[k % 3], v[2])
        return jnp.max(v) + outer(y / (1.0 + y * y), n - 1)

    return outer


def stopped(lang: Language) -> Any:
    """An argument that calls change, of which no derivative reaches the result."""

    @lang.rec_fn
    def stopped(x, y, n):
        def end():
            return x - jax.lax.stop_gradient(y)

        return lang.cond(n == 0, end, lambda: stopped(x * x, jnp.sin(y), n - 1))

    return stopped


PROGRAMS: dict[Any, tuple[Any, tuple[int, ...]]] = {
    power: ((1.3, 5), (0,)),
    newton: ((2.0, 1.5, 3), (0, 1)),
    horner: ((jnp.array([0.5, -1.0, 2.0]), 1.7, 0), (0, 1)),
    branches: ((0.7, -0.4, 5), (0, 1)),
    mutual: ((0.8, 3), (0,)),
    stopped: ((0.3, 0.4, 2), (0, 1)),
}

programs = pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)


def arrays(args: Any) -> Any:
    return jax.tree.map(jnp.asarray, args)


def first(fun: Any) -> Any:
    """The first leaf of a result, which is a number."""
    return lambda *args: jax.tree.leaves(fun(*args))[0]


pytestmark = pytest.mark.usefixtures("no_tapes")


@pytest.mark.parametrize(("build", "executor"), in_turn(PROGRAMS, EXECUTORS, 1))
class TestPrograms:
    def test_gradient(self, build, executor):
        args, moving = PROGRAMS[build]
        assert is_native(build(JAXREC), *args)
        want = jax.value_and_grad(first(build(PYTHON)), moving)(*arrays(args))
        with jr.executor(executor):
            assert_close(jax.value_and_grad(first(build(JAXREC)), moving)(*args), want, 1e-5)

    def test_one_argument_at_a_time(self, build, executor):
        args, moving = PROGRAMS[build]
        for k in moving:
            want = jax.grad(first(build(PYTHON)), k)(*arrays(args))
            with jr.executor(executor):
                assert_close(jax.grad(first(build(JAXREC)), k)(*args), want, 1e-5)

    def test_forward(self, build, executor):
        args, moving = PROGRAMS[build]
        want = jax.jacfwd(first(build(PYTHON)), moving)(*arrays(args))
        with jr.executor(executor):
            assert_close(jax.jacfwd(first(build(JAXREC)), moving)(*args), want, 1e-5)

    def test_second_derivative(self, build, executor):
        args, moving = PROGRAMS[build]
        want = jax.hessian(first(build(PYTHON)), moving)(*arrays(args))
        with jr.executor(executor):
            assert_close(jax.hessian(first(build(JAXREC)), moving)(*args), want, 1e-4)

    def test_examples(self, build, executor):
        args, moving = PROGRAMS[build]
        lanes = [jnp.asarray(args[moving[-1]]) * scale for scale in (1.0, 0.5, 1.1)]
        axes = tuple(0 if k == moving[-1] else None for k in range(len(args)))
        ones = [(*args[: moving[-1]], x, *args[moving[-1] + 1 :]) for x in lanes]
        many = (*args[: moving[-1]], jnp.stack(lanes), *args[moving[-1] + 1 :])
        slopes = [jax.grad(first(build(PYTHON)), moving)(*arrays(one)) for one in ones]
        want = jax.tree.map(lambda *x: jnp.stack(x), *slopes)
        fun = jax.vmap(first(build(JAXREC)), axes)
        with jr.executor(executor):
            got = jax.vmap(jax.grad(first(build(JAXREC)), moving), axes)(*many)
            together = jax.grad(lambda *x: jnp.sum(fun(*x)), moving)(*many)
        assert_close(got, want, 1e-5)
        summed = [x if axes[k] == 0 else x.sum(0) for k, x in zip(moving, want, strict=True)]
        assert_close(together, tuple(summed), 1e-5)


@programs
def test_compiled_without_a_bound(build):
    args, moving = PROGRAMS[build]
    want = jax.value_and_grad(first(build(PYTHON)), moving)(*arrays(args))
    got = jax.jit(jax.value_and_grad(first(build(JAXREC)), moving))(*args)
    assert_close(got, want, 1e-5)


def test_an_array_that_differs_from_example_to_example():
    fun = horner(JAXREC)
    rows = jnp.arange(6.0).reshape(2, 3)

    def total(rows, x):
        return jnp.sum(jax.vmap(fun, (0, None, None))(rows, x, 0) * jnp.array([1.0, 3.0]))

    def written(rows, x):
        return jnp.sum(rows @ x ** jnp.arange(3.0) * jnp.array([1.0, 3.0]))

    assert_close(jax.grad(total, (0, 1))(rows, 0.5), jax.grad(written, (0, 1))(rows, 0.5), 1e-6)


def test_a_value_that_it_closes_over():
    def around(x):
        @jr.rec_fn
        def times(n):
            return jr.cond(n == 0, lambda: 1.0, lambda: x * times(n - 1))

        return times(3)

    assert float(jax.jit(jax.grad(around))(2.0)) == pytest.approx(12.0)


def test_a_branch_that_is_not_taken_has_no_part():
    @jr.rec_fn
    def total(x, n):
        root = jnp.sqrt(x)
        return jr.cond(n == 0, lambda: 0.0 * x, lambda: total(x * 0.0, n - 1) + root)

    assert float(jax.grad(total)(4.0, 1)) == pytest.approx(0.25)


def test_calls_that_are_shared():
    @jr.rec_fn(memo=True)
    def shared(x, n):
        return jr.cond(n < 2, lambda: x, lambda: shared(x, n - 1) * shared(x, n - 2))

    value, slope = jax.jit(jax.value_and_grad(shared))(1.0001, 20)
    assert float(value) == pytest.approx(1.0001**10946, rel=1e-3)
    assert float(slope) == pytest.approx(10946 * 1.0001**10945, rel=1e-3)


def test_more_calls_than_declared():
    declared = power(JAXREC).with_options(max_calls=6)
    assert float(jax.grad(declared)(2.0, 5)) == 80.0
    with pytest.raises(jr.CapacityError, match=r"made 7 calls .* max_calls is 6"):
        jax.grad(declared)(2.0, 6)


def test_one_trace_for_a_program():
    fun = power(JAXREC)
    jax.grad(fun)(2.0, 3)
    before = fun.cache_info()
    assert float(jax.grad(fun)(3.0, 2)) == 6.0
    assert fun.cache_info() == before


leaves = st.sampled_from(["x", "y"]) | st.floats(-2, 2, width=16)
expressions = st.recursive(
    leaves,
    lambda inner: (
        st.tuples(st.sampled_from(["+", "*", "-", "/", "min", "root"]), inner, inner)
        | st.tuples(st.just("call"), st.integers(1, 2), inner, inner)
        | st.tuples(st.just("if"), inner, inner, inner)
    ),
    max_leaves=6,
)


def evaluate(expression: Any, lang: Language, f: Any, x: Any, y: Any, n: Any) -> Any:
    def value(inner: Any) -> Any:
        return evaluate(inner, lang, f, x, y, n)

    match expression:
        case "x" | "y":
            return x if expression == "x" else y
        case float():
            return jnp.float32(expression)
        case ("call", step, a, b):
            return f(value(a), value(b), n - step)
        case ("if", test, a, b):
            return lang.cond(value(test) < 0.3, lambda: value(a), lambda: value(b))
        case ("+", a, b):
            return value(a) + value(b)
        case ("-", a, b):
            return value(a) - value(b)
        case ("*", a, b):
            return value(a) * value(b)
        case ("/", a, b):
            return value(a) / (1.0 + value(b) * value(b))
        case ("min", a, b):
            return jnp.minimum(value(a), value(b))
        case (_, a, b):
            return jnp.sqrt(1.0 + value(a) * value(a)) * value(b)


def random_function(lang: Language, expression: Any) -> Any:
    @lang.rec_fn
    def random(x, y, n):
        def inner():
            return evaluate(expression, lang, random, x, y, n)

        return lang.cond(n <= 0, lambda: x - y, inner)

    return random


@settings(max_examples=25, deadline=None, derandomize=True)
@given(expressions)
def test_random_programs(expression):
    native, python = (random_function(lang, expression) for lang in (JAXREC, PYTHON))
    assert is_native(native, 0.3, -0.7, 3)
    want = jax.value_and_grad(python, (0, 1))(jnp.float32(0.3), jnp.float32(-0.7), jnp.int32(3))
    assert_close(jax.value_and_grad(native, (0, 1))(0.3, -0.7, 3), want, 1e-4)


@pytest.mark.parametrize("numbers", [8, 9])
def test_with_many_numbers_a_schedule_takes_less(monkeypatch, numbers):
    runs, made = _native_jvp.native_jvp, []

    def native_jvp(*args):
        made.append(runs(*args))
        return made[-1]

    monkeypatch.setattr("jaxrec.primitives._rec.native_jvp", native_jvp)
    coefficients = jnp.linspace(-1.0, 1.0, numbers)
    got = jax.grad(horner(JAXREC))(coefficients, 0.9, 0)
    np.testing.assert_allclose(got, 0.9 ** np.arange(numbers), rtol=1e-5)
    assert [x is not None for x in made] == [numbers == 8]


@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
def test_on_several_devices(kind):
    script = f"""
        import jax
        import jax.numpy as jnp
        import jaxrec as jr
        from jax.sharding import AxisType, PartitionSpec as P

        @jr.rec_fn
        def newton(x, guess, n):
            more = lambda: newton(x, 0.5 * (guess + x / guess), n - 1)
            return jr.cond(n == 0, lambda: guess, more)

        def total(x):
            return jax.vmap(newton, (0, None, None))(x, 1.0, 6).sum()

        x = jnp.arange(1.0, 9.0)
        want = 0.5 / jnp.sqrt(x)
        mesh = jax.make_mesh((4,), ("b",), axis_types=(AxisType.{kind},))
        with jax.set_mesh(mesh):
            divided = jax.device_put(x, jax.sharding.NamedSharding(mesh, P("b")))
            assert jnp.allclose(jax.grad(total)(divided), want)
            assert jnp.allclose(jax.jit(jax.grad(total))(divided), want)
            each = jax.shard_map(jax.grad(total), in_specs=P("b"), out_specs=P("b"))
            assert jnp.allclose(jax.jit(each)(divided), want)
            sums = lambda x: jax.lax.psum(total(x), "b")
            whole = jax.shard_map(sums, in_specs=P("b"), out_specs=P())
            assert jnp.allclose(jax.jit(jax.grad(whole))(divided), want)
        assert jnp.allclose(jax.grad(total)(x), want)
        print("done")
    """
    check_in_a_process(script, devices=4)


def test_no_numbers_and_no_lanes():
    @jr.rec_fn
    def fun(x, more, n):
        last = lambda: x + jnp.sum(more)  # noqa: E731
        return jr.cond(n == 0, last, lambda: x * fun(x, more, n - 1))

    nothing = jnp.zeros(0)
    assert_close(jax.jit(jax.grad(fun, (0, 1)))(2.0, nothing, 3), (jnp.float32(32), nothing), 1e-6)
    assert jax.grad(fun, 1)(2.0, nothing, 3).shape == (0,)
    lanes = jax.vmap(fun, (0, None, None))
    assert jax.grad(lambda x: lanes(x, nothing, 3).sum())(nothing).shape == (0,)


def test_a_bound_on_calls_holds_where_only_the_derivative_is_asked_for():
    @jr.rec_fn(max_calls=5)
    def scaled(x, y, n):
        return jr.cond(n == 0, lambda: x * y, lambda: scaled(1.5 * x, y, n - 1))

    slopes = jax.jit(jax.grad(scaled, (0, 1)))
    assert_close(slopes(1.0, 2.0, 4), (2 * 1.5**4, 1.5**4), 1e-6)
    errors = jax.errors.JaxRuntimeError, ValueError  # of a jit that fails in its first call
    with pytest.raises(errors, match="CapacityError: scaled made"):
        jax.block_until_ready(slopes(1.0, 2.0, 5))
