"""Executor "host" when something goes wrong: it says so once, and the next call is right."""

from __future__ import annotations

import gc
import os
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr

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
def test_interrupt_in_the_middle_of_a_run(workers):
    with jr.executor("host", workers=workers, policy="split"):
        assert float(slow_count(3)) == 3  # compiled before
        gc.disable()  # a collection that is interrupted reports it and goes on
        try:
            with pytest.raises(KeyboardInterrupt, match=r"^$"):
                slow_count(20_000)  # 40 seconds, were it not interrupted
        finally:
            gc.enable()
        assert float(slow_count(3)) == 3


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
