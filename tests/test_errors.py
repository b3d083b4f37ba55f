"""What users write wrongly, and what jaxrec says when it traces: every message by its text."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from recursions import ONE, TREE, counting, fold, total

import jaxrec as jr


def test_arguments_that_a_function_does_not_have():
    @jr.rec_fn
    def power(x, n):
        return jr.cond(n == 0, lambda: x, lambda: x * power(x, n - 1))

    for call, message in {
        lambda: power(ONE, 1, 2): r"called as power\(_, _, _\): too many positional arguments",
        lambda: power(ONE, m=2): r"power\(x, n\) is called as power\(_, m=_\): ",
    }.items():
        with pytest.raises(jr.SignatureError, match=message):
            call()


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
            jr.SignatureError,
            match=r"\n  w: the structure is \(\*, \*\), expected that of an array",
        ):
            wrong(ONE, TREE, 0)

    def test_a_value_in_the_place_of_none(self):
        @jr.rec_fn
        def total(n, acc=None):
            acc = 0 if acc is None else acc
            return jr.cond(n < 1, lambda: acc, lambda: total(n - 1, acc + n))

        message = r"acc: the structure is that of an array, expected None(?s:.*)Pass a first value"
        with pytest.raises(jr.SignatureError, match=message):
            total(3)

    def test_a_dataclass_that_is_no_pytree(self):
        @dataclasses.dataclass
        class Point:
            x: Any

        @jr.rec_fn
        def f(point, n):
            return jr.cond(n < 1, lambda: point.x, lambda: f(point, n - 1))

        message = r"argument point of f is .* register Point as one with jax.tree_util.register_da"
        with pytest.raises(jr.SignatureError, match=message):
            f(Point(jnp.ones(3)), 2)

    def test_a_list_that_is_indexed(self):
        @jr.rec_fn
        def last(following, i):
            def more():
                return last(following, following[i])

            return jr.cond(jnp.asarray(following)[i] < 0, lambda: i, more)

        with pytest.raises(jax.errors.TracerIntegerConversionError, match="__index__") as raised:
            last([1, 2, -1], 0)
        notes = "".join(raised.value.__notes__)
        assert "last is traced once" in notes
        assert "jnp.asarray(values)[i]" in notes

    def test_a_class_is_decorated(self):
        with pytest.raises(jr.SignatureError, match=r"got <class '.*Point'>.* the methods"):

            @jr.rec_fn
            class Point:
                pass

    def test_operands(self):
        @jr.rec_fn
        def f(x):
            return jr.cond(x < 0, lambda y: y, lambda y: f(y - 1), operand=x)

        assert float(f(3.0)) == -1.0
        assert float(jr.cond(True, lambda y: y, lambda y: -y, operand=2.0)) == 2.0

    def test_operands_in_both_ways(self):
        @jr.rec_fn
        def f(x):
            return jr.cond(x < 0, lambda y, z: y, lambda y, z: f(y - z), x, operand=1)

        with pytest.raises(jr.SignatureError, match=r"operands and operand=, expected one of them"):
            f(3.0)

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

    def test_large_structures_are_told_in_short(self):
        @jr.rec_fn
        def f(p, n):
            return jr.cond(n < 1, lambda: p, lambda: jax.tree.map(jnp.sum, f(p, n - 1)))

        weights = {f"layer{k:03}": {"kernel": jnp.ones(3)} for k in range(200)}
        with pytest.raises(jr.SignatureError, match=r"\.\.\. and 192 more\n") as raised:
            f(weights, 2)
        assert "leaf ['layer000']['kernel'] is float32[3], expected float32[]" in str(raised.value)
        assert len(str(raised.value)) < 1500

    def test_where_structures_differ(self):
        @jr.rec_fn
        def f(p, n):
            return jr.cond(n < 1, lambda: p["a"][1], lambda: f({"a": (n, (n, n)), "b": n}, n - 1))

        message = r"definition:\n  p\['a'\]\[1\]: the structure is \(\*, \*\), expected that of"
        with pytest.raises(jr.SignatureError, match=message):
            f({"a": (1, 2), "b": 3}, 2)

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

    @pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
    def test_argument_is_a_reference(self, how):
        @jr.rec_fn
        def f(r, n):
            return jr.cond(n == 0, lambda: r[...], lambda: f(r, n - 1) * 2)

        message = r"argument r of f is .*Ref.*, which is not an array.*pass what it holds"
        with pytest.raises(jr.SignatureError, match=message):
            how(f)(jax.new_ref(jnp.arange(3.0)), 2)

    def test_result_is_not_an_array(self):
        with pytest.raises(
            jr.SignatureError, match=r"returns 'text' of type str; results are pytrees"
        ):
            jr.rec_fn(lambda x: "text")(1.0)

    def test_a_function_without_parameters_that_are_known(self):
        with pytest.raises(jr.SignatureError, match=r"the parameters of max, .* calls it instead"):
            jr.rec_fn(max)

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


class TestUnsupported:
    def test_transposition(self):
        transpose = jax.linear_transpose(lambda x: total(x, TREE, 0), ONE)
        with pytest.raises(jr.UnsupportedError, match=r"transpose of total: .* jax\.vjp\(total"):
            transpose(ONE)

    def test_gradient_of_a_call(self):
        with pytest.raises(
            jr.UnsupportedError, match=r"derivative .* call of count .* outside: jax\.grad\(count"
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

    @pytest.mark.parametrize("effect", ["io", "ref"])
    def test_side_effects(self, effect):
        ref = jax.new_ref(jnp.zeros(3))

        def step(f, x, n):
            if effect == "io":
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

    def test_an_executor_inside_a_body(self):
        def step(f, x, n):
            with jr.executor("host"):
                return f(x, n - 1)

        with pytest.raises(
            jr.UnsupportedError, match=r'executor\("host"\) inside the body of count: .* outermost'
        ):
            counting(step)(ONE, 2)
        with jr.executor("reference"):  # what was refused has changed nothing
            assert counting(lambda f, x, n: f(x, n - 1))(ONE, 2) == ONE


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


def test_what_is_wrong_in_one_body_is_said_of_that_one_alone():
    out = jax.ShapeDtypeStruct((), jnp.float32)

    @jr.rec_fn(out=out)
    def inner(n):
        return jr.cond(n == 0, lambda: 0.0, lambda: inner(n - 1)["total"])

    @jr.rec_fn(out=out)
    def outer(n):
        return jr.cond(n == 0, lambda: 0.0, lambda: inner(n) + outer(n - 1))

    with pytest.raises(TypeError, match="string indexing") as caught:
        outer(3)
    assert [x for x in caught.value.__notes__ if "This is from the body of inner" in x]
    assert not [x for x in caught.value.__notes__ if "This is from the body of outer" in x]


@pytest.mark.parametrize(
    ("tree", "i", "types"),
    [
        (TREE, 0.0, r"i: float32\[\]"),
        ({"left": TREE["left"]}, 0, r"tree\['left'\]: int32\[\d\], i: int32\[\]"),
    ],
)
def test_an_error_of_a_body_says_whose_it_is(tree, i, types):
    whose = f"(?s)This is from the body of total, traced for .*{types}"
    with pytest.raises((TypeError, KeyError), match=whose):
        total(ONE, tree, i)
