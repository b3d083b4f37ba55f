"""Executor "host" when something goes wrong: it says so once, and the next call is right."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import picked

import jaxrec as jr
from jaxrec.executors.host import _costs
from jaxrec.executors.host._failure import Failures
from jaxrec.executors.host._tasks import Label, TaskList

workers = pytest.mark.parametrize("workers", [1, 2])


def checked(x, low):
    """Adds 1 by a callback of the host, which refuses numbers from `low` on."""

    def on_host(x, low):
        if np.any(x >= low):
            raise ValueError("the callback was told to fail")
        return x + 1

    out = jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32)
    return jax.pure_callback(on_host, out, x, low, vmap_method="broadcast_all")


@jr.rec_fn
def count(low, n):
    return jr.cond(n == 0, lambda: jnp.float32(0), lambda: checked(count(low, n - 1), low))


@workers
def test_an_exception_in_the_5000th_cell(workers):
    with jr.executor("host", workers=workers, policy="split"):
        with pytest.raises(jr.JaxRecError, match=r"cell count\.\d of count failed") as caught:
            count(jnp.float32(5000), 5600)
        assert "the callback was told to fail" in str(caught.value)
        assert "Call path" in str(caught.value) and "count -> count[0]" in str(caught.value)
        assert float(count(jnp.float32(5000), 100)) == 100


def test_an_exception_that_speaks_of_interrupts():
    def fail(x):
        raise ValueError("the job before ended with KeyboardInterrupt")

    @jr.rec_fn
    def f(x, n):
        def base():
            return jax.pure_callback(fail, jax.ShapeDtypeStruct((), jnp.float32), x)

        return jr.cond(n == 0, base, lambda: f(x, n - 1) * 2)

    with (
        jr.executor("host"),
        pytest.raises(jr.JaxRecError, match="the job before ended with KeyboardInterrupt"),
    ):
        f(1.0, 2)


@pytest.mark.parametrize("raised", [SystemExit(3), TimeoutError("late")])
def test_what_the_handler_of_a_signal_raises_while_a_launch_is_waited_for(raised):
    failures = Failures("f", [Label("f.0")], lambda wave, row: "f", looks=False)
    assert failures.described(raised, 0) is raised


@jr.rec_fn
def roots_of(x, n):
    def more():
        return jnp.sqrt(x - n) + roots_of(x, n - 1)

    return jr.cond(n == 0, lambda: jnp.float32(0), more)


def test_nan_under_debug_nans():
    with jr.executor("host", workers=2), jax.debug_nans(True):
        with pytest.raises(FloatingPointError, match=r"Call path: roots_of -> roots_of\[0\]\."):
            roots_of(jnp.float32(3.5), 5)
        want = sum(np.sqrt(3.5 - n) for n in (1, 2, 3))
        assert float(roots_of(jnp.float32(3.5), 3)) == pytest.approx(want, rel=1e-5)


def test_checks_of_the_process_go_on():
    """JAX forgets them in a thread where they were set otherwise for a while: this is a new one."""

    def run() -> None:
        invalid = jax.jit(jnp.sqrt)
        invalid(2.0)
        for executor in ("graph", "host"):
            with jr.executor(executor), pytest.raises(FloatingPointError, match="invalid value"):
                roots_of(jnp.float32(3.5), 5)
            with pytest.raises(FloatingPointError, match="invalid value"):
                invalid(-1.0)

    jax.config.update("jax_debug_nans", True)
    try:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(run).result()
    finally:
        jax.config.update("jax_debug_nans", False)


INTERRUPTED_AT = 200


def slow(x):
    def on_host(x):
        if np.any(x == INTERRUPTED_AT):
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.002)
        return x + 1

    out = jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32)
    return jax.pure_callback(on_host, out, x, vmap_method="broadcast_all")


@jr.rec_fn
def slow_count(n):
    return jr.cond(n == 0, lambda: jnp.float32(0), lambda: slow(slow_count(n - 1)))


@workers
@pytest.mark.usefixtures("no_garbage_collection")
def test_interrupt_in_the_middle_of_a_run(workers):
    with jr.executor("host", workers=workers, policy="split"):
        assert float(slow_count(3)) == 3  # compiled before
        with pytest.raises(KeyboardInterrupt, match=r"^$"):
            slow_count(20_000)  # 40 seconds, were it not interrupted
        assert float(slow_count(3)) == 3


class _Interrupted:
    """What a worker runs in, interrupted where it is made, entered or left."""

    def __init__(self, where):
        self._where = where
        self._meets("__init__")

    def _meets(self, here):
        if here == self._where:
            raise KeyboardInterrupt

    def __enter__(self):
        self._meets("__enter__")

    def __exit__(self, *error):
        self._meets("__exit__")


@workers
@pytest.mark.parametrize("where", ["__init__", "__enter__", "__exit__"])
def test_interrupt_at_the_ends_of_a_worker(monkeypatch, workers, where):
    with jr.executor("host", workers=workers, policy="split"):
        with monkeypatch.context() as patch:
            patch.setattr(TaskList, "_scope", property(lambda _: lambda: _Interrupted(where)))
            with pytest.raises(KeyboardInterrupt, match=r"^$"):
                slow_count(3)
        assert float(slow_count(3)) == 3


def test_interrupt_while_costs_are_measured():
    """The threads that measure end before it is raised: none is left for the end of the process."""
    begun, ended, signals = set(), set(), [signal.SIGINT]

    def work():
        begun.add(threading.get_ident())
        time.sleep(0.5)  # until the main thread waits
        with contextlib.suppress(IndexError):
            os.kill(os.getpid(), signals.pop())
        time.sleep(0.2)
        ended.add(threading.get_ident())

    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        _costs._timed(work, 3)
    assert begun and begun == ended


@jr.rec_fn
def huge(n):
    def more():
        return huge(n - 1) + 1

    return jr.cond(n == 0, lambda: jnp.zeros((1 << 20, 1 << 20)), more)


def test_out_of_memory_in_a_tape():
    with jr.executor("host"):
        with pytest.raises(jr.JaxRecError, match="There was not enough memory"):
            huge(3)
        assert float(slow_count(3)) == 3


class TestNanInTheBackwardPass:
    @staticmethod
    def falling(x, w):
        @jr.rec_fn
        def fall(w, x, n):
            return jr.cond(n == 0, lambda: jnp.sqrt(x), lambda: w * fall(w, x - 0.5, n - 1))

        return fall(w, x, 3).sum()

    def test_of_a_call(self):
        x, w = jnp.full(9, 1.5), jnp.full(9, 2.0)
        with jr.executor("host", workers=2), jax.debug_infs(True):
            message = r"cell fall\.\d backward of fall\. Call path: fall -> fall\[0\] -> fall"
            with pytest.raises(FloatingPointError, match=message):
                jax.grad(self.falling)(x, w)
            # What is not asked for may be anything.
            assert not jax.grad(self.falling, 1)(x, w).any()

    @pytest.mark.parametrize("policy", ["batch", "alone"])
    def test_of_one_call_of_many(self, policy):
        @jr.rec_fn
        def roots(w, left, right, i):
            def node():
                return jnp.sqrt(roots(w, left, right, left[i]) + roots(w, left, right, right[i]))

            return jr.cond(left[i] < 0, lambda: 1.0 * w[i], node)

        left = np.array([2 * i + 1 if i < 6 else -1 for i in range(13)])
        right = np.where(left < 0, -1, left + 1)
        w = jnp.ones((13, 20)).at[9:11].set(0.0)
        message = r"cell roots\.\d backward of roots\. Call path: roots -> roots\[0\] -> roots\[1\]"
        with (
            jr.executor("host", workers=1, policy=policy),
            jax.debug_nans(True),
            pytest.raises(FloatingPointError, match=message),
        ):
            jax.grad(lambda w: jnp.sum(0.0 * roots(w, left, right, 0)))(w)

    def test_of_a_call_of_scalars(self):
        x, w = jnp.float32(1.5), jnp.float32(2)
        with jr.executor("host", workers=2), jax.debug_infs(True):
            message = r"cell fall\.\d of fall\. Call path: fall -> fall\[0\] -> fall"
            with pytest.raises(FloatingPointError, match=message):
                jax.grad(self.falling)(x, w)
            assert float(jax.grad(self.falling, 1)(x, w)) == 0

    @pytest.mark.slow
    def test_of_a_sum_over_calls(self):
        @jr.rec_fn
        def roots(w, n):
            return jr.cond(n == 0, lambda: jnp.tanh(w), lambda: jnp.sqrt(w) * roots(w, n - 1))

        with jr.executor("host"):
            with (
                jax.debug_nans(True),
                pytest.raises(FloatingPointError, match="gradient of roots with respect to w"),
            ):
                jax.grad(lambda w: roots(w, 3).sum())(jnp.zeros(9))
            assert jnp.isnan(jax.grad(lambda w: roots(w, 3).sum())(jnp.zeros(9))).all()


@pytest.mark.slow
def test_an_exception_in_the_5000th_cell_of_a_stepped_program():
    @jr.rec_fn
    def rise(low, x, end):
        return jr.cond(jnp.tanh(x - end) >= 0, lambda: x, lambda: rise(low, checked(x, low), end))

    low, x = jnp.float32(5000), jnp.float32(0)
    with jr.executor("host", workers=2):
        with pytest.raises(jr.JaxRecError, match=r"cell rise\.\d of rise failed") as caught:
            rise(low, x, jnp.float32(5600))
        assert "told to fail" in str(caught.value)
        assert "rise -> rise[0] -> rise[0] -> ... (" in str(caught.value)
        assert float(rise(low, x, jnp.float32(100))) == 100


PROLOGUE = """
    import gc, os, resource, signal, threading
    import jax, jax.numpy as jnp, numpy as np, jaxrec as jr

    x, w = jnp.ones(SIZE), jnp.full(SIZE, 0.5)

    @jr.rec_fn
    def planned(w, x, n, sides):
        def more():
            return jnp.tanh(w * planned(w, x, n - 1, sides)) + other()

        def other():
            return jr.cond(sides > 1, lambda: planned(w, x * 0.5, n - 1, sides), lambda: x)

        return jr.cond(n == 0, lambda: x, more)

    @jr.rec_fn(max_calls=1 << 20)  # else large values are taken to be without end
    def stepped(w, x, n, sides):
        def more():
            return stepped(w, jnp.tanh(w * x), n - 1, sides) + other()

        def other():
            return jr.cond(sides > 1, lambda: stepped(w, x * 0.5, n - 1, sides), lambda: x)

        return jr.cond(jnp.sum(jnp.tanh(x)) * 0 + n < 0.5, lambda: x, more)

    def run(n, sides):
        f, n = (planned, n) if "PROGRAM" == "planned" else (stepped, jnp.float32(n))
        loss = lambda w: jnp.sum(f(w, x, n, sides))
        return np.asarray(loss(w) if "MODE" == "value" else jax.grad(loss)(w))
"""

INTERRUPT = """
    with jr.executor("host", workers=2):
        want = run(40, 1)
        gc.disable()  # a collection that is interrupted reports it and goes on
        threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            run(700_000, 1)
        except KeyboardInterrupt as error:
            print(repr(error))
        gc.enable()
        np.testing.assert_array_equal(run(40, 1), want)
        print("right")
"""

OUT_OF_MEMORY = """
    with jr.executor("host", workers=2):
        want = run(4, 2)
        pages = int(open("/proc/self/statm").read().split()[0])
        limit = pages * resource.getpagesize() + (1 << 29)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            run(15, 2)
        except jr.JaxRecError as error:
            print(error)
        np.testing.assert_array_equal(run(4, 2), want)
        print("right")
"""

CASES = [(mode, program) for mode in ("value", "gradient") for program in ("planned", "stepped")]


def output(script, program, mode, size):
    text = textwrap.dedent(PROLOGUE) + textwrap.dedent(script)
    for name, value in (("PROGRAM", program), ("MODE", mode), ("SIZE", str(size))):
        text = text.replace(name, value)
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("mode", "program"),
    picked(CASES, fast=(), slow=[("value", "stepped"), ("gradient", "planned")]),
)
def test_interrupt_by_a_timer(program, mode):
    assert output(INTERRUPT, program, mode, 64) == "KeyboardInterrupt()\nright\n"


@pytest.mark.parametrize(
    ("mode", "program"),
    picked(CASES, fast=(), slow=[("value", "planned"), ("gradient", "stepped")]),
)
def test_less_memory_than_a_tape_needs(program, mode):
    told, right = output(OUT_OF_MEMORY, program, mode, 1 << 14).splitlines()
    assert "There was not enough memory" in told and program in told and right == "right"
    assert program == "planned" or "Call path" in told
