"""Operations that bodies may not have, or that fail, and policies that may not be asked for."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from zoo import JAXREC, PYTHON

import jaxrec as jr


class TestOperations:
    """What a body may not do since its calls run in batches, or keep their residuals on tapes."""

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_without_a_rule_for_vmap(self, executor):
        def scaled(x, y):
            return jax.custom_derivatives.linear_call(lambda r, v: r * v, lambda r, t: r * t, x, y)

        @jr.rec_fn
        def f(x, n):
            return jr.cond(n <= 0, lambda: x, lambda: scaled(x, f(x, n - 1)))

        message = "f: an operation of its body cannot be run for several calls at once .*'linear_c"
        with jr.executor(executor), pytest.raises(jr.UnsupportedError, match=message):
            f(jnp.arange(3.0), 2)
        with jr.executor("reference"):
            np.testing.assert_array_equal(f(jnp.arange(3.0), 2), [0, 1, 8])

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_policy_that_offloads(self, executor):
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["kept"],
            offload_src="device",
            offload_dst="pinned_host",
        )

        @jr.rec_fn(policy=policy)
        def f(x, n):
            def on():
                return jnp.tanh(checkpoint_name(jnp.sin(f(x, n - 1)), "kept"))

            return jr.cond(n <= 0, lambda: x * x, on)

        message = "policy= offloads the result of name to .*save_only_these_names"
        with jr.executor(executor), pytest.raises(jr.UnsupportedError, match=message):
            jax.grad(lambda x: f(x, 2).sum())(jnp.ones(3))

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_policy_that_keeps_complex_numbers(self, executor):
        """They are computed again: no error from what marks residuals."""

        def build(lang):
            @lang.rec_fn
            def f(x, n):
                def on():
                    inner = f(x, n - 1)
                    turned = lax.complex(jnp.cos(inner), jnp.sin(inner)) * 2j
                    spectrum = jnp.fft.rfft(inner, 4).astype(jnp.complex64)
                    return jnp.abs(turned * turned + spectrum)

                return lang.cond(n <= 0, lambda: x * x, on)

            return f

        x = jnp.array([0.3, 0.5, 0.7])
        want = jax.grad(lambda x: build(PYTHON)(x, 2).sum())(x)
        f = build(JAXREC).with_options(policy=jax.checkpoint_policies.everything_saveable)
        with jr.executor(executor):
            got = jax.grad(lambda x: f(x, 2).sum())(x)
        np.testing.assert_allclose(got, want, rtol=1e-5)


MOVES = {
    "reshape of a transpose": lambda m: lax.reshape(m, (6,), dimensions=(1, 0)),
    "reshape": lambda m: lax.reshape(m, (3, 2)).ravel(),
    "transpose": lambda m: m.T.ravel(),
    "rev": lambda m: lax.rev(m, (1,)).ravel(),
    "slice": lambda m: lax.slice(m, (0, 0), (2, 3), (1, 2)).ravel(),
    "concatenate": lambda m: lax.concatenate([m, 2 * m], 1).ravel(),
    "stack": lambda m: jnp.stack([m, 2 * m], axis=1).ravel(),
    "broadcast": lambda m: lax.broadcast_in_dim(m, (2, 2, 3), (1, 2)).ravel(),
}


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
@pytest.mark.parametrize("move", list(MOVES))
def test_registers_are_moved_as_elements_are(move, dtype):
    """Values of few elements are registers, of control or of the native machine."""
    found = MOVES[move]

    def end(m):
        moved = found(m)
        return (moved * jnp.arange(moved.size, dtype=dtype)).sum()

    @jr.rec_fn(max_calls=10)
    def f(m, n):
        return jr.cond(n <= 0, lambda: end(m), lambda: f(m * 2, n - 1))

    @jr.rec_fn(max_calls=10)
    def count(table, m, n):
        return jr.cond(n <= 0, lambda: table[end(m).astype(int)], lambda: count(table, m, n - 1))

    m = jnp.arange(6, dtype=dtype).reshape(2, 3)
    table = jnp.arange(1000.0)
    assert f(m, 2) == jax.jit(f)(m, 2) == end(4 * m)
    assert count(table, m, 1) == jax.jit(count)(table, m, 1) == end(m)


class TestErrorsOfPython:
    @pytest.mark.parametrize(
        ("executor", "note"),
        [
            ("graph", r"^This is from seen\. On jaxrec\.executor\(\"host\"\)"),
            ("reference", r"^This is from a call of seen\. Call path: seen -> seen\[0\]\."),
        ],
    )
    def test_tell_whose_they_are(self, executor, note):
        def look(x):
            if x > 2:
                raise KeyError("too large")
            return x

        @jr.rec_fn
        def seen(x, n):
            def more():
                y = jax.pure_callback(look, jax.ShapeDtypeStruct((), x.dtype), x + 1)
                return seen(y, n - 1)

            return jr.cond(n == 0, lambda: x, more)

        with jr.executor(executor), pytest.raises(Exception, match="too large") as e:
            seen(jnp.float32(1), 3)
        assert any(re.search(note, text) for text in e.value.__notes__)
