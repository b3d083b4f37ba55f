"""Sharing: calls with equal control arguments are one call."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.errors import JaxRuntimeError
from waves import sine
from zoo import JAXREC, PYTHON, assert_close, normal
from zoo_memo import Dag, memo_by_values, memo_nodes, random_dag

import jaxrec as jr

NODES, H = 16, 3
STATE = memo_nodes(JAXREC)
executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])


@jr.rec_fn(memo=True)
def fib(n):
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))


def reachable(graph: Dag, root: int) -> list[int]:
    """The nodes below a root, each once, in the order in which recursion meets them."""
    found: list[int] = []

    def visit(i: int) -> None:
        if i not in found:
            found.append(i)
            if graph.first[i] >= 0:
                visit(graph.first[i])
                visit(graph.second[i])

    visit(root)
    return found


def plain(w: Any, graph: Dag) -> Any:
    """Plain Python with a cache: a function of the node."""

    @functools.cache
    def state(i: int) -> Any:
        if graph.first[i] < 0:
            return jnp.sin(w[0, i % H] + i)
        first, second = state(int(graph.first[i])), state(int(graph.second[i]))
        return jnp.tanh(w[0] @ first + w[1] @ second + first)

    return state


class TestNumberOfCalls:
    @executors
    def test_fibonacci_is_linear(self, executor):
        with jr.executor(executor):
            assert int(fib(30)) == 832040
            assert fib.schedule(30).num_calls == 31
            _, calls = jr.collect(fib)(30)
        assert calls.args[0][calls.valid].tolist() == list(range(30, -1, -1))

    def test_deep_chain_of_shared_calls(self):
        schedule = fib.schedule(20_000)
        assert (schedule.num_calls, schedule.depth) == (20_001, 20_000)

    def test_examples_share_nothing(self):
        graph = random_dag(np.random.default_rng(0), NODES, 3)
        nodes = len(reachable(graph, NODES - 1))
        args = normal(1, 2, H, H), Dag(*map(jnp.asarray, graph)), jnp.full(2, NODES - 1)

        def run(most):
            return jax.vmap(STATE.with_options(max_calls=most), (None, None, 0))(*args)

        assert_close(run(2 * nodes)[1], plain(args[0], graph)(NODES - 1), 1e-5)
        with pytest.raises(jr.CapacityError, match=f"made {2 * nodes} calls .* is {nodes}"):
            run(nodes)

    def test_option_holds_for_the_function_called_at_the_root(self):
        alone = fib.with_options(memo=False)
        assert alone.schedule(10).num_calls == 177
        assert alone.with_options(memo=True).schedule(10).num_calls == 11
        assert alone.schedule(10).num_calls == 177

    def test_nodes_of_an_array_bound_the_calls(self):
        graph = random_dag(np.random.default_rng(0), NODES, 3)
        free = STATE.with_options(max_calls=None)
        got = jax.jit(free)(normal(1, 2, H, H), Dag(*map(jnp.asarray, graph)), NODES - 1)
        assert_close(got, plain(normal(1, 2, H, H), graph)(NODES - 1), 1e-5)

    def test_places_of_a_matrix_bound_the_calls(self):
        def path(lang):
            @lang.rec_fn(memo=True)
            def path(cost, i, j):
                def inner():
                    return cost[i, j] + jnp.tanh(path(cost, i - 1, j) - path(cost, i, j - 1))

                return lang.cond((i == 0) | (j == 0), lambda: cost[i, j] * jnp.ones(3), inner)

            return path

        cost = normal(7, 6, 5)
        assert_close(jax.jit(path(JAXREC))(cost, 5, 4), path(PYTHON)(cost, 5, 4), 1e-5)

    @pytest.mark.parametrize("start", [(6, 4), (0, 0), (-1, 4)])
    def test_pairs_of_elements_bound_the_calls(self, start):
        """Two sequences are aligned from their ends; an index counts from one."""

        def align(lang):
            @lang.rec_fn(memo=True)
            def align(a, b, i, j):
                def inner():
                    before = align(a, b, i - 1, j) + align(a, b, i, j - 1)
                    return jnp.tanh(a[i - 1] * b[j - 1] + before)

                return lang.cond((i <= 0) | (j <= 0), lambda: jnp.zeros(3), inner)

            return align

        a, b = normal(8, 6, 3), normal(9, 4, 3)
        got = jax.jit(align(JAXREC))(a, b, *start)
        assert_close(got, align(PYTHON)(a, b, *start), 1e-5)

    @executors
    def test_computed_control(self, executor):
        steps, w = memo_by_values(JAXREC), normal(206, H, H)
        with jr.executor(executor):
            _, calls = jr.collect(steps)(w, 9)
        met = calls.args[1][calls.valid].tolist()
        assert len(met) == len(set(met)) == steps.schedule(w, 9).num_calls
        assert steps.schedule(w, 9).call_path(2) == "f -> f[0] -> f[0]"

    def test_counters_of_other_types(self):
        @jr.rec_fn(memo=True)
        def f(w, n, flip):
            def inner():
                return w * f(w, n - jnp.uint8(1), ~flip) + f(w, n - jnp.uint8(1), flip)

            return jr.cond(n == 0, lambda: jnp.where(flip, w, 1.0), inner)

        assert f.schedule(2.0, jnp.uint8(6), True).num_calls == 13
        assert float(f(2.0, jnp.uint8(1), True)) == 4.0


@jax.jit
@functools.partial(jax.value_and_grad, has_aux=True)
def training_step(w: Any, graph: Dag, roots: Any) -> Any:
    """A loss on the results of the roots and of every call."""
    bounded = STATE.with_options(max_calls=3 * NODES)
    results, calls = jr.collect(bounded, (None, None, 0))(w, graph, roots)
    return jnp.sum(jnp.cos(results)) + jnp.sum(calls.results**2), calls


class TestRandomGraphs:
    @settings(max_examples=6, deadline=None, derandomize=True)
    @given(st.integers(0, 2**32 - 1), st.integers(1, 4))
    def test_against_a_cache(self, seed, sources):
        graph = random_dag(np.random.default_rng(seed), NODES, sources)
        w, arrays = normal(seed % 100, 2, H, H), Dag(*map(jnp.asarray, graph))
        roots = jnp.array([NODES - 1, NODES // 2, NODES - 1])
        schedule = STATE.schedule(w, arrays, NODES - 1)
        nodes = reachable(graph, NODES - 1)
        assert schedule.num_calls == len(nodes)
        assert sum(wave.count for wave in schedule.waves) == len(nodes)

        met = [i for root in roots.tolist() for i in reachable(graph, root)]

        def expected(w):
            state = plain(w, graph)
            results = jnp.stack([state(i) for i in roots.tolist()])
            return jnp.sum(jnp.cos(results)) + jnp.sum(jnp.stack([state(i) for i in met]) ** 2)

        (got, calls), grads = training_step(w, arrays, roots)
        assert_close((got, grads), jax.value_and_grad(expected)(w), 1e-4)
        assert calls.args[2][calls.valid].tolist() == met

    def test_call_path_is_the_first_one(self):
        graph = Dag(np.array([-1, -1, 0, 1, 2], np.int32), np.array([-1, -1, 1, 2, 3], np.int32))
        schedule = STATE.schedule(normal(0, 2, H, H), Dag(*map(jnp.asarray, graph)), 4)
        paths = [schedule.call_path(k) for k in range(schedule.num_calls)]
        assert paths == [
            "state",
            "state -> state[0]",
            "state -> state[0] -> state[0]",
            "state -> state[0] -> state[1]",
            "state -> state[1]",
        ]


class TestErrors:
    GRAPH = Dag(jnp.array([-1, 0, 1, 2]), jnp.array([-1, 0, 3, 0]))
    message = r"state calls itself with equal arguments before it returns.*\(memo=True\).*"

    @executors
    def test_a_call_waits_for_itself(self, executor):
        with (
            jr.executor(executor),
            pytest.raises(jr.RecursionLimitError, match=self.message) as e,
        ):
            STATE(normal(0, 2, H, H), self.GRAPH, 3)
        path = "state -> state[0] -> state[1] with arguments (i=3). Let every path"
        assert f"Call path: {path}" in str(e.value)

    def test_under_jit(self):
        with pytest.raises(JaxRuntimeError, match="RecursionLimitError: " + self.message):
            jax.block_until_ready(jax.jit(STATE)(normal(0, 2, H, H), self.GRAPH, 3))

    @executors
    @pytest.mark.parametrize("skip", [0, 1, 2])
    def test_a_call_waits_for_itself_where_control_is_computed(self, executor, skip):
        @jr.rec_fn(memo=True)
        def f(x, n):
            def inner():
                y = sine(f(x, n - 1))
                again = jnp.where(n == 3, n + skip, 1)
                return jr.cond(y > 2, lambda: y, lambda: f(x, again))

            return jr.cond(n <= 1, lambda: x, inner)

        with (
            jr.executor(executor),
            pytest.raises(jr.RecursionLimitError, match=r"f calls itself with equal arg") as e,
        ):
            f(0.5, 5)
        path = f"f -> f[0] -> f[0] -> f[1] with arguments (n={3 + skip})."
        assert f"Call path: {path}" in str(e.value)

    @executors
    def test_arguments_that_cannot_be_compared(self, executor):
        @jr.rec_fn(memo=True)
        def f(x, scale, n):
            return jr.cond(n == 0, lambda: x * scale, lambda: f(2 * x, scale, n - 1))

        with (
            jr.executor(executor),
            pytest.raises(jr.SignatureError, match=r"f are shared .*\n  x is float32\[3\]\n.*"),
        ):
            f(jnp.ones(3), 2.0, 4)

    @executors
    def test_equal_numbers_are_not_compared(self, executor):
        """At 1 both calls have equal arguments, but the derivatives of these are 1 and 2."""

        @jr.rec_fn(memo=True)
        def f(x, n):
            return jr.cond(n == 0, lambda: x, lambda: f(x, n - 1) + 3 * f(x * x, n - 1))

        with (
            jr.executor(executor),
            pytest.raises(jr.SignatureError, match=r"Equal numbers .*: x may depend differently"),
        ):
            f(1.0, 2)

    def test_graph_says_which_functions_are_shared(self):
        assert str(fib.graph(3)).startswith("shared function fib(n %0: int32[])")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_gradients_of_shared_results_in_each_type(dtype):
    """Sums over many readers are others where the type is no float32."""

    def gradient(memo):
        @jr.rec_fn(memo=memo, max_calls=64)
        def shared(w, n):
            def node():
                return shared(w, n - 1) + 0.5 * shared(w, n - 2) + jnp.sin(w)

            return jr.cond(n < 2, lambda: w, node)

        w = jnp.ones(20, dtype)
        return jax.grad(lambda w: jnp.sum(shared(w, 6)).astype(jnp.float32))(w)

    np.testing.assert_allclose(
        gradient(True).astype(jnp.float32), gradient(False).astype(jnp.float32), rtol=0.05
    )
