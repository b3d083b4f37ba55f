"""What goes wrong as a recursion runs: no end, indices, capacity; every message by its text."""

from __future__ import annotations

import contextlib

import jax
import jax.numpy as jnp
import pytest
from jax.errors import JaxRuntimeError
from recursions import ONE, TREE, counting, total
from waves import sine

import jaxrec as jr

WRONG = dict(TREE, left=jnp.array([1, 7, -1]))
FINE = contextlib.nullcontext()


@jr.rec_fn
def waves(w, tree, i):
    def node():
        return sine(waves(w, tree, tree["left"][i])) + waves(w, tree, tree["right"][i])

    return jr.cond(tree["left"][i] < 0, lambda: tree["x"][i] * w, node)


small = total.with_options(max_calls=2)


class TestEndlessRecursion:
    def test_no_path_without_a_call(self):
        @jr.rec_fn
        def never(x):
            return never(x) + 1

        with pytest.raises(
            jr.RecursionLimitError, match=r"never never ends: every path.*no base case"
        ):
            never(1.0)

    def test_a_base_case_in_a_loop(self):
        @jr.rec_fn
        def total(x, n):
            return jax.lax.fori_loop(0, n, lambda k, acc: acc + total(x, k), x)

        with pytest.raises(
            jr.RecursionLimitError,
            match=r"a loop of JAX chooses is not seen: .* declare .* rec_fn\(out=",
        ):
            total(1.0, 3)

    def test_no_branch_without_a_call(self):
        ends = counting(lambda f, x, n: f(x, n - 1))

        @jr.rec_fn
        def never(x, n):
            return jr.cond(n == 0, lambda: never(x, n - 1), lambda: never(ends(x, n), n + 1))

        with pytest.raises(jr.RecursionLimitError, match=r"never never ends"):
            never(1.0, 2)

    def test_base_case_hidden_in_lax_cond(self):
        @jr.rec_fn
        def f(x, n):
            return jax.lax.cond(n == 0, lambda: x, lambda: f(x, n - 1))

        with pytest.raises(
            jr.RecursionLimitError,
            match=r"jax.lax.cond, .* not seen: choose with jaxrec.cond .* declare .*rec_fn\(out=",
        ):
            f(1.0, 3)

    @pytest.mark.parametrize("out", [None, jax.ShapeDtypeStruct((), jnp.float32)])
    def test_of_static_arguments(self, out):
        @jr.rec_fn(static_argnames="depth", out=out)
        def deeper(x, depth):
            return jr.cond(x < 0, lambda: x, lambda: deeper(x - 1, depth + 1))

        message = r"deeper is another function for every value .* the last with \(depth=\d+\)"
        with pytest.raises(jr.RecursionLimitError, match=message):
            deeper(1.0, 0)

    def test_of_python_is_left_to_python(self):
        def forever(x):
            return forever(x + 1)

        @jr.rec_fn
        def f(x):
            return jr.cond(x < 0, lambda: x, lambda: f(forever(x)))

        with pytest.raises(RecursionError, match="maximum recursion depth"):
            f(1.0)


class TestIndices:
    message = r"read tree\['left'\]\[7\], which is out of range for an array of 3 elements"

    def test_eagerly(self):
        with pytest.raises(jr.JaxRecError, match=self.message) as e:
            total(ONE, WRONG, 0)
        assert "Call path: total -> total[0] -> total[0]" in str(e.value)

    def test_under_jit(self):
        with pytest.raises(JaxRuntimeError, match=r"JaxRecError: total " + self.message):
            jax.block_until_ready(jax.jit(total)(ONE, WRONG, 0))

    def test_in_the_gradient(self):
        with pytest.raises(jr.JaxRecError, match=self.message):
            jax.grad(total)(ONE, WRONG, 0)

    def test_in_a_batch(self):
        with pytest.raises(jr.JaxRecError, match=self.message):
            jax.vmap(total, (None, None, 0))(ONE, WRONG, jnp.array([2, 1]))

    @pytest.mark.parametrize("executor", ["graph", "host", "reference"])
    def test_from_the_end(self, executor):
        @jr.rec_fn(max_calls=9)
        def last(x, at, i):
            return jr.cond(at[i] < 0, lambda: x, lambda: last(x, at, -at[i]))

        message = r"last read at\[-9\], .* \(axis 0\)\. Call path: last ->"
        with jr.executor(executor), pytest.raises(jr.JaxRecError, match=message):
            last(ONE, jnp.array([9, -1]), 0)

    def test_of_the_root(self):
        with pytest.raises(jr.JaxRecError, match=r"read tree\['left'\]\[5\].*Call path: total\."):
            total(ONE, TREE, 5)

    def test_when_collecting(self):
        with pytest.raises(jr.JaxRecError, match=self.message):
            jr.collect(total)(ONE, WRONG, 0)

    def test_on_the_reference_executor(self):
        with jr.executor("reference"), pytest.raises(jr.JaxRecError, match=self.message) as e:
            total(ONE, WRONG, 0)
        with pytest.raises(jr.JaxRecError, match=self.message) as same:
            total(ONE, WRONG, 0)
        assert str(e.value) == str(same.value)


class TestCapacity:
    message = (
        r"total made 3 calls in one invocation, but max_calls is 2.* Pass rec_fn\(max_calls=3\)"
    )

    def test_eagerly(self):
        with pytest.raises(jr.CapacityError, match=self.message):
            small(ONE, TREE, 0)

    @pytest.mark.parametrize("run", [small, jax.grad(small)], ids=["value", "gradient"])
    def test_on_the_reference_executor(self, run):
        with jr.executor("reference"), pytest.raises(jr.CapacityError, match=self.message):
            run(ONE, TREE, 0)

    def test_of_a_batch_on_the_reference_executor(self):
        bounded = total.with_options(max_calls=4)
        with (
            jr.executor("reference"),
            pytest.raises(jr.CapacityError, match=r"total made 5 calls .* is 4. Pass .*=5\)"),
        ):
            jax.vmap(bounded, (None, None, 0))(ONE, TREE, jnp.array([0, 1, 2]))

    def test_under_jit(self):
        with pytest.raises(JaxRuntimeError, match=r"CapacityError: " + self.message):
            jax.block_until_ready(jax.jit(small)(ONE, TREE, 0))

    def test_under_jit_of_the_gradient(self):
        with pytest.raises(JaxRuntimeError, match=r"CapacityError: " + self.message):
            # By more numbers than the machine for scalars takes.
            slope = jax.grad(lambda w, tree: small(w, tree, 0).sum())
            jax.block_until_ready(jax.jit(slope)(jnp.ones(9), TREE))

    def test_after_calls_that_did_not_fail(self):
        """JAX dispatches later calls of a jitted function another way, with other errors."""
        halved = counting(lambda self, x, n: self(x / 2, n + jnp.int32(x > 100.0) - 1))
        bounded = halved.with_options(max_calls=3)
        eager = {"value": bounded, "grad": jax.grad(bounded), "collect": jr.collect(bounded)}
        for run in eager.values():
            for calls in (2, 9, 9):
                with pytest.raises(jr.CapacityError, match="count made") if calls > 3 else FINE:
                    jax.block_until_ready(run(ONE, calls))
        run = jax.jit(bounded)
        jax.block_until_ready(run(ONE, 2))
        for _ in range(2):
            with pytest.raises((JaxRuntimeError, ValueError), match="CapacityError: count made"):
                jax.block_until_ready(run(ONE, 9))

    def test_roots_that_share_nodes_need_a_bound(self):
        with pytest.raises(
            JaxRuntimeError, match=r"waves made 5 calls in one invocation, but .* is 3"
        ):
            run = jax.jit(jax.vmap(waves, (None, None, 0)))
            jax.block_until_ready(run(ONE, TREE, jnp.array([0, 1, 2])))

    def test_no_bound_under_jit(self):
        with pytest.raises(jr.CapacityError, match=r"of count must be bounded.*max_calls=\.\.\."):
            jax.jit(counting(lambda f, x, n: sine(f(x * 2, n - 1))))(ONE, 3)

    def test_no_bound_for_scalars_of_an_operation_that_their_machine_lacks(self):
        double = counting(lambda f, x, n: jax.scipy.special.gammaln(f(x, n - 1)))
        with pytest.raises(jr.CapacityError, match=r"must be bounded.* not compute lgamma\."):
            jax.jit(double)(2.5, 3)
        with pytest.raises(jr.CapacityError, match="with_options") as caught:
            jax.jit(double)(jnp.ones(70), 3)
        assert "machine" not in str(caught.value)

    def test_no_bound_on_executor_reference(self):
        double = counting(lambda f, x, n: 2 * f(x, n - 1))
        assert jax.jit(double)(1.0, 3) == 8.0
        expected = r'of count must be bounded.*Executor "graph" needs none for count'
        with jr.executor("reference"), pytest.raises(jr.CapacityError, match=expected):
            jax.jit(double)(1.0, 3)

    @pytest.mark.parametrize("bound", ["many", 0, -5, 1.5, True])
    def test_bound_is_not_a_number_of_calls(self, bound):
        with pytest.raises(jr.SignatureError, match=r"of total: expected a positive integer"):
            total.with_options(max_calls=bound)
