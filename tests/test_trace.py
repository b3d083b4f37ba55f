"""Tracing: what is traced, with which types, and how often."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import marshal
import pickle
import re
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxrec as jr
from jaxrec.trace._signature import Signature, accepts, common, differences, show, traced_aval


@jr.rec_fn
def halved(x):
    return jr.cond(x < 1, lambda: x, lambda: halved(x / 2))


@jr.rec_fn
def bounded(x):
    return jr.cond(x < 1, lambda: x, lambda: bounded(x / 2))


bounded = bounded.with_options(max_calls=8)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    @jr.rec_fn
    def power(self, n):
        return jr.cond(n == 0, lambda: 1, lambda: self.scale * self.power(n - 1))

    power = power.with_options(workers=1)

    @functools.partial(jr.rec_fn, static_argnames="times")
    def scaled_often(self, x, n, times=1):
        step = self.scale * times
        again = lambda: step * self.scaled_often(x, n - 1, times)  # noqa: E731
        return jr.cond(n == 0, lambda: x, again)


def signature(*values):
    leaves, tree = jax.tree.flatten(values)
    return Signature(tree, tuple(map(traced_aval, leaves)))


class TestSignatures:
    def test_show(self):
        assert show(traced_aval(jnp.ones((2, 3), jnp.int16))) == "int16[2,3]"

    def test_differences_lists_all(self):
        lines = differences(signature(jnp.ones(2), 1), signature(jnp.ones(3), 1.0), ["a", "b"])
        assert lines == [
            "a is float32[3], expected float32[2]",
            "b is float32[], expected int32[]",
        ]

    def test_numbers_give_way_to_arrays(self):
        half = jnp.ones((), jnp.float16)
        assert common(signature(1), signature(half)) == signature(half)
        assert common(signature(half), signature(2.0)) == signature(half)
        assert common(signature(1), signature(1.5)) == signature(1.5)

    def test_arrays_do_not_give_way(self):
        assert common(signature(jnp.int32(1)), signature(jnp.float32(1))) is None
        assert common(signature(jnp.int32(1)), signature(1.5)) is None
        assert common(signature(1), signature(jnp.ones(1))) is None
        assert common(signature(1), signature(1, 2)) is None

    def test_accepts(self):
        assert accepts(signature(jnp.float32(1)), signature(1))
        assert not accepts(signature(jnp.int32(1)), signature(1.0))


def count_runs():
    """A recursion, and how often its body has run."""
    runs = []

    @jr.rec_fn
    def power(x, n):
        runs.append(x)
        return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

    return power, runs


class ByCode(pickle.Pickler):
    """Pickles functions that functions made by their code and what they close over."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, types.FunctionType) or "<locals>" not in obj.__qualname__:
            return NotImplemented
        code = marshal.dumps(obj.__code__), obj.__name__, obj.__qualname__
        cells = [cell.cell_contents for cell in obj.__closure__ or ()]
        return _function, code, cells, None, None, _close_over


def _function(code: bytes, name: str, qualname: str) -> Any:
    inner = marshal.loads(code)
    cells = tuple(types.CellType() for _ in inner.co_freevars)
    made = types.FunctionType(inner, globals(), name, None, cells)
    made.__qualname__ = qualname
    return made


def _close_over(function: Any, values: Any) -> None:
    for cell, value in zip(function.__closure__ or (), values, strict=True):
        cell.cell_contents = value


class TestTracing:
    def test_a_copy_of_what_holds_a_function_holds_the_same(self):
        power, runs = count_runs()
        power(2.0, 3)
        before = len(runs)
        copied = copy.deepcopy({"power": power})["power"]
        assert copied(2.0, 3) == 8.0
        assert len(runs) == before

    def test_settings_of_jax_are_those_of_the_call(self):
        @jr.rec_fn(max_calls=8)
        def drawn(key, n):
            return jr.cond(n == 0, lambda: jax.random.normal(key, (3,)), lambda: drawn(key, n - 1))

        key = jax.random.PRNGKey(0)
        for partitionable in (True, False, True):
            with jax.threefry_partitionable(partitionable):
                np.testing.assert_array_equal(drawn(key, 2), jax.random.normal(key, (3,)))
                np.testing.assert_array_equal(jax.jit(drawn)(key, 2), drawn(key, 2))

        @jr.rec_fn
        def squared(x, n):
            return jr.cond(n == 0, lambda: x @ x, lambda: squared(x, n - 1))

        lowered = {}
        for precision in (None, "highest"):
            with jax.default_matmul_precision(precision):
                f = jax.jit(squared.with_options(max_calls=8))
                lowered[precision] = f.lower(jnp.eye(2), 1).as_text()
        assert "HIGHEST" in lowered["highest"]
        assert "HIGHEST" not in lowered[None]

    def test_executors_share_a_trace(self):
        power, runs = count_runs()
        x = jnp.float32(2.0)
        power(x, 3)
        before = len(runs)
        for name, workers in (("host", 1), ("host", 2), ("reference", None)):
            with jr.executor(name, workers=workers):
                assert power(x, 3) == 8.0
        jax.vmap(power, (0, None), axis_name="lanes")(jnp.ones(2), 3)
        assert len(runs) == before

    def test_a_function_is_pickled_by_its_name(self):
        assert pickle.loads(pickle.dumps(halved)) is copy.copy(halved) is halved
        method = pickle.loads(pickle.dumps(Scaled(3).power))
        assert method(2) == 9
        assert pickle.loads(pickle.dumps(Scaled.power))(Scaled(3), 2) == 9
        changed = pickle.loads(pickle.dumps(halved.with_options(max_calls=4)))
        assert changed is not halved
        with pytest.raises(jr.CapacityError, match="max_calls is 4"):
            changed(2.0**9)
        assert pickle.loads(pickle.dumps(bounded)) is bounded
        other = Scaled(3).power.with_options(max_calls=9)
        for made in (pickle.loads(pickle.dumps(other)), copy.copy(other)):
            assert made(2) == 9

    def test_a_function_that_a_function_made_is_pickled_by_what_it_is_made_of(self):
        def made(factor):
            @jr.rec_fn(max_calls=9)
            def power(x, n):
                return jr.cond(n == 0, lambda: x, lambda: factor * power(x, n - 1))

            return power

        file = io.BytesIO()
        ByCode(file).dump({"first": made(2.0), "other": made(3.0).with_options(max_calls=2)})
        again = pickle.loads(file.getvalue())
        assert again["first"](1.0, 3) == 8.0
        with pytest.raises(jr.CapacityError, match="max_calls is 2"):
            again["other"](1.0, 3)
        with pytest.raises((AttributeError, pickle.PicklingError), match=r"<locals>\.power"):
            pickle.dumps(made(2.0))

    def test_a_bound_method_is_one_to_jax(self):
        scaled, other = Scaled(3), Scaled(3)
        assert scaled.power == scaled.power != other.power
        assert len({scaled.power, scaled.power, other.power, Scaled.power}) == 3
        assert scaled.power.with_options(max_calls=9) != scaled.power
        assert list(inspect.signature(scaled.scaled_often).parameters) == ["x", "n", "times"]
        options: list[Any] = [{"static_argnames": "times"}, {"static_argnums": 2}]
        for how in options:
            run = jax.jit(scaled.scaled_often.with_options(max_calls=9), **how)
            assert run(jnp.ones(80), 2, 2)[0] == 36

    def test_names_are_on_one_line(self):
        def base(w, x, n):
            return jr.cond(n < 1, lambda: x, lambda: w.sum() * once(x, n - 1))

        once = jr.rec_fn(functools.partial(base, np.arange(20.0).reshape(2, 10)))
        assert repr(once) == "<rec_fn base>"
        assert float(once(1.0, 1)) == 190
        base.__name__ = "a\nb\x01"
        assert repr(jr.rec_fn(base)) == "<rec_fn a?b?>"

    def test_equal_static_arguments_of_other_types_are_others(self):
        @jr.rec_fn(static_argnames="scale")
        def scaled(x, n, scale):
            return jr.cond(n <= 0, lambda: x * scale, lambda: scaled(x, n - 1, scale=scale))

        results = [scaled(jnp.int32(3), 2, scale=scale) for scale in (1, 1.0, True)]
        assert [x.dtype for x in results] == [jnp.int32, jnp.float32, jnp.int32]

    def test_body_runs_once_a_signature_however_deep(self):
        power, runs = count_runs()
        power(2.0, 100)
        first = len(runs)
        assert first <= 3  # to find the types, and to trace with them
        power(3.0, 5000)
        assert len(runs) == first
        power(jnp.ones(2), 3)
        assert len(runs) > first

    def test_same_signature_under_transformations(self):
        power, runs = count_runs()
        power(jnp.float32(2), 3)
        first = len(runs)
        jax.grad(power)(jnp.float32(2), 3)
        jax.vmap(power, (0, None))(jnp.ones(4), 3)
        jax.jit(power.with_options(max_calls=9))(jnp.float32(2), 3)
        assert len(runs) == first

    def test_types_are_inferred_through_mutual_recursion(self):
        @jr.rec_fn
        def first(x, n):
            return second(x, n)

        @jr.rec_fn
        def second(x, n):
            return jr.cond(n == 0, lambda: (x, n), lambda: first(x * 2, n - 1))

        value, rest = first(jnp.float32(1), 3)
        assert float(value) == 8 and int(rest) == 0

    def test_types_are_inferred_from_any_branch(self):
        @jr.rec_fn
        def f(x, n):
            return jr.switch(n, [lambda: f(x, n + 2), lambda: f(x, n + 1), lambda: x + n])

        assert float(f(0.5, 0)) == 2.5

    def test_types_are_inferred_through_nested_choices(self):
        @jr.rec_fn
        def f(x, n):
            def inner():
                return jr.cond(n > 3, lambda: f(x, n - 1), lambda: x)

            return jr.cond(n > 1, lambda: f(x, n - 2), inner) * 2

        assert float(f(1.0, 5)) == 8.0

    def test_declared_type_may_depend_on_the_arguments(self):
        @jr.rec_fn(out=lambda x, n: jax.ShapeDtypeStruct(x.shape, x.dtype))
        def f(x, n):
            return jax.lax.cond(n == 0, lambda: x, lambda: f(x + 1, n - 1))

        assert f(jnp.zeros(2), 3).tolist() == [3, 3]
        assert f(jnp.zeros((), jnp.int32), 4).dtype == jnp.int32

    def test_number_argument_takes_the_type_of_the_recursion(self):
        @jr.rec_fn
        def f(x, n):
            return jr.cond(n == 0, lambda: x, lambda: f(x * 0.5, n - 1))

        assert float(f(2, 1)) == 1.0
        assert f(2, 0).dtype == jnp.float32
        with jax.enable_x64(True):
            indices = jnp.array([1, 2, -1], jnp.int32)

            @jr.rec_fn
            def walk(i):
                return jr.cond(indices[i] < 0, lambda: i, lambda: walk(indices[i]))

            assert walk(0).dtype == jnp.int32

    def test_none_and_empty_pytrees(self):
        @jr.rec_fn
        def f(x, n, extra):
            return jr.cond(n == 0, lambda: (x, None), lambda: f(x + 1, n - 1, extra))

        assert jax.tree.map(float, f(1.0, 2, {"nothing": None})) == (3.0, None)

    def test_outside_a_body_choices_are_those_of_jax(self):
        assert float(jr.cond(True, lambda x: x + 1, lambda x: x, 1.0)) == 2.0
        assert float(jr.switch(1, [lambda x: x, lambda x: x * 3], 2.0)) == 6.0
        assert jax.jit(lambda p: jr.cond(p, lambda: 1, lambda: 2))(False) == 2


class TestFunctions:
    def test_name_and_documentation_are_kept(self):
        @jr.rec_fn
        def named(x):
            """What it does."""
            return x

        assert named.__name__ == "named" and named.__doc__ == "What it does."
        assert repr(named) == "<rec_fn named>"

    def test_function_without_recursion(self):
        assert float(jax.grad(jr.rec_fn(lambda x: jnp.sin(x) * 2))(0.0)) == 2.0

    def test_each_static_value_is_its_own_program(self):
        @jr.rec_fn(static_argnames="step")
        def count(n, step):
            return jr.cond(n <= 0, lambda: 0, lambda: 1 + count(n - step, step))

        assert [int(count(12, k)) for k in (1, 2, 3)] == [12, 6, 4]
        assert count.cache_info().traces == 3
        count(9, step=3)
        assert count.cache_info().traces == 3

    def test_arguments_by_name_and_by_default(self):
        @jr.rec_fn
        def power(x, *, n=3):
            return jr.cond(n == 0, lambda: 1.0, lambda: x * power(x, n=n - 1))

        @jr.rec_fn
        def zeros(*, n=2):
            return jr.cond(n == 0, lambda: 0, lambda: zeros(n=n - 1))

        assert [float(power(2.0)), float(power(n=2, x=3.0)), int(zeros())] == [8.0, 9.0, 0]
        with pytest.raises(jr.SignatureError, match="missing a required argument: 'x'"):
            power(n=1)

    def test_each_width_of_numbers_is_its_own_program(self):
        @jr.rec_fn
        def halves(n):
            return jr.cond(n == 0, lambda: jnp.asarray(1.0), lambda: halves(n - 1) / 2)

        n = np.int32(3)
        assert halves(n).dtype == np.float32
        with jax.enable_x64(True):
            assert halves(n).dtype == np.float64
        assert halves(n).dtype == np.float32
        assert halves.cache_info().traces == 2

    def test_a_function_of_a_class_is_one_function(self):
        class Powers:
            @jr.rec_fn
            def of_two(n: Any):
                return jr.cond(n == 0, lambda: 1, lambda: 2 * Powers.of_two(n - 1))

        class More(Powers):
            pass

        @functools.partial(jr.rec_fn, static_argnames="each")
        def total(each, n):
            return jr.cond(n == 0, lambda: 0, lambda: each(n) + total(each, n - 1))

        assert Powers.of_two == Powers.of_two != More.of_two
        assert Powers.of_two.with_options(max_calls=9) != Powers.of_two
        assert [int(total(Powers.of_two, 3)) for _ in range(3)] == [14] * 3
        assert total.cache_info().traces == 1

    def test_static_value_may_change_within_a_recursion(self):
        @jr.rec_fn(static_argnums=1, max_calls=9)
        def f(x, depth):
            return x if depth == 0 else f(x * 2, depth - 1) + 1

        assert float(f(1.0, 3)) == 11.0

    def test_static_arguments_of_a_copy_are_static_in_the_whole_recursion(self):
        @jr.rec_fn
        def f(leaf, n):
            return jr.cond(n == 0, lambda: leaf(n), lambda: 2.0 * f(leaf, n - 1))

        for options in ({"static_argnums": 0}, {"static_argnames": "leaf"}):
            g = f.with_options(**options)
            assert float(g(lambda n: n + 1.5, 3)) == 12.0
        with pytest.raises(jr.SignatureError, match="argument leaf of f"):
            f(lambda n: n + 1.5, 3)

    def test_each_object_has_its_own_method(self):
        class Scale:
            def __init__(self, factor):
                self.factor = factor

            @jr.rec_fn
            def run(self, x, n):
                return jr.cond(n == 0, lambda: x, lambda: self.factor * self.run(x, n - 1))

        class Shifted(Scale):
            @jr.rec_fn
            def run(self, x, n):
                return jr.cond(n == 0, lambda: x, lambda: 1 + Shifted.run(self, x, n - 1))

            def scaled(self, x, n):
                return super().run(x, n) - Scale.run(self, x, n)

        twice, thrice = Scale(2.0), Scale(3.0)
        assert [float(s.run(1.0, 3)) for s in (twice, thrice)] == [8.0, 27.0]
        assert float(Scale.run(twice, 1.0, 3)) == 8.0
        assert float(Shifted.run(Shifted(2.0), 1.0, 3)) == 4.0
        assert float(Shifted(2.0).scaled(1.0, 3)) == 0.0

    def test_options_do_not_change_the_original(self):
        power, _ = count_runs()
        bounded = power.with_options(max_calls=4)
        assert float(bounded(2.0, 3)) == 8.0
        with pytest.raises(jr.CapacityError, match="made 6 calls in one invocation"):
            bounded(2.0, 5)
        assert float(power(2.0, 5)) == 32.0


class TestEvaluatedWhileABodyIsTraced:
    """A call under `jax.ensure_compile_time_eval` is no part of the body around."""

    @pytest.mark.parametrize(
        "made",
        [
            lambda f: f(3),
            lambda f: f.with_options(memo=True)(3),
            lambda f: jax.vmap(f)(jnp.array([1, 3]))[1],
            lambda f: jax.jit(lambda: f(3))(),
            lambda f: jax.grad(lambda x: x * f(3))(1.0),
        ],
    )
    def test_value(self, made):
        @jr.rec_fn
        def doubled(n):
            return jr.cond(n <= 0, lambda: 1, lambda: 2 * doubled(n - 1))

        found = []

        def table():
            if not found:
                with jax.ensure_compile_time_eval():
                    found.append(int(made(doubled)))
            return found[0]

        @jr.rec_fn
        def power(x, n):
            return jr.cond(n == 0, lambda: x, lambda: table() * power(x, n - 1))

        assert (power(1.0, 2), found) == (64.0, [8])

    def test_by_a_program_of_its_own(self):
        @jr.rec_fn
        def doubled(n):
            return jr.cond(n <= 0, lambda: 1, lambda: 2 * doubled(n - 1))

        @jr.rec_fn
        def power(x, n):
            with jax.ensure_compile_time_eval():
                by = jax.lax.map(doubled, jnp.arange(9))[3]
            return jr.cond(n == 0, lambda: x, lambda: by * power(x, n - 1))

        message = (
            "call of doubled inside a recursive body is to be evaluated while the body is traced"
        )
        with pytest.raises(jr.UnsupportedError, match=message):
            power(1.0, 2)


@pytest.mark.parametrize("derivative", [lambda fun: fun, jax.grad])
def test_scopes_and_lines_of_bodies_are_in_the_program(derivative):
    @jr.rec_fn(max_calls=50)
    def shrink(w, x):
        with jax.named_scope("layer"):
            after = jnp.tanh(w @ x)
        return jr.cond(jnp.sum(x * x) < 0.1, lambda: x, lambda: shrink(w, after))

    fun = derivative(lambda w: jnp.sum(shrink(w, jnp.ones(70))))
    text = jax.jit(fun).lower(0.5 * jnp.eye(70)).as_text(debug_info=True)
    assert re.search(r'"[^"]*shrink\.\d+[^"]*layer[^"]*/tanh"', text)
    line = inspect.getsourcelines(shrink.__wrapped__)[1] + 3
    assert f'test_trace.py":{line}:' in text
