"""What users get wrong, and what jaxrec tells them: every message by its text."""

from __future__ import annotations

import contextlib
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.errors import JaxRuntimeError
from jax.experimental import io_callback

import jaxrec as jr

TREE = {
    "left": jnp.array([1, -1, -1]),
    "right": jnp.array([2, -1, -1]),
    "x": jnp.array([1.0, 2.0, 3.0]),
}
CYCLE = dict(TREE, left=jnp.array([1, 2, 0]))
WRONG = dict(TREE, left=jnp.array([1, 7, -1]))
ONE = jnp.ones(())
FINE = contextlib.nullcontext()


def fold(call):
    """A recursion over a tree whose recursive case is `call(itself, w, tree, i)`."""

    @jr.rec_fn
    def fold(w, tree, i):
        return jr.cond(
            tree["left"][i] < 0, lambda: tree["x"][i] * w, lambda: call(fold, w, tree, i)
        )

    return fold


def counting(step):
    """A recursion over a counter whose recursive case is `step(itself, x, n)`."""

    @jr.rec_fn
    def count(x, n):
        return jr.cond(n == 0, lambda: x, lambda: step(count, x, n))

    return count


@jr.rec_fn
def total(w, tree, i):
    def node():
        return total(w, tree, tree["left"][i]) + total(w, tree, tree["right"][i])

    return jr.cond(tree["left"][i] < 0, lambda: tree["x"][i] * w, node)


@jr.rec_fn
def waves(w, tree, i):
    def node():
        return jnp.sin(waves(w, tree, tree["left"][i])) + waves(w, tree, tree["right"][i])

    return jr.cond(tree["left"][i] < 0, lambda: tree["x"][i] * w, node)


small = total.with_options(max_calls=2)


class TestTypes:
    def test_every_difference_between_calls_is_listed(self):
        wrong = fold(lambda f, w, t, i: f(w[None], t, t["left"][i].astype(float)))
        with pytest.raises(
            jr.SignatureError, match=r"w is float32\[1\], expected float32\[\]"
        ) as e:
            wrong(ONE, TREE, 0)
        assert "fold calls fold with arguments that differ" in str(e.value)
        assert "i is float32[], expected int32[]" in str(e.value)
        assert "tree['x']: float32[3]" in str(e.value)

    def test_a_number_takes_a_type_that_does_not_fit(self):
        @jr.rec_fn
        def f(x, at, i):
            return jr.cond(at[i] < 0, lambda: x, lambda: f(x, at, at[i] * 1.5))

        with pytest.raises(jr.SignatureError, match=r"(?s)Indexer.*f: i is float32.*Convert one"):
            f(ONE, jnp.array([1, -1]), 0)

    def test_structures_of_arguments_differ(self):
        wrong = fold(lambda f, w, t, i: f((w, w), t, t["left"][i]))
        with pytest.raises(
            jr.SignatureError, match=r"\n  w: the structure is PyTreeDef\(\(\*, \*\)"
        ):
            wrong(ONE, TREE, 0)

    def test_a_return_is_missing(self):
        @jr.rec_fn
        def f(x, n):
            jr.cond(n == 0, lambda: x, lambda: 2 * f(x, n - 1))

        with pytest.raises(jr.SignatureError, match=r"f returns None: is a return missing\?"):
            f(1.0, 3)

    def test_base_case_and_recursion_differ_in_shape(self):
        @jr.rec_fn
        def f(x, n):
            return jr.cond(n == 0, lambda: jnp.ones(3), lambda: f(x, n - 1)[0])

        with pytest.raises(
            jr.SignatureError, match=r"leaf 0 is float32\[3\], expected float32\[\]"
        ):
            f(1.0, 3)

    def test_base_case_and_recursion_differ_in_dtype(self):
        @jr.rec_fn
        def f(x, n):
            return jr.cond(n == 0, lambda: jnp.int32(1), lambda: f(x, n - 1) * 0.5)

        with pytest.raises(jr.SignatureError, match=r"leaf 0 is int32\[\], expected float32\[\]"):
            f(1.0, 3)

    def test_base_case_and_recursion_differ_in_structure(self):
        @jr.rec_fn
        def f(x, n):
            return jr.cond(n == 0, lambda: (x, x), lambda: f(x, n - 1)[0])

        with pytest.raises(jr.SignatureError, match=r"branches of a cond or switch in f"):
            f(1.0, 3)

    def test_branches_of_a_switch_differ(self):
        @jr.rec_fn
        def f(x, n):
            return jr.switch(n, [lambda: x, lambda: f(x, n - 1), lambda: jnp.ones(2)])

        with pytest.raises(jr.SignatureError, match=r"branch 2 differs from branch 0: leaf 0 is"):
            f(jnp.ones(3), 1)

    def test_result_is_not_what_was_declared(self):
        @jr.rec_fn(out=jax.ShapeDtypeStruct((), jnp.float32))
        def f(x, n):
            return jr.cond(n == 0, lambda: jnp.ones(3), lambda: f(x, n - 1) * jnp.ones(3))

        with pytest.raises(jr.SignatureError, match=r"the type declared by out="):
            f(1.0, 3)

    @pytest.mark.parametrize(
        "call",
        [lambda: total("w", TREE, 0), lambda: counting(lambda f, x, n: f("x", n - 1))(ONE, 2)],
        ids=["outside", "inside"],
    )
    def test_argument_is_not_an_array(self, call):
        with pytest.raises(
            jr.SignatureError, match=r"of type str, which is not an array.*static_arg"
        ):
            call()

    def test_result_is_not_an_array(self):
        with pytest.raises(
            jr.SignatureError, match=r"returns 'text' of type str; results are pytrees"
        ):
            jr.rec_fn(lambda x: "text")(1.0)

    def test_arguments_do_not_fit_the_parameters(self):
        with pytest.raises(
            jr.SignatureError, match=r"total\(w, tree, i\) is called .*argument: 'i'"
        ):
            total(ONE, TREE)


class TestPythonControl:
    """What Python looks at is traced: JAX's error names the function and the argument."""

    @pytest.mark.parametrize(
        ("look", "error"),
        [
            (lambda n: bool(n == 0), jax.errors.TracerBoolConversionError),
            (lambda n: range(n), jax.errors.TracerIntegerConversionError),
            (lambda n: np.asarray(n), jax.errors.TracerArrayConversionError),
        ],
    )
    def test_on_an_argument(self, look, error):
        @jr.rec_fn(static_argnames="kind")
        def looking(kind, x, n):
            return x if look(n) else looking(kind, x, n - 1)

        with pytest.raises(error, match=r"function looking at .* the argument n\.") as caught:
            looking("a", 1.0, 2)
        notes = [x for x in caught.value.__notes__ if "jaxrec.cond" in x]
        assert len(notes) == 1
        assert notes[0].startswith("looking is traced once for all calls")

    def test_a_cache_of_python(self):
        @jr.rec_fn
        @functools.cache
        def fib(n):
            return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

        with pytest.raises(TypeError, match=r"unhashable type: .*Tracer") as caught:
            fib(5)
        assert [x for x in caught.value.__notes__ if "rec_fn(memo=True)" in x]


class TestClosures:
    def test_over_a_value_of_another_body(self):
        @jr.rec_fn
        def outer(x, n):
            @jr.rec_fn
            def inner(y, m):
                return jr.cond(m == 0, lambda: x * y, lambda: inner(y + x, m - 1))

            return jr.cond(n == 0, lambda: x, lambda: inner(outer(x, n - 1), n))

        with pytest.raises(
            jr.UnsupportedError, match=r"inner, called by outer, closes over .* as an argument"
        ):
            outer(1.0, 2)


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
            jr.RecursionLimitError, match=r"unless .* a loop chooses, .* declare .* rec_fn\(out="
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
            jr.RecursionLimitError, match=r"unless jax.lax.cond or .* declare .*rec_fn\(out=...\)"
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

        message = r"last read at\[-7\], .* \(axis 0, from the end: index -9\)\. Call path: last ->"
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
            jax.jit(counting(lambda f, x, n: jnp.sin(f(x * 2, n - 1))))(ONE, 3)

    @pytest.mark.parametrize("bound", ["many", 0, -5, 1.5, True])
    def test_bound_is_not_a_number_of_calls(self, bound):
        with pytest.raises(jr.SignatureError, match=r"of total: expected a positive integer"):
            total.with_options(max_calls=bound)


class TestUnsupported:
    def test_transposition(self):
        transpose = jax.linear_transpose(lambda x: total(x, TREE, 0), ONE)
        with pytest.raises(jr.UnsupportedError, match=r"transpose of total: .* jax\.vjp\(total"):
            transpose(ONE)

    def test_gradient_of_a_call(self):
        with pytest.raises(
            jr.UnsupportedError, match=r"jax\.grad is applied .* outside: jax\.grad\(count"
        ):
            counting(lambda f, x, n: jax.grad(lambda y: f(y, n - 1).sum())(x))(jnp.ones(3), 2)

    def test_backward_rule_that_calls(self):
        def step(f, x, n):
            @jax.custom_vjp
            def scaled(y, n):
                return 2 * f(y, n - 1)

            def backward(kept, g):
                return g * f(kept[0], kept[1] - 1), None

            scaled.defvjp(lambda y, n: (scaled(y, n), (y, n)), backward)
            return scaled(x, n)

        with pytest.raises(
            jr.UnsupportedError, match="count uses a custom_vjp whose backward rule calls count"
        ):
            counting(step)(jnp.ones(3), 2)

    def test_rule_that_closes_over_a_value(self):
        def step(f, x, n):
            scaled = jax.custom_vjp(lambda y: 2 * f(y, n - 1))
            scaled.defvjp(lambda y: (2 * f(y, n - 1), y), lambda y, g: (g * y,))
            return scaled(x)

        with pytest.raises(
            jr.UnsupportedError, match=r"count uses a custom_vjp .* closes over .* make .* arg"
        ):
            counting(step)(jnp.ones(3), 2)

    def test_axis_of_a_vmap_around_the_call(self):
        def step(f, x, n):
            return f(x - jax.lax.pmean(x, "lanes"), n - 1)

        run = jax.vmap(counting(step), (0, None), axis_name="lanes")
        with pytest.raises(jr.UnsupportedError, match=r"count computes with the axis 'lanes' of a"):
            run(jnp.ones((2, 3)), 2)

    def test_axis_of_a_vmap_inside_a_body(self):
        def step(f, x, n):
            return f(jax.vmap(lambda y: y - jax.lax.pmean(y, "i"), axis_name="i")(x), n - 1)

        assert counting(step)(jnp.ones(3), 2).shape == (3,)

    @pytest.mark.parametrize("effect", ["debug", "io", "ref"])
    def test_side_effects(self, effect):
        ref = jax.new_ref(jnp.zeros(3))

        def step(f, x, n):
            if effect == "debug":
                jax.debug.print("{x}", x=x)
            elif effect == "io":
                io_callback(print, None, x)
            else:
                ref[...] += x
            return f(x, n - 1)

        with pytest.raises(
            jr.UnsupportedError, match=r"count has a side effect \(\w+.*\): .* pure"
        ):
            counting(step)(jnp.ones(3), 2)

    def test_collect_inside_a_body(self):
        with pytest.raises(jr.UnsupportedError, match=r"collect\(count\) inside the body of count"):
            counting(lambda f, x, n: jr.collect(f)(x, n - 1)[0])(ONE, 2)


class TestWordsForWhatIsWrong:
    """Mistakes in declarations and branches are told as such."""

    def test_a_switch_without_branches(self):
        @jr.rec_fn
        def empty(x, n):
            return jr.switch(n, [])

        with pytest.raises(jr.SignatureError, match="a switch in empty has no branches"):
            empty(ONE, 1)

    def test_a_branch_that_returns_no_array(self):
        @jr.rec_fn
        def named(x, n):
            return jr.cond(n < 0, lambda: (x, "done"), lambda: (named(x, n - 1)[0], "done"))

        message = "a branch in named returns 'done' of type str; results are pytrees of arrays"
        with pytest.raises(jr.SignatureError, match=message):
            named(ONE, 1)

    @pytest.mark.parametrize(
        ("out", "message"),
        [
            (lambda x, n: (x.shape,), "down: out= gives 3 of type int, expected a pytree of"),
            (lambda y: y, "down: out= failed: TypeError: .* takes 1 positional argument"),
            (
                jax.ShapeDtypeStruct((4,), jnp.float32),
                "What down returns to itself has the type declared by out=",
            ),
        ],
    )
    def test_a_wrong_result_type(self, out, message):
        @jr.rec_fn(out=out)
        def down(x, n):
            return jr.cond(n <= 0, lambda: x, lambda: down(x, n - 1))

        with pytest.raises(jr.SignatureError, match=message):
            down(jnp.ones(3), 3)
