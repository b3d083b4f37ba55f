"""Scalar recursion on the native machine, against plain Python."""

from __future__ import annotations

import functools
import math
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from native_programs import PROGRAMS, is_native
from zoo import JAXREC, PYTHON, assert_close

import jaxrec as jr
from jaxrec.split._native_code import Builder

names = pytest.mark.parametrize("name", PROGRAMS)


@functools.cache
def program(name: str) -> tuple[Any, Any, tuple[Any, ...]]:
    """The program, its arguments, and what plain Python returns."""
    build, args = PROGRAMS[name]
    return build(JAXREC), build(PYTHON)(*jax.tree.map(jnp.asarray, args)), args


class TestPrograms:
    @names
    def test_eager(self, name):
        fun, want, args = program(name)
        assert is_native(fun, *args)
        assert_close(fun(*args), want, 1e-6)

    @names
    def test_types_are_those_of_the_reference(self, name):
        fun, _, args = program(name)
        got = fun(*args)
        with jr.executor("reference"):
            want = fun(*args)
        assert jax.tree.map(lambda x: (x.shape, x.dtype), got) == jax.tree.map(
            lambda x: (x.shape, x.dtype), want
        )

    @names
    def test_jit_needs_no_bound(self, name):
        fun, want, args = program(name)
        assert_close(jax.jit(fun)(*args), want, 1e-6)

    @names
    def test_vmap_over_the_last_argument(self, name):
        fun, _, args = program(name)
        last = jnp.asarray(args[-1])
        lanes = jnp.stack([last, last * 0, last - last // 2])
        axes = (*(None,) * (len(args) - 1), 0)
        got = jax.jit(jax.vmap(fun, axes))(*args[:-1], lanes)
        want = [fun(*args[:-1], x) for x in lanes]
        assert_close(got, jax.tree.map(lambda *x: jnp.stack(x), *want), 1e-6)

    @names
    @pytest.mark.parametrize("workers", [1, 2, 4])
    def test_number_of_workers_does_not_matter(self, name, workers):
        fun, want, args = program(name)
        assert_close(fun.with_options(workers=workers)(*args), want, 1e-6)


@jr.rec_fn
def fib(n):
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))


@jr.rec_fn
def down(n):
    return jr.cond(n == 0, lambda: 0, lambda: 1 + down(n - 1))


@jr.rec_fn
def noisy(n, x):
    """Three calls side by side, the middle one of another size, with floating results."""

    def inner():
        a, b, c = noisy(n - 1, x * 0.5), noisy(n // 2, x + 1), noisy(n - 2, x - 0.25)
        return a - b * 0.125 + c

    return jr.cond(n <= 0, lambda: x, inner)


class TestWorkers:
    """Large enough that threads start and steal."""

    @pytest.mark.parametrize("workers", [1, 2, 4, 8])
    def test_fib(self, workers):
        assert int(fib.with_options(workers=workers)(25)) == 75025

    @pytest.mark.parametrize("workers", [2, 3, 5])
    def test_floating_results_are_equal_to_the_bit(self, workers):
        alone = noisy.with_options(workers=1)(17, 0.3)
        for _ in range(5):
            assert noisy.with_options(workers=workers)(17, 0.3) == alone

    @pytest.mark.parametrize("workers", [1, 2, 4])
    def test_lanes(self, workers):
        n = jnp.array([3, 20, 0, 19, 11, 1] * 50)
        got = jax.vmap(fib.with_options(workers=workers))(n)
        np.testing.assert_array_equal(got, [fibonacci(int(k)) for k in n])

    def test_many_small_lanes(self):
        n = jnp.arange(30_000) % 7
        np.testing.assert_array_equal(
            jax.jit(jax.vmap(fib))(n), [fibonacci(k % 7) for k in range(30_000)]
        )

    def test_no_lanes(self):
        assert jax.vmap(fib)(jnp.zeros(0, int)).shape == (0,)

    def test_wrong_numbers_are_refused(self):
        with pytest.raises(jr.SignatureError, match=r"workers=-1 of fib: expected a number of"):
            fib.with_options(workers=-1)


def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


class TestTypes:
    @pytest.mark.parametrize("dtype", ["int8", "int16", "uint8", "uint16", "uint32", "int32"])
    def test_integers_wrap(self, dtype):
        with np.errstate(over="ignore"):
            want = [np.asarray(fibonacci(n)).astype(dtype) for n in range(20)]
        got = [fib_of(dtype)(jnp.asarray(n, dtype)) for n in range(20)]
        assert [x.dtype for x in got] == [dtype] * 20
        np.testing.assert_array_equal(got, want)

    @pytest.mark.parametrize("dtype", ["int64", "uint64", "float64"])
    def test_wide_types(self, dtype):
        with jax.enable_x64(True):
            got = fib_of(dtype)(jnp.asarray(21, dtype))
            assert got.dtype == dtype
            assert got == 10946

    @pytest.mark.parametrize("dtype", ["int64", "uint64"])
    def test_a_narrow_number_that_is_chosen_as_a_wide_one(self, dtype):
        @jr.rec_fn
        def f(a, n):
            chosen = jnp.where(a < 0, (a - 5).astype(dtype), a.astype(dtype))
            return jr.cond(n == 0, lambda: chosen, lambda: f(a, n - 1))

        with jax.enable_x64(True):
            for a in (-(2**31) + 2, -3, 7):
                a = jnp.int32(a)
                want = jnp.where(a < 0, (a - 5).astype(dtype), a.astype(dtype))
                assert is_native(f, a, 1)
                assert f(a, 1) == want

    def test_division_by_zero_and_shifts_as_xla(self):
        @jr.rec_fn
        def f(n, a, b):
            def inner():
                x, y = f(n - 1, b, a)
                return x + jax.lax.div(a, b) ^ (a << b), y + jax.lax.rem(a, b) - (a >> b)

            return jr.cond(n == 0, lambda: (a, b), inner)

        values = jnp.array([0, 1, -1, 31, 32, 2**31 - 1, -(2**31), 7])
        a, b = map(jnp.ravel, jnp.meshgrid(values, values))
        got = jax.vmap(lambda x, y: f(1, x, y))(a, b)
        with jr.executor("reference"):
            want = jax.vmap(lambda x, y: f(1, x, y))(a, b)
        assert is_native(f, 1, 1, 1)
        np.testing.assert_array_equal(got, want)

    def test_not_a_number_takes_the_branch_that_it_should(self):
        @jr.rec_fn
        def f(x, n):
            return jr.cond(
                ~(x < 2.0), lambda: jr.cond(x >= 2.0, lambda: 1, lambda: 2), lambda: f(x + 1, n)
            )

        assert [int(f(x, 0)) for x in (0.0, 5.0, math.nan)] == [1, 1, 2]

    def test_other_functions_are_not_native(self):
        @jr.rec_fn
        def gamma(x, n):
            return jr.cond(n == 0, lambda: x, lambda: jax.lax.lgamma(gamma(x, n - 1)))

        assert not is_native(gamma, 0.3, 2)
        assert float(gamma(0.3, 2)) == pytest.approx(math.lgamma(math.lgamma(0.3)), rel=1e-4)


@functools.cache
def fib_of(dtype: str) -> Any:
    @jr.rec_fn
    def typed(n):
        one = jnp.asarray(1, dtype)
        return jr.cond(n <= one, lambda: n, lambda: typed(n - one) + typed(n - one - one))

    return typed


class TestLimits:
    def test_a_million_calls_deep(self):
        assert int(down(1_000_000)) == 1_000_000
        assert int(jax.jit(down)(1_000_000)) == 1_000_000

    def test_unbounded_recursion(self):
        with pytest.raises(
            jr.RecursionLimitError,
            match=r"down nested more than 1048576 calls deep.*down -> down\[0\] -> .* more\).*n=-",
        ):
            down(-1)

    def test_unbounded_recursion_under_jit(self):
        with pytest.raises(JaxRuntimeError, match="RecursionLimitError: down nested more than"):
            jax.block_until_ready(jax.jit(lambda n: down(n))(-1))

    def test_errors_do_not_depend_on_workers(self):
        @jr.rec_fn
        def trap(values, n):
            def inner():
                return trap(values, n - 1) + trap(values, n - 2)

            def base():
                return jr.cond(values[n + 1] == 0, lambda: 1, lambda: trap(values, n))

            return jr.cond(n < 2, base, inner)

        def message(workers):
            with pytest.raises(jr.JaxRecError, match=r"trap read values\[2\], .*2 elements") as e:
                trap.with_options(workers=workers)(jnp.zeros(2, int), 22)
            return str(e.value)

        assert message(1) == message(2) == message(4)
        assert "Call path: trap -> trap[0] -> trap[0] -> " in message(1)

    def test_declared_bound(self):
        bounded = fib.with_options(max_calls=1000)
        assert int(bounded(13)) == 233
        with pytest.raises(jr.CapacityError, match=r"fib made 21891 calls .* max_calls is 1000"):
            bounded(20)

    @pytest.mark.parametrize(
        "run",
        [
            lambda f: jax.vmap(f, (0, None))(jnp.ones(3), 5),
            lambda f: jax.vmap(jax.grad(f), (0, None))(jnp.ones(3), 5),
            lambda f: jax.jit(jax.vmap(jax.grad(f), (0, None)))(jnp.ones(3), 5),
            lambda f: jax.jacfwd(lambda a: f(a[0] * a[1] * a[2], 5))(jnp.ones(3)),
        ],
        ids=["vmap", "vmap of grad", "jit", "jacfwd"],
    )
    def test_calls_that_all_examples_make_count_once(self, run):
        @jr.rec_fn
        def power(x, n):
            return jr.cond(n == 0, lambda: x * 0 + 1.0, lambda: x * power(x, n - 1))

        assert jnp.all(run(power.with_options(max_calls=6)) > 0)
        message = r"power made 6 calls .* max_calls is 5\. Pass rec_fn\(max_calls=6\)"
        with pytest.raises((jr.CapacityError, JaxRuntimeError), match=message):
            run(power.with_options(max_calls=5))

    def test_first_call_is_quick(self):
        text = (
            "import time, jax, jaxrec as jr\n"
            "@jr.rec_fn\n"
            "def fib(n):\n"
            "    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))\n"
            "jax.numpy.zeros(3) + 1\n"
            "start = time.process_time()\n"
            "assert int(fib(20)) == 6765\n"
            "assert time.process_time() - start < 0.5\n"
        )
        subprocess.run([sys.executable, "-c", text], check=True, timeout=60)


class TestTransformations:
    def test_gradient_with_respect_to_a_floating_argument(self):
        fun, _, (x, n) = program("horner")
        python = PROGRAMS["horner"][0](PYTHON)
        got = jax.grad(fun)(x, n)
        assert got == pytest.approx(float(jax.grad(python)(x, n)), rel=1e-5)
        value, again = jax.value_and_grad(fun)(x, n)
        assert value == pytest.approx(float(fun(x, n)), rel=1e-6)
        assert again == got

    def test_outer_arrays_by_lane(self):
        fun, _, (tree, root) = program("tree_statistics")
        trees = jax.tree.map(lambda x: jnp.stack([x, x[::1] * 1]), tree)
        trees = trees._replace(token=trees.token.at[1].add(1))
        got = jax.vmap(fun, (0, None))(trees, root)
        want = [fun(jax.tree.map(lambda x, k=k: x[k], trees), root) for k in range(2)]
        assert_close(got, jax.tree.map(lambda *x: jnp.stack(x), *want), 0)

    def test_two_axes(self):
        fun, _, args = program("gcd")
        a, b = jnp.arange(1, 5) * args[0], jnp.arange(3) * args[1]
        got = jax.vmap(jax.vmap(fun, (None, 0)), (0, None))(a, b)
        np.testing.assert_array_equal(got, np.gcd(a[:, None], b[None]))

    def test_inside_other_code(self):
        @jax.jit
        def around(x):
            return fib(x + 1) * 2 + down(x)

        assert int(around(9)) == 2 * 55 + 9

    def test_no_trace_and_no_compilation_after_the_first_call(self):
        fun = fib.with_options()
        fun(3)
        before = fun.cache_info()
        for n in range(5):
            fun(n)
        assert fun.cache_info() == before

    def test_results_are_arrays_of_jax(self):
        @jr.rec_fn
        def power(n):
            return jr.cond(n == 0, lambda: 1.0, lambda: 2.0 * power(n - 1))

        @jr.rec_fn
        def scaled(x, n):
            return jr.cond(n == 0, lambda: x, lambda: 2.0 * scaled(x, n - 1))

        n = jnp.array([3, 4])
        primal, tangent = jax.jvp(lambda x: (scaled(x, 3), power(3)), (1.0,), (1.0,))
        for result in (power(3), scaled(1.0, 3), jax.vmap(power)(n), *primal, *tangent):
            assert isinstance(result, jax.Array) and result.dtype == np.float32
            assert not result.committed

    def test_on_another_executor(self):
        with jr.executor("reference"):
            assert int(fib(8)) == 21


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
class TestAtTheEdge:
    def test_a_loop_over_nothing(self, executor):
        @jr.rec_fn
        def add(xs, n, c):
            def more():
                return add(xs, n - 1, jax.lax.scan(lambda a, x: (a + x, None), c, xs)[0])

            return jr.cond(n <= 0, lambda: c, more)

        with jr.executor(executor):
            assert int(add(jnp.arange(3), 2, 1)) == 7
            assert int(add(jnp.arange(0), 2, 1)) == 1

    def test_the_sign_of_a_sum_of_zeros(self, executor):
        @jr.rec_fn
        def total(x, n):
            return jr.cond(n <= 0, lambda: 1 / jnp.sum(x), lambda: total(1.0 * x, n - 1))

        with jr.executor(executor):
            assert float(total(jnp.array([-0.0, -0.0]), 1)) == math.inf
            assert float(total(jnp.array([-0.0]), 1)) == -math.inf


class TestSharing:
    """`memo=True` on the native machine."""

    def test_fibonacci_is_linear(self):
        @jr.rec_fn(memo=True)
        def shared(n):
            return jr.cond(n < 2, lambda: n, lambda: shared(n - 1) + shared(n - 2))

        with jax.enable_x64(True):
            assert is_native(shared, jnp.int64(90))
            assert int(shared(jnp.int64(90))) == fibonacci(90)
            assert int(jax.jit(shared)(jnp.int64(90))) == fibonacci(90)
            lanes = jax.vmap(shared)(jnp.array([80, 3, 80, 70], jnp.int64))
            assert lanes.tolist() == [fibonacci(n) for n in (80, 3, 80, 70)]
            with pytest.raises(jr.CapacityError, match="shared made 91 calls"):
                shared.with_options(max_calls=90)(jnp.int64(90))

    @pytest.mark.parametrize("executor", ["graph", "reference"])
    def test_lanes_share_nothing(self, executor):
        @jr.rec_fn(memo=True)
        def shared(n):
            return jr.cond(n < 2, lambda: n, lambda: shared(n - 1) + shared(n - 2))

        lanes = jnp.array([5, 5, 6])
        with jr.executor(executor):
            assert jax.vmap(shared.with_options(max_calls=19))(lanes).tolist() == [5, 5, 8]
            with pytest.raises(jr.CapacityError, match=r"made 19 calls .* max_calls is 18"):
                jax.vmap(shared.with_options(max_calls=18))(lanes)

    def test_outer_arrays_by_lane_share_nothing(self):
        @jr.rec_fn(memo=True)
        def paths(children, i):
            def inner():
                return paths(children, children[i, 0]) + paths(children, children[i, 1])

            return jr.cond(i >= 6, lambda: i, inner)

        one = jnp.stack([jnp.arange(1, 7), jnp.arange(1, 7) + 1], 1)
        both = jnp.stack([one, one.at[:, 1].add(1)])
        got = jax.vmap(paths, (0, None))(both, 0)
        assert got.tolist() == [int(paths(x, 0)) for x in both]

    def test_a_call_of_itself(self):
        @jr.rec_fn(memo=True)
        def loop(n):
            return jr.cond(n == 0, lambda: 0, lambda: loop(n % 3) + 1)

        with pytest.raises(
            jr.RecursionLimitError, match=r"loop calls itself with equal arguments .* loop\[0\]"
        ):
            loop(5)


INTERRUPTED = """
import gc, os, signal, threading, time, jaxrec as jr

@jr.rec_fn(workers={workers})
def fib(n):
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

fib(5)
gc.disable()  # a collection that is interrupted reports it and goes on
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
start = time.monotonic()
try:
    fib(60)
except KeyboardInterrupt:
    print(time.monotonic() - start)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_long_run_can_be_interrupted(workers: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED.format(workers=workers)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert float(done.stdout) < 10


def test_a_loop_that_vmap_maps_is_not_for_the_machine():
    @jr.rec_fn
    def lanes(n):
        def inner():
            def turned(k):
                return jax.lax.while_loop(lambda c: c < 20 + k, lambda c: c * 2 + k, n)

            ends = jax.vmap(turned)(jnp.arange(3))
            return ends[0] + ends[2] * lanes(n - 1)

        return jr.cond(n < 1, lambda: 1, inner)

    with jr.executor("reference"):
        want = int(lanes(3))
    assert int(lanes(3)) == want
    assert not is_native(lanes, 3)


def test_a_constant_that_is_no_normal_float32():
    """A float64 is compared with it as it is."""

    @jr.rec_fn
    def halvings(x, n):
        return jr.cond(x < 2.0**-130, lambda: n, lambda: halvings(x * 0.5, n + 1))

    with jax.enable_x64(True):
        x = jnp.float64(2.0**-120)
        assert is_native(halvings, x, 0)
        assert halvings(x, 0) == jax.jit(halvings)(x, 0) == 11


def test_calls_with_constants_stand_side_by_side(monkeypatch):
    """Else no worker can take the second one."""
    made = []

    class Recorded(Builder):
        def __init__(self, num_params):
            super().__init__(num_params)
            made.append(self)

    monkeypatch.setattr("jaxrec.split._native.Builder", Recorded)

    @jr.rec_fn
    def counted(n, k):
        return jr.cond(n < 2, lambda: k, lambda: counted(n - 1, 0) + counted(n - 2, 1))

    assert counted(10, 1) == 55
    (builder,) = made
    forms = [instr.form for instr in builder.code]
    first = forms.index("CALL")
    assert forms[first : first + 2] == ["CALL", "CALL"]
