"""A second call with values of the same types takes a shorter way to the same result."""

from __future__ import annotations

import copy
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr
from jaxrec.invocation import _params
from jaxrec.primitives._invoke import Invocation


@jr.rec_fn
def fib(n):
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))


def test_numbers():
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: 0 * x + 1, lambda: x * power(x, n - 1))

    for x, n in [(2, 3), (3, 2), (2.0, 3), (0.5, 4), (np.float32(3.0), 2), (True, 2)]:
        for _ in range(3):
            got = power(x, n)
            assert float(got) == float(x) ** n
            want = np.float32 if isinstance(x, float | np.floating) else np.int32
            assert got.dtype == want and got.shape == () and not got.committed


@jr.rec_fn
def evaluate(w, x, n):
    return jr.cond(n == 0, lambda: w["b"], lambda: w["a"][n % 2] * x + evaluate(w, x, n - 1))


def count_invocations(monkeypatch):
    """The invocations made from now on: none by calls that take the shorter way."""
    made = []
    init = Invocation.__init__
    monkeypatch.setattr(Invocation, "__init__", lambda *x, **y: (made.append(x), init(*x, **y))[1])
    return made


@pytest.mark.parametrize("array", [jnp.asarray, np.asarray], ids=["jax", "numpy"])
def test_arrays(array, monkeypatch):
    def values(k):
        w = {"a": array([1.5 + k, 2.0], np.float32), "b": array(0.5 * k, np.float32)}
        return w, array(3.0 - k, np.float32), array(3, np.int32)

    def want(k):
        return 0.5 * k + (3 - k) * (2 * 2.0 + (1.5 + k))

    evaluate(*values(0))
    made = count_invocations(monkeypatch)
    for k in range(4):
        w, x, n = values(k)
        got = evaluate(w, x, n)
        assert float(got) == want(k)
        assert got.dtype == np.float32 and got.shape == () and not got.committed
        assert float(evaluate(w, 3.0 - k, 3)) == want(k)  # numbers among arrays
    assert len(made) == 1  # the first with numbers


def test_arrays_of_other_types():
    @jr.rec_fn
    def total(x, n):
        return jr.cond(n == 0, lambda: 0 * x, lambda: x + total(x, n - 1))

    with jax.enable_x64(True):
        for x in (1.5, np.float64(1.5), np.float32(1.5), np.int8(2), np.ones(3), np.ones((2, 1))):
            for given in (x, jnp.asarray(x), np.asarray(x)):
                for _ in range(2):
                    got, like = total(given, 3), jnp.asarray(given)
                    assert got.tolist() == (3 * np.asarray(x)).tolist()
                    assert (got.dtype, got.shape) == (like.dtype, like.shape)


def test_an_array_that_is_written_to_afterwards():
    first = jr.rec_fn(lambda x, n: jr.cond(n == 0, lambda: x, lambda: x))
    x = np.arange(4, dtype=np.float32)
    found = [first(x, 1) for _ in range(3)]
    x[:] = 9
    assert [y.tolist() for y in found] == [[0, 1, 2, 3]] * 3


def test_arrays_that_are_somewhere():
    n = jax.device_put(jnp.int32(7), jax.devices()[0])
    for _ in range(3):
        assert fib(n).committed and not fib(jnp.int32(7)).committed
        assert int(fib(n)) == 13


def test_arrays_that_are_gone():
    n = jnp.int32(7)
    assert int(fib(n)) == int(fib(n)) == 13
    n.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        fib(n)


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        ("bool", [True, False], []),
        ("int8", [5, 0, 127], [128, -129, 2**70]),
        ("uint8", [5, 255], [256, -1]),
        ("int16", [300], [2**15]),
        ("uint32", [2**32 - 1, 0], [2**32, -1, 2**64]),
        ("int64", [2**62, -(2**63)], [2**63]),
        ("uint64", [2**63 - 1], [2**64, -1]),
        ("float32", [0.1, 2, 1e39, math.inf], []),
        ("float64", [0.1, 2], []),
    ],
)
def test_numbers_that_take_the_type_of_arrays(dtype, good, bad):
    """A number that is first becomes of the type of the array that a call passes."""

    @jr.rec_fn
    def first(x, n):
        def deeper():
            return first(jax.lax.convert_element_type(x, dtype), n - 1)

        return jr.cond(n == 0, lambda: x, deeper)

    with jax.enable_x64(True), np.errstate(over="ignore"):
        for x in good:
            for _ in range(3):
                got = first(x, 2)
                assert got.dtype == dtype and got.item() == np.array(x, dtype).item()
        for x in bad:
            with pytest.raises(OverflowError, match="argument x of first"):
                first(x, 2)


def test_the_result_is_an_array_as_any_other():
    """What the host reads is there from the start, and is that of the device."""
    fib(4)
    got = fib(7)
    assert (int(got), got.item(), int(got + 1), str(got)) == (13, 13, 14, "13")
    assert not np.asarray(got).flags.writeable
    assert int(jax.device_get(got)) == int(copy.deepcopy(got)) == 13
    assert int(jax.jit(lambda x: x + 1, donate_argnums=0)(got)) == 14
    with pytest.raises(RuntimeError, match="has been deleted"):
        int(got)


def test_where_transfers_are_guarded():
    """As with a compiled program, results are put on the device by name."""
    n = jnp.int32(7)
    assert [int(fib(n)), int(fib(4))] == [13, 3]
    with jax.transfer_guard("disallow"):
        assert isinstance(fib(n), jax.Array)
        got = fib(7)
    assert int(got) == 13


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_where_transfers_of_tables_are_guarded(executor):
    @jr.rec_fn
    def waves(x, n):
        return jr.cond(n == 0, lambda: x, lambda: jnp.cumsum(waves(x, n - 1)))

    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: 0 * x + 1, lambda: x * power(x, n - 1))

    x, xs, n, ns = jnp.float32(2), jnp.arange(100.0), jnp.int32(2), jnp.arange(3)
    calls = [
        lambda: waves(xs, n),
        lambda: jax.vmap(waves, (None, 0))(xs, ns),
        lambda: jax.vjp(lambda x: waves(x, n), xs)[1](xs),
        lambda: jax.vmap(power, (None, 0))(x, ns),
        lambda: jax.jvp(lambda x: power(x, n), (x,), (x,)),
        lambda: jax.vjp(lambda x: power(x, n), x)[1](x),
    ]
    with jr.executor(executor):
        for call in calls:
            want = call()
            with jax.transfer_guard_host_to_device("disallow"):
                got = call()
            jax.tree.map(np.testing.assert_array_equal, got, want)


def test_values_that_it_closes_over():
    steps = jnp.array([1, 2, 3])

    @jr.rec_fn
    def total(n):
        return jr.cond(n < 0, lambda: 0, lambda: steps[n] + total(n - 1))

    assert [int(total(n)) for n in (2, 1, 2, 0)] == [6, 3, 6, 1]


def test_defaults_and_keywords():
    @jr.rec_fn
    def count(n, step=1):
        return jr.cond(n <= 0, lambda: 0, lambda: 1 + count(n - step, step))

    calls = [count(6), count(6, 2), count(6), count(6, step=3), count(n=6), count(6, 2)]
    assert list(map(int, calls)) == [6, 3, 6, 2, 6, 3]


def test_static_arguments_and_methods():
    @jr.rec_fn(static_argnums=1)
    def count(n, step):
        return jr.cond(n <= 0, lambda: 0, lambda: 1 + count(n - step, step))

    class Counter:
        def __init__(self, step):
            self.step = step

        @jr.rec_fn
        def count(self, n):
            return jr.cond(n <= 0, lambda: 0, lambda: 1 + self.count(n - self.step))

    assert [int(count(6, k)) for k in (1, 2, 1, 2)] == [6, 3, 6, 3]
    one, two = Counter(1), Counter(2)
    assert [int(c.count(6)) for c in (one, two, one, two)] == [6, 3, 6, 3]


def test_settings_of_jax():
    fun = fib.with_options()
    for _ in range(2):
        assert fun(7).dtype == np.int32
        with jax.enable_x64(True):
            assert fun(7).dtype == np.int64
        with jr.executor("reference"):
            assert int(fun(7)) == 13
    nan = jr.rec_fn(lambda x, n: jr.cond(n == 0, lambda: x * 0.0, lambda: x))
    assert all(np.isnan(nan(math.inf, 0)) for _ in range(2))
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="nan"):
        nan(math.inf, 0)


def test_transformations_after_it():
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: 0 * x + 1, lambda: x * power(x, n - 1))

    assert [float(power(2.0, 3)) for _ in range(2)] == [8.0, 8.0]
    assert float(jax.grad(power)(2.0, 3)) == 12.0
    assert float(jax.jit(lambda: power(2.0, 3))()) == 8.0
    assert jax.vmap(lambda _: power(2.0, 3))(jnp.zeros(2)).tolist() == [8.0, 8.0]


def test_errors_are_those_of_the_first_call():
    fun = fib.with_options(max_calls=100)
    assert int(fun(3)) == 2
    with pytest.raises(jr.CapacityError, match="max_calls is 100"):
        fun(20)
    with pytest.raises(OverflowError, match="does not fit int32"):
        fun(2**40)


def test_as_many_arguments_as_parameters_of_which_one_has_a_default():
    @jr.rec_fn
    def down(*xs, n=3):
        return jr.cond(xs[0] <= 0, lambda: xs[1] + n, lambda: down(xs[0] - 1, xs[1], n=n))

    for k in range(3):
        assert down(k, 2) == 5
        assert down(k, 2, n=1) == 3


def test_a_function_with_other_options_forgets_too():
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: 1, lambda: x * power(x, n - 1))

    alone = power.with_options(workers=1)
    for function in (power, alone):
        assert [int(function(2, k)) for k in range(3)] == [1, 2, 4]
    assert power.cache_info() == alone.cache_info()
    power.clear_cache()
    assert power.cache_info().traces == 0
    assert [int(alone(2, k)) for k in range(3)] == [1, 2, 4]
    assert alone.cache_info().traces == 1


def test_what_is_static_is_found_out_once(monkeypatch):
    @jr.rec_fn
    def total(w, tree, i):
        def child(k):
            return jr.cond(tree[i, k] < 0, lambda: jnp.ones(2), lambda: total(w, tree, tree[i, k]))

        return jr.cond(tree[i, 0] < 0, lambda: w[0], lambda: (child(0) + child(1)) @ w)

    tree = jnp.array([[1, -1], [-1, -1]])
    np.testing.assert_array_equal(total(jnp.eye(2), tree, 0), [2, 1])
    monkeypatch.setattr(_params, "pattern_of", None)
    monkeypatch.setattr(_params, "outers_behind", None)
    np.testing.assert_array_equal(total(2 * jnp.eye(2), tree, 0), [6, 2])
