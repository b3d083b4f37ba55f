"""Stepped recursion where it meets the rest of JAX: transformations, types, threads, failures."""

from __future__ import annotations

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.errors import JaxRuntimeError
from jax.sharding import PartitionSpec
from waves import in_waves, sine
from zoo import JAXREC, PYTHON, assert_close, normal

import jaxrec as jr

W = np.asarray([[0.4, -0.3, 0.1], [0.2, 0.5, -0.2], [-0.1, 0.3, 0.4]], np.float32)
X = np.asarray([1.0, 2.0, -1.5], np.float32)
XS = np.asarray([[1.0, 2.0, -1.5], [0.03, 0.1, 0.2], [4.0, -3.0, 2.0]], np.float32)


def shrinking(lang: Any) -> Any:
    """Goes on until an array is small."""

    @lang.rec_fn(max_calls=128)
    def shrink(w, x):
        return lang.cond(
            jnp.sum(jnp.abs(x)) < 0.5, lambda: x, lambda: shrink(w, jnp.tanh(x @ w)) + x
        )

    return shrink


shrink, plain = shrinking(JAXREC), shrinking(PYTHON)
free = shrink.with_options(max_calls=None)


def calls_of(x: Any) -> int:
    """The calls that `shrink` makes."""
    calls = 1
    while np.sum(np.abs(x)) >= 0.5:
        x, calls = np.tanh(x @ W), calls + 1
    return calls


def plain_gradient(x: Any) -> Any:
    return jax.grad(lambda w: jnp.sum(plain(w, x)))(W)


def stacked(items: list[Any]) -> Any:
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(a) for a in x]), *items)


class TestLanes:
    def test_one_lane_ends_at_once(self):
        xs = jnp.asarray([[0.1, 0.1, 0.1], [5.0, 5.0, 5.0]])
        want = jnp.stack([plain(W, x) for x in xs])
        assert_close(jax.vmap(shrink, (None, 0))(W, xs), want, 1e-5)
        assert_close(jax.vmap(shrink, (None, 0))(W, xs[:1]), want[:1], 1e-5)

    def test_no_lanes(self):
        run = jax.vmap(shrink, (None, 0))
        assert jax.jit(run)(W, XS[:0]).shape == (0, 3)
        assert_close(jax.grad(lambda w: jnp.sum(run(w, XS[:0])))(W), jnp.zeros((3, 3)), 1e-6)

    def test_mapped_outer_values(self):
        ws = jnp.stack([W, W * 0.5, W.T])
        got = jax.vmap(jax.vmap(shrink, (None, 0)), (0, None))(ws, XS)
        assert_close(got, stacked([stacked([plain(w, x) for x in XS]) for w in ws]), 1e-5)
        got = jax.jit(jax.vmap(jax.grad(lambda w, x: jnp.sum(shrink(w, x)))))(ws, XS)
        want = [
            jax.grad(lambda w, x: jnp.sum(plain(w, x)))(w, x) for w, x in zip(ws, XS, strict=True)
        ]
        assert_close(got, stacked(want), 1e-4)

    def test_mapped_table(self):
        tables = jnp.asarray(np.random.default_rng(0).integers(0, 20, (3, 20, 3)), jnp.int32)

        def walking(lang: Any) -> Any:
            @lang.rec_fn(max_calls=64)
            def walk(w, table, x, i, n):
                def go():
                    y = jnp.tanh(x @ w)
                    return walk(w, table, y, table[i, jnp.argmax(y)], n - 1) * 1.5

                return lang.cond((table[i, 0] < 5) | (n <= 0), lambda: x * i, go)

            return walk

        got = jax.vmap(walking(JAXREC), (None, 0, 0, None, None))(W, tables, XS, 3, 5)
        want = [walking(PYTHON)(W, table, x, 3, 5) for table, x in zip(tables, XS, strict=True)]
        assert_close(got, stacked(want), 1e-5)


class TestInPrograms:
    def test_closure_over_tracers(self):
        def total(w, x):
            @jr.rec_fn(max_calls=128)
            def inner(x):
                return jr.cond(
                    jnp.sum(jnp.abs(x)) < 0.5, lambda: x, lambda: inner(jnp.tanh(x @ w)) + x
                )

            return jnp.sum(inner(x))

        assert_close(jax.jit(jax.grad(total))(W, X), plain_gradient(X), 1e-4)

    def test_jit_inside_and_outside(self):
        @jr.rec_fn(max_calls=128)
        def inner(w, x):
            @jax.jit
            def is_small(x):
                return jnp.sum(jnp.abs(x)) < 0.5

            @jax.jit
            def step(x):
                return inner(w, jnp.tanh(x @ w)) + x

            return jr.cond(is_small(x), lambda: x, lambda: step(x))

        assert_close(jax.jit(jax.jit(inner))(W, X), plain(W, X), 1e-5)

    def test_static_function(self):
        @functools.partial(jr.rec_fn, max_calls=128, static_argnums=(0,))
        def inner(fun, w, x):
            more = lambda: inner(fun, w, fun(x @ w)) + x  # noqa: E731
            return jr.cond(jnp.sum(jnp.abs(x)) < 0.5, lambda: x, more)

        assert_close(inner(jnp.tanh, W, X), plain(W, X), 1e-5)
        assert not np.allclose(inner(jnp.sin, W, X), plain(W, X))

    def test_scan_around_calls(self):
        def total(run, w):
            def step(carry, x):
                return carry + jnp.sum(run(w, x + 0.1 * carry)), None

            return step

        got = jax.jit(jax.grad(lambda w: lax.scan(total(shrink, w), 0.0, XS)[0]))(W)

        def unrolled(w):
            carry = jnp.zeros(())
            for x in XS:
                carry, _ = total(plain, w)(carry, x)
            return carry

        assert_close(got, jax.grad(unrolled)(W), 1e-4)

    def test_in_a_branch_and_a_loop(self):
        assert_close(
            jax.jit(lambda b, x: lax.cond(b, lambda: shrink(W, x), lambda: x))(True, X),
            plain(W, X),
            1e-5,
        )
        got = jax.jit(lambda x: lax.fori_loop(0, 2, lambda _, x: shrink(W, x) * 0.5, x))(X)
        assert_close(got, plain(W, plain(W, X) * 0.5) * 0.5, 1e-5)

    def test_shard_map(self):
        mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
        run = jax.shard_map(
            jax.vmap(shrink, (None, 0)),
            mesh=mesh,
            in_specs=(PartitionSpec(), PartitionSpec("i")),
            out_specs=PartitionSpec("i"),
        )
        assert_close(jax.jit(run)(W, XS), stacked([plain(W, x) for x in XS]), 1e-5)

    def test_ahead_of_time_and_donated(self):
        compiled = jax.jit(shrink).lower(W, X).compile()
        assert_close(compiled(W, X), plain(W, X), 1e-5)
        donating = jax.jit(shrink, donate_argnums=1)
        for _ in range(2):
            assert_close(donating(W, jnp.asarray(X)), plain(W, X), 1e-5)

    def test_second_derivatives(self):
        got = jax.hessian(lambda x: jnp.sum(shrink(W, x)))(X)
        assert_close(got, jax.jacfwd(jax.grad(lambda x: jnp.sum(plain(W, x))))(X), 1e-3)
        want = jax.jacrev(lambda x: plain(W, x))(X)
        assert_close(jax.jacfwd(lambda x: shrink(W, x))(X), want, 1e-4)
        assert_close(jax.jacrev(lambda x: shrink(W, x))(X), want, 1e-4)

    def test_an_operation_at_a_time(self):
        with jax.disable_jit():
            assert_close(shrink(W, X), plain(W, X), 1e-5)


def deciding(lang: Any, dtype: Any) -> Any:
    """A result of a call decides by arithmetic in its type; so does an argument."""
    one, two, seven = (jnp.asarray(k, dtype) for k in (1, 2, 7))

    @lang.rec_fn(max_calls=256)
    def f(x, q, n):
        def more():
            y, r = f(sine(x) * 1.3, (q + jnp.sum(x).astype(dtype)).astype(dtype), n - 1)

            def again():
                z, s = f(y * 0.5, r, n - 2)
                return z + y, (s + r).astype(dtype)

            return lang.cond(r + one > two, again, lambda: (y * 2, (r * q).astype(dtype)))

        def stop():
            return x + q.astype(x.dtype), jnp.max(x).astype(dtype)

        return lang.cond((n <= 0) | (q > seven), stop, more)

    return f


NARROW = ["int8", "uint8", "uint16", "uint32", "float16", "bfloat16"]
WIDE = ["int64", "uint64", "float64"]


@pytest.mark.parametrize("dtype", NARROW + WIDE)
def test_types_of_what_decides(dtype):
    with jax.enable_x64(dtype in WIDE):
        x, qs = jnp.asarray(X), jnp.asarray([1, 0, 3], dtype)
        got = jax.jit(jax.vmap(deciding(JAXREC, dtype), (None, 0, None)))(x, qs, 4)
        want = stacked([deciding(PYTHON, dtype)(x, q, 4) for q in qs])
        assert_close(got, want, 1e-2 if "float16" in dtype else 1e-5)
        assert got[1].dtype == dtype


@pytest.mark.parametrize(
    "executor", ["graph", "host", pytest.param("reference", marks=pytest.mark.slow)]
)
def test_what_only_decides_has_no_derivative(executor):
    """Where the number that decides is 0, its derivative is infinite."""

    @jr.rec_fn
    def halved(y, h, n):
        a, b = y + h * jnp.sin(y), y + h * jnp.sin(y + h / 2 * jnp.sin(y))
        error = jnp.sqrt(((a - b) ** 2).sum())

        def go_on():
            again = lambda: halved(y, h / 2, n - 1)  # noqa: E731
            return jr.cond(error > 0.05, again, lambda: halved(b, h * 0, n - 1))

        return jr.cond(n == 0, lambda: y, go_on)

    def plain(y, h, n):
        if n == 0:
            return y
        a, b = y + h * jnp.sin(y), y + h * jnp.sin(y + h / 2 * jnp.sin(y))
        if jnp.sqrt(((a - b) ** 2).sum()) > 0.05:
            return plain(y, h / 2, n - 1)
        return plain(b, h * 0, n - 1)

    y = jnp.linspace(0.5, 1.0, 70)
    with jr.executor(executor):
        got = jax.grad(lambda y: jnp.sin(halved(y, 1.0, 6)).sum())(y)
        second = jax.grad(lambda y: jax.grad(lambda y: halved(y, 1.0, 6).sum())(y).sum())(y)
    assert_close(got, jax.grad(lambda y: jnp.sin(plain(y, 1.0, 6)).sum())(y), 1e-5)
    want = jax.grad(lambda y: jax.grad(lambda y: plain(y, 1.0, 6).sum())(y).sum())(y)
    assert_close(second, want, 1e-4)


class TestSharing:
    @staticmethod
    def going_on() -> Any:
        @jr.rec_fn(memo=True)
        def f(w, n):
            def inner():
                y = jnp.tanh(w @ f(w, n - 1)) + f(w, n - 2)
                return jr.cond(jnp.sum(y) < 1e9, lambda: y + f(w, n // 2), lambda: y)

            return jr.cond(n <= 0, lambda: w[0], inner)

        return f

    def test_number_of_calls(self):
        schedule = self.going_on().schedule(W, 20)
        assert schedule.num_calls == 22  # 20 to -1
        assert schedule.depth == 21

    def test_a_call_must_not_wait_for_itself(self):
        @jr.rec_fn(memo=True, max_calls=64)
        def f(w, n):
            def inner():
                k = (n + jnp.argmax(w[0] * n) + 1) % 4 + 1  # 1 -> 3 -> 1
                return f(w, k) * 2

            return jr.cond(n <= 0, lambda: w[0], inner)

        message = (
            r"f calls itself with equal arguments .* "
            r"f -> f\[0\] -> f\[0\] with arguments \(n=\d\)"
        )
        with pytest.raises(jr.RecursionLimitError, match=message):
            f(jnp.asarray(W), 1)
        with pytest.raises(JaxRuntimeError, match=message):
            jax.block_until_ready(jax.jit(f)(W, 1))


class TestReports:
    def test_schedule(self):
        schedule = free.schedule(W, X)
        assert schedule.num_calls == schedule.depth == calls_of(X)
        assert schedule.call_path(1) == "shrink -> shrink[0]"
        assert str(schedule)

    def test_profile(self, tmp_path):
        profile = free.profile(W, X)
        assert "shrink" in str(profile)
        profile.save_trace(tmp_path / "trace.json")
        assert (tmp_path / "trace.json").stat().st_size > 0

    def test_a_value_leaves_no_schedule(self):
        value = jax.jit(shrink).lower(W, X).as_text()
        assert "jaxrec_step_results" in value and "jaxrec_step_end" not in value
        slope = jax.jit(jax.grad(lambda w: jnp.sum(shrink(w, X)))).lower(W).as_text()
        assert "jaxrec_step_end" in slope and "jaxrec_step_results" not in slope

    def test_second_call_compiles_nothing(self):
        free(W, X)
        before = free.cache_info()
        free(W, X * 1.1)
        free(W, X * 0.001)
        assert free.cache_info() == before

    def test_second_gradient_compiles_nothing(self):
        """Inside of a derivative JAX would keep something of every call."""
        slope = jax.grad(lambda w, x: jnp.sum(free(w, x)))
        slope(W, X)
        before = free.cache_info()
        slope(W, X * 1.1)
        slope(W, X)
        assert free.cache_info() == before


class TestFailures:
    def test_nothing_is_left_behind(self):
        """A program that fails after many waves ends its scheduler."""
        run = jax.jit(shrink.with_options(max_calls=3))

        def fail(times: int) -> int:
            for _ in range(times):
                with pytest.raises(JaxRuntimeError, match=r"shrink made 4 calls so far"):
                    jax.block_until_ready(run(W, X * 10))
            return resident_bytes()

        before = fail(50)
        assert fail(300) - before < 4 << 20

    def test_nothing_is_left_behind_by_a_program_that_is_stopped(self):
        """What raises is no handler of jaxrec: none of them is called after it."""
        run = jax.jit(refusing())

        def fail(times: int) -> int:
            for _ in range(times):
                with pytest.raises((JaxRuntimeError, ValueError), match="a refused number"):
                    jax.block_until_ready(run(-1.0, 10))
            return resident_bytes()

        before = fail(20)
        assert fail(100) - before < 16 << 20  # a scheduler is more than half a megabyte
        assert run(1.0, 10) > 0

    def test_eager_errors_have_their_own_class(self):
        run = shrink.with_options(max_calls=3)
        cases = [
            lambda: run(W, X),
            lambda: jax.vmap(run, (None, 0))(W, XS),
            lambda: jax.grad(lambda w: jnp.sum(run(w, X)))(W),
        ]
        for case in cases:
            with pytest.raises(jr.CapacityError, match="calls so far in one invocation"):
                case()

    def test_next_call_is_right(self):
        run = jax.jit(shrink.with_options(max_calls=calls_of(X)))
        with pytest.raises(JaxRuntimeError, match="calls so far in one invocation"):
            jax.block_until_ready(run(W, X * 100))
        assert_close(run(W, X), plain(W, X), 1e-5)

    def test_nan_of_a_cell_is_reported(self):
        @jr.rec_fn(max_calls=32)
        def log(x):
            return jr.cond(
                jnp.sum(x) < 0.1, lambda: jnp.log(in_waves(x) - 10), lambda: log(x * 0.5)
            )

        with jax.debug_nans(True):
            message = "in log: invalid value .nan. .* the error tells which call made it"
            with pytest.raises(FloatingPointError, match=message):
                log(XS[0] + 5)
            assert_close(
                jax.jit(jax.grad(lambda w: jnp.sum(shrink(w, X))))(W), plain_gradient(X), 1e-4
            )

    def test_nan_decides_as_in_python(self):
        def poisoned(lang: Any) -> Any:
            @lang.rec_fn(max_calls=32)
            def f(x, n):
                return lang.cond(
                    (jnp.sum(x) < 0.1) | (n == 0), lambda: x, lambda: f(x + jnp.nan, n - 1)
                )

            return f

        np.testing.assert_array_equal(poisoned(JAXREC)(X, 4), poisoned(PYTHON)(X, 4))


def resident_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def refusing() -> Any:
    """2 ** n leaves, at which the host may refuse a number."""

    def check(x: Any) -> Any:
        if np.any(x < 0):
            raise ValueError("a refused number")
        return x

    @jr.rec_fn(max_calls=1 << 12)
    def f(x, n):
        def leaf():
            like = jax.ShapeDtypeStruct((), jnp.float32)
            return jax.pure_callback(check, like, x, vmap_method="broadcast_all")

        def node():
            return f(x * 0.5, n - 1) + f(x * 0.25, n - 1)

        return jr.cond((n == 0) | (jnp.sum(x[None] * x) > 4), leaf, node)

    return f


def test_threads_whose_programs_are_stopped():
    run = jax.jit(refusing())
    want = float(run(1.0, 8))
    seen: list[float] = []

    def work(k: int) -> None:
        for step in range(40):
            if (k + step) % 3:
                seen.append(float(run(1.0, 8)))
            else:
                # Which of the two it is depends on the thread that XLA makes the callback in.
                with pytest.raises((JaxRuntimeError, ValueError), match="a refused number"):
                    jax.block_until_ready(run(-1.0, 8))

    in_threads(work, 3)
    assert seen == [want] * len(seen)
    assert len(seen) == 80


def in_threads(work: Any, number: int) -> None:
    threads = [threading.Thread(target=work, args=(k,)) for k in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_have_schedulers_of_their_own():
    run = jax.jit(jax.vmap(shrink, (None, 0)))
    inputs = [normal(k, 8, 3) * scale for k, scale in enumerate((0.1, 2.0, 20.0))]
    want = [np.asarray(run(W, x)) for x in inputs]
    wrong: list[int] = []

    def work(k: int) -> None:
        for _ in range(40):
            if not np.array_equal(np.asarray(run(W, inputs[k])), want[k]):
                wrong.append(k)

    in_threads(work, 3)
    assert wrong == []
