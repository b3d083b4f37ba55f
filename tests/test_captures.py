"""Recursive functions defined inside bodies, which close over what the bodies compute."""

import gc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from captured_programs import FLOAT, PROGRAMS, VALUE, recursion
from cases import in_turn
from jax.core import Tracer

import jaxrec as jr


@pytest.mark.parametrize(("name", "executor"), in_turn(PROGRAMS, first=1))
def test_values_and_gradients(name, executor):
    ours, plain, start = recursion(name)
    wants = [jax.value_and_grad(plain)(jnp.float32(w), jnp.int32(start)) for w in (0.5, 0.2)]
    with jr.executor(executor):
        got = jax.value_and_grad(ours)(0.5, start)
        np.testing.assert_allclose(got, wants[0], rtol=1e-4)
        both = jax.vmap(jax.value_and_grad(ours), (0, None))(jnp.array([0.5, 0.2]), start)
        np.testing.assert_allclose(jnp.stack(both), np.transpose(wants), rtol=1e-4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_under_jit(name):
    ours, plain, start = recursion(name)
    want = jax.value_and_grad(plain)(jnp.float32(0.5), jnp.int32(start))
    bounded = ours.with_options(max_calls=1000)
    np.testing.assert_allclose(jax.jit(jax.value_and_grad(bounded))(0.5, start), want, rtol=1e-4)


def test_they_are_arguments_by_their_names():
    outer, _, _ = recursion("over_a_tree")
    inner = outer.graph(0.5, 0).functions[1]
    assert inner.name == "inner"
    assert inner.param_names[1:] == ("s",)


def test_a_variable_of_a_loop_is_what_it_is_in_each_iteration():
    @jr.rec_fn
    def outer(i):
        total = 0.0
        for k in range(3):

            @jr.rec_fn
            def inner(j):
                return jr.cond(j == 0, lambda: VALUE[k], lambda: inner(j - 1) * 2)  # noqa: B023

            total = total + inner(i)
        return jr.cond(i <= 0, lambda: total, lambda: outer(i - 1) + total)

    assert float(outer(1)) == 18


def test_so_it_is_however_many_static_arguments_follow_from_one_another():
    @jr.rec_fn
    def outer(x):
        total = x * 0.0
        for k in range(3):

            @jr.rec_fn(static_argnames="n", out=FLOAT)
            def chain(y, n):
                return y * k if n == 0 else chain(y, n=n - 1) + 1  # noqa: B023

            total = total + chain(x, n=30)
        return total

    assert float(outer(1.0)) == 93


def test_a_function_of_the_module_reads_what_its_variables_hold_at_each_call(monkeypatch):
    @jr.rec_fn
    def outer(i):
        monkeypatch.setitem(globals(), "SCALE", 1.0)
        first = scaled(i)
        monkeypatch.setitem(globals(), "SCALE", 2.0)
        return first + scaled(i)

    assert float(outer(1)) == 3


SCALE = 0.0


@jr.rec_fn
def scaled(i):
    return jr.cond(i == 0, lambda: VALUE[0] * SCALE, lambda: scaled(i - 1))


def test_keys_and_random_numbers():
    def with_key(call_key):
        @jr.rec_fn
        def outer(key, i):
            own = jax.random.fold_in(key, i)

            @jr.rec_fn
            def inner(n):
                drawn = jax.random.uniform(jr.call_key(own) if call_key else own)
                return jr.cond(n <= 0, lambda: drawn, lambda: inner(n - 1) + drawn)

            return jr.cond(i <= 0, lambda: inner(1), lambda: outer(own, i - 1) + inner(2))

        return outer

    key = jax.random.key(3)
    first = jax.random.fold_in(key, 1)
    draws = jax.random.uniform(first) * 3 + jax.random.uniform(jax.random.fold_in(first, 0)) * 2
    np.testing.assert_allclose(with_key(False)(key, 1), draws, rtol=1e-6)
    graph = with_key(True)(key, 1)
    with jr.executor("reference"):
        np.testing.assert_allclose(with_key(True)(key, 1), graph, rtol=1e-6)


def test_calls_that_are_shared_share_with_what_they_close_over():
    @jr.rec_fn(memo=True)
    def outer(i):
        half = i // 2

        @jr.rec_fn(memo=True)
        def inner(n):
            return jr.cond(n <= half, lambda: n, lambda: inner(n - 1) + inner(n - 2))

        return jr.cond(i <= 2, lambda: i, lambda: outer(i - 1) + outer(i - 2) + inner(i))

    def plain(i):
        def inner(n):
            return n if n <= i // 2 else inner(n - 1) + inner(n - 2)

        return i if i <= 2 else plain(i - 1) + plain(i - 2) + inner(i)

    assert int(outer(12)) == plain(12)


def test_inside_functions_of_many_static_arguments():
    def make(rec):
        @rec(static_argnames="n", out=FLOAT)
        def outer(w, n):
            if n == 0:
                return w * 1.0
            s = jnp.sin(w) * n

            @rec()
            def inner(x):
                return x * s + n

            return inner(w) + outer(w * 0.9, n=n - 1)

        return outer

    plain = make(lambda **_: lambda fun: fun)
    ours = make(lambda **options: jr.rec_fn(**options))
    np.testing.assert_allclose(ours(0.5, n=30), plain(0.5, n=30), rtol=1e-5)


def tracers() -> int:
    gc.collect()
    return sum(isinstance(x, Tracer) for x in gc.get_objects())


def test_nothing_that_a_body_computes_stays():
    before = tracers()
    for name in ("over_a_tree", "in_functions_that_are_passed", "of_an_object_made_there"):
        ours, _, start = recursion(name)
        ours(0.5, start)
    assert tracers() == before


def test_what_they_read_from_outside_is_looked_at_with_every_call(monkeypatch):
    @jr.rec_fn(static_argnames="f")
    def walk(f, n):
        return jr.cond(n <= 0, lambda: f(1.0), lambda: walk(f, n - 1) + 1)

    offset = 0.0

    @jr.rec_fn
    def outer(w, i):
        s = jnp.sin(w)

        @jr.rec_fn
        def inner(n):
            return jr.cond(n <= 0, lambda: s * SCALE, lambda: inner(n - 1))

        return jr.cond(i <= 0, lambda: inner(1) + walk(lambda x: s * x + offset, 1), lambda: s)

    assert float(outer(0.5, 0)) == pytest.approx(np.sin(0.5) + 1)
    offset = 10.0
    assert float(outer(0.5, 0)) == pytest.approx(np.sin(0.5) + 11)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert float(outer(0.5, 0)) == pytest.approx(3 * np.sin(0.5) + 11)


def test_a_second_call_traces_nothing():
    outer, _, start = recursion("over_a_tree")
    outer(0.5, start)
    before = outer.cache_info()
    outer(0.25, start)
    assert outer.cache_info() == before


def test_a_value_of_a_call_that_is_over_is_refused():
    seen: list[Any] = []

    @jr.rec_fn
    def first(x, n):
        seen.append(x * 2.0)
        return jr.cond(n == 0, lambda: x, lambda: first(x, n - 1))

    @jr.rec_fn
    def second(n):
        return jr.cond(n == 0, lambda: seen[-1], lambda: second(n - 1))

    @jr.rec_fn
    def outer(x, n):
        return first(x, n) + second(n)

    with pytest.raises(
        jr.UnsupportedError, match=r"second, called by outer, closes over .* as an argument"
    ):
        outer(1.0, 2)
