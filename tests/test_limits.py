"""Recursion without end: it stops in time, with little memory, and says where it went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import picked
from jax.errors import JaxRuntimeError
from waves import sine

import jaxrec as jr
from jaxrec.executors._reference import Interpreter
from jaxrec.schedule import _limits
from jaxrec.schedule._limits import Limits, format_path, limits_for, stepped_limits
from jaxrec.split._cache import Cache


@jr.rec_fn(max_calls=100)
def climb(x, n):
    return jr.cond(n < 0, lambda: x, lambda: climb(x, n + 1))


@jr.rec_fn(max_calls=100)
def same(x, n):
    return jr.cond(n < 0, lambda: x, lambda: same(x, n))


@jr.rec_fn(max_calls=100)
def ping(x, n):
    return jr.cond(n < 0, lambda: x, lambda: pong(2 * x, n + 1))


@jr.rec_fn
def pong(x, n):
    return jr.cond(n < 0, lambda: x, lambda: ping(x + 1, n + 1))


@jr.rec_fn
def total(x, tree, i):
    def node():
        return total(x, tree, tree["left"][i]) + total(x, tree, tree["right"][i])

    return jr.cond(tree["left"][i] < 0, lambda: x, node)


@jr.rec_fn(max_calls=100)
def wide(x, n):
    return jr.cond(n < 2, lambda: x, lambda: wide(x, n - 1) + wide(x, n - 2))


@jr.rec_fn(workers=4)
def halves(x, n):
    return jr.cond(n < 0, lambda: x, lambda: halves(x * 0.5, n + 2) + halves(x, n + 4))


CYCLE = {"left": jnp.array([1, 2, 0]), "right": jnp.array([2, 1, 0])}
DEEP = "nested more than 1048576 calls deep"
MANY = "made more than 10000000 calls without ending"
CASES: dict[str, tuple[Any, tuple[Any, ...], str, str]] = {
    "chain": (climb, (1.0, 3), DEEP, "climb -> climb[0] -> climb[0] -> ... (1,048,573 more) ... "),
    "equal": (same, (1.0, 3), DEEP, "same -> same[0] -> same[0] -> ... (1,048,573 more) ... "),
    "mutual": (ping, (1.0, 3), DEEP, "ping -> pong[0] -> ping[0] -> ... (1,048,573 more) ... "),
    "cycle": (total, (1.0, CYCLE, 0), DEEP, "total -> total[0] -> total[0] -> ... (1,048,573 mo"),
    "arrays": (
        halves,
        (jnp.ones(64), 0),
        r"nested more than \d+ calls deep",
        "halves -> halves[0] -> halves[0] -> ... (",
    ),
    "wide": (wide, (1.0, 60), MANY, "wide -> wide[0] -> wide[0] -> ... ("),
}

endless = pytest.mark.parametrize("case", CASES)


def run(case: str, mode: str) -> None:
    function, args, what, path = CASES[case]
    if mode == "eager":
        with pytest.raises(jr.RecursionLimitError, match=f"^{function.__name__} {what}") as e:
            function(*args)
    else:
        text = f"RecursionLimitError: {function.__name__} {what}"
        with pytest.raises(JaxRuntimeError, match=text) as e:
            jax.block_until_ready(jax.jit(function)(*args))
    assert f"Call path: {path}" in str(e.value)
    assert "If it ends, declare at least as many calls as it makes: rec_fn(max_calls=...)." in str(
        e.value
    )


@endless
@pytest.mark.parametrize("mode", ["eager", "jit"])
def test_ends_in_an_error(case: str, mode: str):
    run(case, mode)


def test_in_one_lane_of_a_batch():
    with pytest.raises(jr.RecursionLimitError, match=f"climb {DEEP}"):
        jax.vmap(climb, (None, 0))(1.0, jnp.array([-1, 0, -3]))


MEASURED = """
import resource, sys, test_limits
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
test_limits.run(*sys.argv[1:])
print(peak() - before)
"""


MEASURED_CASES = [(mode, case) for mode in ("eager", "jit") for case in CASES]
SOME = [("eager", case) for case in ("equal", "cycle", "arrays", "wide")]
SOME += [("jit", case) for case in ("chain", "mutual", "wide")]


@pytest.mark.parametrize(("mode", "case"), picked(MEASURED_CASES, fast=(), slow=SOME))
def test_memory_stays_bounded(case: str, mode: str):
    """In a process of its own, whose peak is that of this case; several times what is needed."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, case, mode],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.split()[-1]) < 1_500_000  # kilobytes


@jr.rec_fn
def countdown(n):
    return jr.cond(n == 0, lambda: n, lambda: countdown(n - 1))


@pytest.mark.parametrize("mode", ["eager", "jit"])
@pytest.mark.parametrize("kind", ["planned", "scalar"])
def test_a_bound_above_the_defaults_is_told_what_is_needed(mode: str, kind: str):
    args = (jnp.ones((4, 4)), 1_200_000) if kind == "planned" else (1_200_000,)
    run = (power if kind == "planned" else countdown).with_options(max_calls=1_100_000)
    text = "made 1200001 calls"
    if mode == "eager":
        with pytest.raises(jr.CapacityError, match=text):
            run(*args)
    else:
        with pytest.raises(JaxRuntimeError, match=f"CapacityError: .* {text}"):
            jax.block_until_ready(jax.jit(run)(*args))


@jr.rec_fn
def power(x, n):
    return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))


class TestDepth:
    """A million nested calls; neither the C++ nor the Python stack is used."""

    n, x = 1_000_000, np.float32(1 + 2**-21)

    def check(self, value: Any, slope: Any) -> None:
        exact = float(self.x) ** self.n
        assert abs(float(value) / exact - 1) < 0.1  # a million roundings
        assert abs(float(slope) / (self.n * exact / float(self.x)) - 1) < 0.1

    @pytest.mark.slow
    def test_eagerly(self):
        value, slope = jax.value_and_grad(power)(self.x, self.n)
        assert value == power(self.x, self.n)
        self.check(value, slope)

    @pytest.mark.slow
    def test_under_jit(self):
        run = power.with_options(max_calls=self.n + 1)
        self.check(*jax.jit(jax.value_and_grad(run))(self.x, self.n))

    @pytest.mark.slow
    def test_schedule_is_printed_in_short(self):
        schedule = power.schedule(self.x, self.n)
        assert (schedule.num_calls, schedule.depth) == (self.n + 1, self.n + 1)
        assert schedule.rows == self.n + 1
        assert len(str(schedule)) < 4000
        assert len(schedule.call_path(self.n)) < 100

    def test_waves_of_a_chain_are_narrow(self):
        schedule = power.schedule(self.x, 30_000)
        assert schedule.padded_rows < 8 * schedule.rows


@jr.rec_fn
def shrink(x):
    return jr.cond(jnp.sum(x) < 0, lambda: x, lambda: shrink(x / 2))


class TestMemory:
    """Of a recursion that has to run before it is known whether it goes on."""

    row = jnp.ones(1 << 16)

    @pytest.fixture(autouse=True)
    def little_memory(self, monkeypatch):
        monkeypatch.setattr(_limits, "_STEPPED_BYTES", 1 << 25)

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_values_that_are_large_are_fewer(self, executor):
        message = "shrink nested more than 6[0-9] calls deep"  # half of 32 MiB
        with jr.executor(executor), pytest.raises(jr.RecursionLimitError, match=message):
            shrink(self.row)
        with jr.executor(executor):
            np.testing.assert_array_equal(shrink(-self.row), -self.row)

    def test_in_all_lanes_together(self):
        message = "shrink made more than 12[0-9] calls without ending"
        with pytest.raises(jr.RecursionLimitError, match=message):
            jax.vmap(shrink)(jnp.stack([self.row, -self.row, self.row, self.row]))

    def test_a_declared_bound_holds_instead(self):
        with pytest.raises(jr.CapacityError, match="max_calls is 500"):
            shrink.with_options(max_calls=500)(self.row)


@pytest.mark.slow
def test_on_host_each_step_is_a_launch():
    message = "shrink nested more than 163[0-9][0-9] calls deep"
    with jr.executor("host"):
        with pytest.raises(jr.RecursionLimitError, match=message):
            shrink(jnp.ones(100))
        with pytest.raises(jr.CapacityError, match="max_calls is 20000"):
            shrink.with_options(max_calls=20_000)(jnp.ones(100))


def test_costly_cells_nest_less_deeply(monkeypatch):
    monkeypatch.setattr(_limits, "_STEPS", {"graph": (1 << 16, 3e4)})
    monkeypatch.setattr(_limits, "_STEPS_OF_MANY", 1 << 9)

    @jr.rec_fn
    def turn(weights, x):
        return jr.cond(jnp.sum(x) < 0, lambda: x, lambda: turn(weights, weights @ x))

    with pytest.raises(jr.RecursionLimitError, match=r"turn nested more than 9[0-9]{2} calls deep"):
        turn(jnp.eye(1024), jnp.ones(1024))
    few = r"turn nested more than 5[0-9]{2} calls deep"
    with pytest.raises(jr.RecursionLimitError, match=few):
        jax.vmap(turn, (None, 0))(jnp.eye(512), jnp.ones((8, 512)))


def default_depth(fun, *args):
    limits = stepped_limits(fun._invocation(*fun._bind(args, {})).program, "graph", 1)
    assert limits is not None
    return limits.depth


def python_sees(x):
    type_ = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(np.asarray, type_, x, vmap_method="sequential")


@pytest.mark.parametrize(
    ("step", "size", "least", "most"),
    [
        (lambda x: x + 1, 3, 1_000_000, 1 << 20),
        (jnp.sort, 2000, 5_000, 20_000),
        (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), 3, 200_000, 800_000),
        (lambda x: jax.lax.fori_loop(0, 500, lambda _, y: jnp.sin(y), x), 4, 80_000, 300_000),
        (lambda x: jax.lax.while_loop(lambda y: y[0] < 2, jnp.sin, x), 4, 100_000, 700_000),
        (python_sees, 4, 20_000, 60_000),
        (lambda x: x - jnp.linalg.solve(jnp.eye(4) + x[0], x), 4, 40_000, 300_000),
    ],
)
def test_default_depth_by_what_a_step_takes(step, size, least, most):
    @jr.rec_fn
    def endless(x):
        return jr.cond(jnp.sum(x) < -1e9, lambda: x, lambda: endless(step(x)))

    assert least <= default_depth(endless, jnp.ones(size)) <= most


def test_default_depth_counts_calls_that_return_on_the_way():
    @jr.rec_fn
    def endless(x, i):
        def go():
            return endless(endless(sine(x), 0) + endless(x, 0), 1)

        return jr.cond((i == 0) | (jnp.sum(x) < -1e9), lambda: x, go)

    assert 250_000 < default_depth(endless, jnp.ones(3), 1) < 500_000


class TestLimits:
    def test_are_raised_by_what_is_declared(self):
        assert limits_for(None, 100) == Limits()
        assert limits_for(20_000_000, None) == Limits(40_000_000, 40_000_000)
        assert limits_for(2_000_000, 3) == Limits(depth=4_000_000)

    @pytest.mark.slow
    def test_declared_depth_is_reached(self):
        deep = jr.rec_fn(max_calls=1_200_000)(
            lambda x, n: jr.cond(n == 0, lambda: x, lambda: deep(x, n - 1))
        )
        assert float(deep(3.0, 1_199_999)) == 3.0
        with pytest.raises(jr.CapacityError, match="made 1200001 calls in one invocation"):
            deep(3.0, 1_200_000)

    @pytest.mark.parametrize(
        ("limits", "what"),
        [
            (Limits(depth=30), "nested more than 30 calls deep"),
            (Limits(calls=30), "made more than 30 calls without ending"),
        ],
    )
    def test_of_the_reference_executor(self, limits: Limits, what: str):
        graph = climb.graph(1.0, 3)
        with pytest.raises(jr.RecursionLimitError, match=f"^climb {what}") as e:
            Interpreter(graph, [], limits, Cache()).run([jnp.float32(1), jnp.int32(3)])
        path = "climb -> climb[0] -> climb[0] -> ... (27 more) ... -> climb[0]"
        assert f"Call path: {path} with arguments (n=33). If it ends" in str(e.value)

    def test_by_default_of_the_reference_executor(self, monkeypatch):
        monkeypatch.setattr(_limits, "_REFERENCE_DEPTH", 80)
        monkeypatch.setattr(_limits, "_STEPPED_BYTES", 70 * 6_000_100)

        @jr.rec_fn
        def damped(x):
            return jr.cond(jnp.sum(x) < 0, lambda: x, lambda: damped(0.5 * x))

        with jr.executor("reference"):
            for size, depth in ((2, 80), (500_000, 70)):
                with pytest.raises(jr.RecursionLimitError, match=f"nested more than {depth} calls"):
                    damped(jnp.ones(size))
            with pytest.raises(jr.CapacityError, match="made 81 calls in one invocation"):
                countdown.with_options(max_calls=50)(80)

    def test_paths_that_are_short_are_whole(self):
        steps = ["f", *(f"f[{k}]" for k in range(5))]
        assert format_path(steps[:5]) == "f -> f[0] -> f[1] -> f[2] -> f[3]"
        assert format_path(steps) == "f -> f[0] -> f[1] -> ... (2 more) ... -> f[4]"


def test_the_derived_bound_counts_the_turns_of_loops():
    """Each iteration of a loop that carries an index makes a call of its own."""

    @jr.rec_fn
    def down(w, after, i):
        def node():
            _, made = jax.lax.scan(lambda c, _: (after[c], down(w, after, c)), after[i], length=1)
            return jnp.sin(jnp.sum(made, 0)) + w

        return jr.cond(after[i] < 0, lambda: w, node)

    w, after = jnp.ones(20), jnp.array([1, 2, 3, -1])
    want = w
    for _ in range(3):
        want = jnp.sin(want) + w
    np.testing.assert_allclose(jax.jit(down)(w, after, 0), want, rtol=1e-5)
