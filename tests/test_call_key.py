"""Keys of calls: one for each path, the same however the calls are run."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import in_turn

import jaxrec as jr

KEYS = {"typed": jax.random.key(3), "raw": jax.random.PRNGKey(3)}


def words(key):
    return jax.random.key_data(key)


def keys_of_all_calls(length=3):
    """A recursion that calls in a straight line, in a loop and in lanes, and returns its key."""

    @jr.rec_fn(max_calls=512)
    def keys(key, n):
        mine = words(jr.call_key(key))

        def node():
            keys(key, n - 1)
            jax.lax.map(lambda k: keys(key, n - 1 - k * 0), jnp.arange(length))
            jax.vmap(lambda k: keys(key, n - 1 - k * 0))(jnp.arange(2))
            jax.lax.while_loop(
                lambda s: s[0] < 2, lambda s: (s[0] + 1, keys(key, n - 1)), (0, mine)
            )
            return mine

        return jr.cond(n == 0, lambda: mine, node)

    return keys


class TestPaths:
    @pytest.mark.parametrize("length", [3, 19])
    def test_every_call_has_its_own_key(self, length):
        _, calls = jr.collect(keys_of_all_calls(length))(jax.random.key(0), 1 + (length == 3))
        found = {tuple(k) for k in np.asarray(calls.results)[np.asarray(calls.valid)].tolist()}
        children = 5 + length
        assert len(found) == (1 + children + children**2 if length == 3 else 1 + children)

    def test_iterations_without_calls_have_their_own_keys(self):
        @jr.rec_fn(max_calls=64)
        def f(key, n):
            def draw(_):
                return words(jr.call_key(key))

            first = jax.lax.map(draw, jnp.arange(11))
            second = jax.lax.map(draw, jnp.arange(3))
            return jnp.concatenate([first, second, draw(0)[None]])

        found = {tuple(k) for k in f(jax.random.key(0), 1).tolist()}
        assert len(found) == 15

    def test_two_uses_in_one_call_agree(self):
        @jr.rec_fn
        def f(key):
            return words(jr.call_key(key)), words(jr.call_key(key))

        first, second = f(jax.random.key(1))
        assert first.tolist() == second.tolist()

    @pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
    def test_outside_it_is_the_key_of_the_root(self, key):
        inside = jr.rec_fn(lambda key: words(jr.call_key(key)))(key)
        assert inside.tolist() == words(jr.call_key(key)).tolist()
        assert inside.tolist() != words(key).tolist()
        assert jr.call_key(key).dtype == key.dtype

    def test_functions_that_draw_nothing_take_no_path(self):
        @jr.rec_fn
        def plain(n):
            return jr.cond(n == 0, lambda: 0, lambda: plain(n - 1))

        @jr.rec_fn(max_calls=64)
        def noisy(key, n):
            return jax.random.normal(jr.call_key(key)) + plain(n)

        names = [f.param_names for f in noisy.graph(jax.random.key(0), 3).functions]
        assert [len(x) for x in names] == [4, 1]


@jr.rec_fn(max_calls=128)
def branching(key, scale, n):
    """A sum of scaled noise over all calls."""
    noise = scale * jax.random.normal(jr.call_key(key))

    def node():
        return noise + branching(key, scale, n - 1) * branching(key, scale, n - 1)

    return jr.cond(n == 0, lambda: noise, node)


class TestTransformations:
    @pytest.mark.parametrize(("kind", "executor"), in_turn(KEYS, ("graph", "reference")))
    def test_the_same_however_it_is_run(self, kind, executor):
        key = KEYS[kind]
        want = np.asarray(branching(key, 1.5, 3))
        with jr.executor(executor):
            assert np.allclose(branching(key, 1.5, 3), want)
            assert np.allclose(jax.jit(branching)(key, 1.5, 3), want)
            lanes = jax.vmap(branching, (None, None, 0))(key, 1.5, jnp.array([1, 3]))
        assert np.allclose(lanes[1], want)

    def test_lanes_with_keys_of_their_own(self):
        keys = jax.random.split(jax.random.key(4), 3)
        lanes = jax.vmap(branching, (0, None, None))(keys, 1.0, 2)
        assert np.allclose(lanes, [branching(k, 1.0, 2) for k in keys])

    def test_gradient(self):
        key, step = jax.random.key(5), 1e-2
        slope = jax.grad(branching, 1)(key, 1.0, 2)
        ends = [branching(key, 1.0 + s, 2) for s in (step, -step)]
        assert np.allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-2)


@pytest.mark.parametrize(
    ("key", "got"),
    [
        (7, r"got an array int32\[\]"),
        (jnp.zeros(2), r"got an array float32\[2\]"),
        (jax.random.split(jax.random.key(0), 2), r"got an array key<fry>\[2\]"),
    ],
)
def test_what_is_no_key(key, got):
    with pytest.raises(jr.SignatureError, match=f"call_key {got}, expected one random key"):
        branching(key, 1.0, 2)


@pytest.mark.parametrize(
    "executor",
    [
        "graph",
        pytest.param("host", marks=pytest.mark.slow),
        pytest.param("reference", marks=pytest.mark.exhaustive),
    ],
)
def test_jax_finds_keys_that_are_used_twice(executor):
    """Calls that get one key do not consume it; what draws twice from one key of a call does."""
    key = jax.random.key(0)
    want = float(branching(key, 1.0, 2))

    @jr.rec_fn
    def twice(key, n):
        mine = jr.call_key(key)
        drawn = jax.random.normal(mine) + jax.random.uniform(mine)
        return jr.cond(n < 1, lambda: drawn, lambda: drawn + twice(key, n - 1))

    @jr.rec_fn
    def parted(key, x, n):
        mine, other = jax.random.split(key)
        drawn = jax.random.normal(mine, x.shape) * x
        return jr.cond(n < 1, lambda: drawn, lambda: drawn + parted(other, x, n - 1))

    x = jnp.arange(3.0)
    parts = parted(key, x, 2)
    with jr.executor(executor), jax.debug_key_reuse(True):
        np.testing.assert_allclose(parted(key, x, 2), parts, rtol=1e-5)
        assert jax.jacfwd(parted, 1)(key, x, 2).shape == jax.jacrev(parted, 1)(key, x, 2).shape
        assert np.isclose(branching(key, 1.0, 2), want)
        assert np.isclose(jax.grad(branching, 1)(key, 1.0, 0), branching(key, 1.0, 0))
        with pytest.raises(jax.errors.KeyReuseError, match="already consumed"):
            twice(key, 2)
