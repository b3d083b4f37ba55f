"""Executor "host" with stepped programs: the scheduler goes on as waves come back."""

from __future__ import annotations

import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import zoo_all
import zoo_modes
from waves import in_waves
from zoo import JAXREC, PYTHON, assert_close
from zoo_stepped import VECTOR, VECTORS, WEIGHT

import jaxrec as jr


def shrinking(lang):
    """Goes on until an array is small."""

    @lang.rec_fn
    def shrink(w, x):
        def more():
            return shrink(w, jnp.tanh(x @ w)) + x

        return lang.cond(jnp.sum(jnp.abs(x)) < 0.5, lambda: x, more)

    return shrink


shrink = shrinking(JAXREC)
plain = shrinking(PYTHON)


@jr.rec_fn
def binary(x, n):
    """Calls itself twice while a computed value says so: 2 ** (n + 1) - 1 calls."""

    def more():
        return binary(x * 0.9, n - 1) + binary(x * 1.1, n - 1)

    return jr.cond(jnp.sum(x) * 0 + n < 0.5, lambda: x, more)


class TestValues:
    @pytest.mark.parametrize(
        ("name", "mode"), [("gate", "value"), ("refine", "grad_vmap"), ("walk_by_score", "value")]
    )
    def test_zoo(self, name, mode):
        example = zoo_all.PROGRAMS[name]
        with example.precision(), jr.executor("host"):
            got, want = {**zoo_modes.VALUES, **zoo_modes.DERIVATIVES}[mode](example)
        assert_close(got, want, 10 * example.rtol)

    @pytest.mark.slow
    @pytest.mark.parametrize("policy", ["batch", "split", "alone"])
    def test_policies(self, policy):
        with jr.executor("host", workers=2, policy=policy):
            got = jax.value_and_grad(lambda w: jnp.sum(shrink(w, VECTOR)))(jnp.asarray(WEIGHT))
        want = jax.value_and_grad(lambda w: jnp.sum(plain(w, VECTOR)))(WEIGHT)
        assert_close(got, want, 1e-4)

    def test_tapes_grow(self):
        def of(x):
            return jax.value_and_grad(lambda x: jnp.sum(binary(x, jnp.float32(12))))(x)

        x = jnp.asarray([1.0, 2.0])
        with jr.executor("host"):
            value, gradient = of(x)
        assert_close(value, 3 * 2.0**12, 1e-4)
        assert_close(gradient, np.full(2, 2.0**12), 1e-4)

    @pytest.mark.slow
    def test_tapes_hold_what_is_alive(self):
        @jr.rec_fn
        def damp(x, n):
            return jr.cond(
                jnp.sum(jnp.tanh(x)) * 0 + n < 0.5, lambda: x, lambda: damp(x * 0.9, n - 1)
            )

        with jr.executor("host"):
            few, many = (damp.profile(jnp.ones(2048), jnp.float32(n)) for n in (10, 1500))
        assert few.value_bytes == many.value_bytes < 1500 * 8192

    def test_collect(self):
        def run(w):
            return jr.collect(shrink, (None, 0))(w, jnp.asarray(VECTORS))

        def total(w):
            return jnp.sum(run(w)[1].results ** 2)

        with jr.executor("host"):
            got, gradient = run(jnp.asarray(WEIGHT)), jax.grad(total)(jnp.asarray(WEIGHT))
        assert_close(got, run(jnp.asarray(WEIGHT)), 1e-5)
        assert_close(gradient, jax.grad(total)(jnp.asarray(WEIGHT)), 1e-4)

    def test_forward_mode(self):
        w, dw = jnp.asarray(WEIGHT), jnp.ones((3, 3))
        with jr.executor("host"):
            got = jax.jvp(lambda w: shrink(w, VECTOR), (w,), (dw,))
        assert_close(got, jax.jvp(lambda w: plain(w, VECTOR), (w,), (dw,)), 1e-4)


def batch_loss(w):
    return jnp.sum(jax.vmap(shrink, (None, 0))(w, jnp.asarray(VECTORS)) ** 2)


def plain_loss(w):
    return sum(jnp.sum(plain(w, x) ** 2) for x in VECTORS)


class TestTransformations:
    @pytest.mark.parametrize(
        "transform",
        [
            pytest.param(jax.value_and_grad, marks=pytest.mark.slow),
            pytest.param(jax.hessian, marks=pytest.mark.exhaustive),
        ],
    )
    def test_of_a_batch(self, transform):
        with jr.executor("host", workers=2):
            got = transform(batch_loss)(jnp.asarray(WEIGHT))
        assert_close(got, transform(plain_loss)(jnp.asarray(WEIGHT)), 1e-3)

    @pytest.mark.slow
    def test_second_derivatives(self):
        w, x = jnp.asarray(WEIGHT), jnp.asarray(VECTOR)
        with jr.executor("host"):
            got = jax.hessian(lambda x: jnp.sum(shrink(w, x) ** 2))(x)
        assert_close(got, jax.hessian(lambda x: jnp.sum(plain(w, x) ** 2))(x), 1e-3)

    @pytest.mark.slow
    def test_optax(self):
        def train(loss):
            optimizer, w = optax.adam(1e-2), jnp.asarray(WEIGHT)
            state = optimizer.init(w)
            for _ in range(3):
                updates, state = optimizer.update(jax.grad(loss)(w), state)
                w = optax.apply_updates(w, updates)
            return w

        with jr.executor("host"):
            got = train(batch_loss)
        assert_close(got, train(plain_loss), 1e-4)


class TestFailures:
    def test_under_jit(self):
        with (
            jr.executor("host"),
            pytest.raises(jr.UnsupportedError, match=r'Use jr\.executor\("graph"\) there'),
        ):
            jax.jit(shrink)(WEIGHT, VECTOR)
        with (
            jr.executor("host"),
            pytest.raises(jr.UnsupportedError, match="shrink was called under jit"),
        ):
            jax.jit(jax.grad(batch_loss))(jnp.asarray(WEIGHT))

    def test_declared_bound(self):
        with (
            jr.executor("host"),
            pytest.raises(jr.CapacityError, match="shrink made 4 calls so far"),
        ):
            shrink.with_options(max_calls=3)(WEIGHT, VECTOR * 10)

    def test_a_cell_that_fails(self):
        def on_host(x):
            if np.any(x > 40):
                raise ValueError("the callback was told to fail")
            return x + 1

        @jr.rec_fn
        def count(x, end):
            def more():
                out = jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32)
                return count(jax.pure_callback(on_host, out, x, vmap_method="expand_dims"), end)

            return jr.cond(jnp.sum(x) >= end, lambda: x, more)

        with jr.executor("host"):
            with pytest.raises(jr.JaxRecError, match=r"cell count\.\d of count failed") as caught:
                count(jnp.zeros(()), jnp.float32(60))
            assert "told to fail" in str(caught.value)
            assert "count -> count[0] -> count[0] -> ... " in str(caught.value)
            assert float(count(jnp.zeros(()), jnp.float32(20))) == 20

    def test_nan_under_debug_nans(self):
        @jr.rec_fn
        def log(x):
            return jr.cond(
                jnp.sum(x) < 0.1, lambda: jnp.log(in_waves(x) - 10), lambda: log(x * 0.5)
            )

        with jr.executor("host"), jax.debug_nans(True):
            with pytest.raises(FloatingPointError, match=r"Call path: log -> log\[0\]"):
                log(jnp.float32(5))
            assert_close(shrink(WEIGHT, VECTOR), plain(WEIGHT, VECTOR), 1e-5)

    @pytest.mark.usefixtures("no_garbage_collection")
    def test_interrupt(self):
        def on_host(x):
            if x == 50:
                os.kill(os.getpid(), signal.SIGINT)
            return x + 1

        @jr.rec_fn
        def count(x):
            def more():
                out = jax.ShapeDtypeStruct((), jnp.float32)
                return count(jax.pure_callback(on_host, out, x, vmap_method="sequential"))

            return jr.cond(x * 1.5 >= 1e6, lambda: x, more)

        with jr.executor("host"):
            with pytest.raises(KeyboardInterrupt, match=r"^$"):
                count(jnp.float32(0))
            assert_close(shrink(WEIGHT, VECTOR), plain(WEIGHT, VECTOR), 1e-5)

    def test_several_devices(self):
        class Elsewhere:
            platform = "gpu"

        other = Elsewhere()
        with (
            jr.executor("host", devices=[jax.devices()[0], other], place=lambda cell: other),
            pytest.raises(jr.UnsupportedError, match="shrink cannot be placed on several devices"),
        ):
            shrink(WEIGHT, VECTOR)


def test_profile(tmp_path):
    with jr.executor("host"):
        profile = shrink.profile(WEIGHT, VECTOR)
    assert "scheduling (between launches)" in profile.stages
    assert sum(worker.launches for worker in profile.workers) == len(profile.launches)
    assert profile.value_bytes > 0
    profile.save_trace(tmp_path / "trace.json")


def test_a_second_call_compiles_nothing():
    with jr.executor("host"):
        shrink(WEIGHT, VECTOR)
        before = shrink.cache_info()
        shrink(WEIGHT, VECTOR * 1.1)
    assert shrink.cache_info() == before
