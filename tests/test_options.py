"""Options and axes that users get wrong."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import MethodType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_errors import ONE, TREE, total
from waves import in_waves, sine

import jaxrec as jr
from jaxrec._executor import current_executor


def test_unknown_executor():
    message = "executor 'warp': expected one of 'graph', "
    with pytest.raises(jr.UnsupportedError, match=message), jr.executor("warp"):
        pass


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("memo", "yes", "True or False"),
        ("policy", 3, "a function as of jax.checkpoint_policies"),
        ("out", 3, "a pytree of jax.ShapeDtypeStruct"),
        ("out", float, "a pytree of jax.ShapeDtypeStruct"),
        ("workers", "2", "a number of threads"),
        ("workers", 2.9, "a number of threads"),
        ("max_calls", True, "a positive integer"),
        ("max_calls", "50", "a positive integer"),
        ("max_calls", [3], "a positive integer"),
        ("workers", -1, "a number of threads"),
        ("workers", 2**64, "a number of threads up to 1,024, or 0"),
        ("max_calls", 0, "a positive integer"),
        ("max_calls", 2**63, r"a positive integer up to 10\*\*18"),
    ],
)
def test_wrong_values(option, value, expected):
    message = f"{re.escape(f'{option}={value!r}')} of total: expected {expected}"
    with pytest.raises(jr.SignatureError, match=message):
        total.with_options(**{option: value})
    with pytest.raises(jr.SignatureError, match=f"of <lambda>: expected {expected}"):
        jr.rec_fn(lambda x: x, **{option: value})


@pytest.mark.parametrize("cell", [jnp.sin, jnp.negative])
def test_a_factory_of_policies(cell):
    @jr.rec_fn(policy=jax.checkpoint_policies.save_only_these_names)
    def f(x, n):
        return jr.cond(n < 1, lambda: x, lambda: cell(f(jnp.exp(in_waves(x)), n - 1)))

    with pytest.raises(TypeError, match="save_only_these_names") as caught:
        jax.grad(f)(1.0, 3)
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "policy=save_only_these_names is called with a primitive" in told


def test_a_declared_type_holds_for_these_options_alone():
    def build():
        @jr.rec_fn
        def doubled(n):
            return jr.cond(n == 0, lambda: 1, lambda: 2 * doubled(n - 1))

        return doubled, doubled.with_options(out=jax.ShapeDtypeStruct((), jnp.float32))

    whole, real = build()
    assert [whole(3).dtype, real(3).dtype, whole(3).dtype] == [jnp.int32, jnp.float32, jnp.int32]
    whole, real = build()
    assert [real(3).dtype, whole(3).dtype] == [jnp.float32, jnp.int32]
    with pytest.raises(jr.SignatureError, match=r"leaf 0 is int32\[\], expected float32\[3\]"):
        whole.with_options(out=jax.ShapeDtypeStruct((3,), jnp.float32))(3)


def test_numbers_of_numpy_are_numbers():
    assert int(total.with_options(max_calls=np.int64(7))(ONE, TREE, 0)) == int(total(ONE, TREE, 0))


def test_more_calls_than_can_be_numbered():
    message = "room for 2147483647 calls of total takes arrays of [0-9]+ rows, more than"
    with pytest.raises(jr.CapacityError, match=message):
        most = total.with_options(max_calls=2**31 - 1)
        jax.grad(lambda w: most(w, TREE, 0).sum())(jnp.ones(9))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.grad])
def test_more_calls_than_there_is_memory_for(transform):
    rows = jnp.ones((3, 1000))

    @jr.rec_fn(max_calls=10**9)
    def added(x, n):
        return jr.cond(n == 0, lambda: x * rows[0], lambda: rows[n] + added(x, n - 1))

    with pytest.raises(jr.CapacityError, match="calls of added takes an array of 4000 GB, more"):
        transform(lambda x: added(x, 2).sum())(1.0)


def test_an_executor_may_be_chosen_again():
    def name():
        return current_executor().name

    reference = jr.executor("reference")
    with reference, ThreadPoolExecutor() as pool:
        with reference:
            assert name() == "reference"
        assert name() == "reference"
        assert pool.submit(name).result() == "graph"
        assert pool.submit(reference(name)).result() == "reference"
        assert pool.submit(name).result() == "graph"
    assert name() == "graph"


def test_unknown_option():
    with pytest.raises(jr.SignatureError, match=r"option 'max_call': expected one of .*max_calls"):
        total.with_options(max_call=3)


def test_static_argument_is_not_hashable():
    @jr.rec_fn(static_argnums=1)
    def f(x, options):
        return x

    with pytest.raises(
        jr.SignatureError, match=r"static argument options of f is of type list, .* pass a tuple"
    ):
        f(1.0, [1])


def test_static_argument_does_not_exist():
    with pytest.raises(jr.SignatureError, match=r"static_argnums=4 of .*1 parameters"):
        jr.rec_fn(lambda x: x, static_argnums=4)
    with pytest.raises(jr.SignatureError, match=r"static_argnames='y' of .*parameters are x"):
        jr.rec_fn(lambda x: x, static_argnames="y")


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((None, 0), "in_axes has 2 entries for the 3 arguments of total"),
        ((None, None, 0), "in_axes maps axis 0 of i, which has 0 axes"),
        ((None, None, "a"), "in_axes has 'a' for i, expected an integer or None"),
        ((None, None, False), "in_axes has False for i, expected an integer or None"),
        (0.0, "in_axes is 0.0 of type float, expected an integer, or a tuple"),
        ((None, {"left": 0}, None), "does not fit its argument, of which it must be a prefix"),
    ],
)
def test_axes_do_not_fit(axes, message):
    with pytest.raises(jr.SignatureError, match=message):
        jr.collect(total, axes)(ONE, TREE, 0)


def test_axes_of_different_sizes():
    with pytest.raises(jr.SignatureError, match=r"maps axes of different sizes: \[2, 3\]"):
        jr.collect(total, (0, None, 0))(jnp.ones(3), TREE, jnp.array([0, 1]))


def test_collecting_from_another_kind_of_function():
    with pytest.raises(jr.SignatureError, match=r"collect takes a rec_fn, got .* in_axes"):
        jr.collect(lambda x: x)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (2**40, OverflowError, "argument n of down is 1099511627776, which does not fit int32"),
        (np.array("3"), jr.SignatureError, "argument n of down is a NumPy array of type <U1"),
        (np.array(3, object), jr.SignatureError, "a NumPy array of type object, which no array"),
    ],
)
def test_arguments_that_are_no_numbers_of_jax(given, error, message):
    @jr.rec_fn
    def down(n):
        return jr.cond(n == 0, lambda: n, lambda: down(n - 1))

    with pytest.raises(error, match=message):
        down(given)


@pytest.mark.parametrize(
    ("option", "value"), [("static_argnums", 1.5), ("static_argnums", "n"), ("static_argnames", 3)]
)
def test_static_arguments_are_listed(option, value):
    with pytest.raises(jr.SignatureError, match=f"{option}={value!r} of <lambda>: expected "):
        jr.rec_fn(lambda n: n, **{option: value})


def test_what_is_no_tree():
    words = jr.data.Vocabulary(["a"])
    with pytest.raises(TypeError, match=r"got a Tree, expected a sequence of them: pass \[tree\]"):
        jr.data.pack(jr.data.Tree(1, "a"), words)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"trees\[0\] is 'x', expected a jaxrec.data.Tree"):
        jr.data.pack(["x"], words)  # type: ignore[list-item]


def test_rows_are_numbered_by_integers():
    with pytest.raises(TypeError, match="got indices of float64, expected integers"):
        jr.optim.used_rows([0.5, 2.9], 4)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_a_loop_without_a_backward_derivative_has_a_forward_one(executor):
    @jr.rec_fn(max_calls=9)
    def f(x, n):
        def node():
            return jax.lax.fori_loop(0, n, lambda _, s: sine(s), f(x, n - 1))

        return jr.cond(n == 0, lambda: x, node)

    def plain(x):  # what f(x, 2) computes
        return jnp.sin(jnp.sin(jnp.sin(x)))

    x = jnp.array([0.3, 0.8])
    with jr.executor(executor):
        np.testing.assert_allclose(jax.jacfwd(f)(x, 2), jax.jacfwd(plain)(x), rtol=1e-5)
        twice = jax.jacfwd(jax.jacfwd(f))(x, 2)
        np.testing.assert_allclose(twice, jax.jacfwd(jax.jacfwd(plain))(x), rtol=1e-4, atol=1e-6)
        found = jax.linearize(lambda x: f(x, 2), x)[1](x)
        np.testing.assert_allclose(found, jax.jvp(plain, (x,), (x,))[1], rtol=1e-5)
        with pytest.raises(ValueError, match="Reverse-mode differentiation does not") as raised:
            jax.grad(lambda x: f(x, 2).sum())(x)
    if executor != "reference":
        assert any("derivative of the body of f" in note for note in raised.value.__notes__)
        compiled = jax.jit(jax.jacfwd(f))(x, 2)
        np.testing.assert_allclose(compiled, jax.jacfwd(plain)(x), rtol=1e-5)


@pytest.mark.parametrize("check_vma", [False, True])
@pytest.mark.parametrize(
    "meet", [jax.lax.psum, jax.lax.all_gather, partial(jax.lax.ppermute, perm=[(0, 0)])]
)
def test_devices_do_not_meet_in_a_body(meet: Any, check_vma: bool):
    @jr.rec_fn(max_calls=10)
    def shared(x, n):
        return jr.cond(n == 0, lambda: x, lambda: shared(x + jnp.sum(meet(x, "d")), n - 1))

    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    by_device = jax.sharding.PartitionSpec("d")
    run = jax.shard_map(
        lambda x: shared(x, 3),
        mesh=mesh,
        in_specs=by_device,
        out_specs=by_device,
        check_vma=check_vma,
    )
    message = r"shared waits in its body for the other devices of a shard_map around it \(\w+\)"
    with pytest.raises(jr.UnsupportedError, match=message):
        run(jnp.ones(1))


def test_a_type_without_a_value():
    message = r"argument i of total is ShapeDtypeStruct.* has a type but no value"
    given = (ONE, TREE, jax.ShapeDtypeStruct((), jnp.int32))
    for executor in ("graph", "host", "reference"):
        with jr.executor(executor), pytest.raises(jr.SignatureError, match=message):
            total(*given)
    with pytest.raises(jr.SignatureError, match=message):
        jr.collect(total)(*given)


ANY: Any = None
"""What is no function."""


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (lambda n, x, g: jr.cond(n == 0, x, g), r"true_fun of a cond in f is .* expected a func"),
        (lambda n, x, g: jr.cond(n == 0, g, ANY), r"false_fun of a cond in f is None"),
        (lambda n, x, g: jr.switch(n, [g, ANY]), r"branch 1 of a switch in f is None of type"),
        (lambda n, x, g: jr.switch(n, g), r"the branches of a switch in f are <function"),
        (
            lambda n, x, g: jr.cond(n == 0, g, g, x),
            r"_fun of a cond in f .* here 1 of them: too many",
        ),
        (lambda n, x, g: jr.cond(n == 0, g, g, "s"), r"an operand of a cond in f is 's' of type"),
        (lambda n, x, g: jr.cond(None, lambda: x, g), r"the predicate of a cond in f is None"),
        (lambda n, x, g: jr.cond(x, lambda: x, g), r"a cond in f is float32\[2\]; ex.*jax\.vmap"),
        (lambda n, x, g: jr.cond(n * 1j, lambda: x, g), r"predicate of a cond in f is complex64"),
        (lambda n, x, g: jr.switch("a", [lambda: x, g]), r"the index of a switch in f is 'a' of"),
        (lambda n, x, g: jr.switch(x, [lambda: x, g]), r"index of a switch in f is float32\[2\]"),
    ],
)
def test_choices_that_are_written_wrongly(choice, message, calls):
    @jr.rec_fn(out=jax.ShapeDtypeStruct((2,), jnp.float32))
    def f(x, n):
        return choice(n, x, lambda: f(x, n - 1) if calls else 2 * x)

    with pytest.raises(jr.SignatureError, match=message):
        f(jnp.ones(2), 1)


@pytest.mark.parametrize(
    ("out", "use", "message", "declared"),
    [
        (
            jax.ShapeDtypeStruct((2,), jnp.float32),
            lambda y: y + jnp.ones(3),
            "incompatible",
            r"float32\[2\]",
        ),
        (
            {"a": jax.ShapeDtypeStruct((), jnp.int32)},
            lambda y: y["b"],
            "b",
            r"\['a'\]: int32\[\]",
        ),
    ],
)
def test_a_body_that_does_not_take_what_out_declares(out, use, message, declared):
    @jr.rec_fn(out=out)
    def f(x, n):
        return jr.cond(n == 0, lambda: x, lambda: use(f(x, n - 1)))

    with pytest.raises((TypeError, KeyError), match=message) as caught:
        f(jnp.ones(3), 2)
    note = next(x for x in caught.value.__notes__ if "out=" in x)
    assert re.search(f"a call of f gives what out= declares: {declared}. If that", note)


def test_branches_that_are_generated():
    @jr.rec_fn
    def f(x, n):
        branches: Any = (branch for branch in (lambda: x, lambda: f(x, n - 1)))
        return jr.switch(n, branches)

    assert float(f(2.0, 1)) == 2


def test_what_is_no_function():
    method: Any = classmethod(lambda cls, n: n)
    with pytest.raises(jr.SignatureError, match=r"got <classmethod.* it stands below them"):
        jr.rec_fn(method)


class Scaled:
    scale = 2.0

    @classmethod
    @jr.rec_fn
    def power(cls, x, n):
        return jr.cond(n == 0, lambda: cls.scale, lambda: x * cls.power(x, n - 1))


class ScaledMore(Scaled):
    scale = 3.0


def test_a_class_method():
    """Python before 3.13 binds the function itself to the class, and a newer one a method of it."""
    for holder, scale in ((Scaled, 2), (ScaledMore, 3), (Scaled, 2)):
        plain: Any = Scaled.__dict__["power"]
        for method in (holder.power, holder().power, MethodType(plain.__func__, holder)):
            assert float(method(3.0, 2)) == 9 * scale
            assert float(jax.grad(method)(3.0, 2)) == 6 * scale
            assert float(jax.jit(method)(3.0, 1)) == 3 * scale
            assert jax.vmap(method, (0, None))(jnp.arange(2.0), 1).tolist() == [0, scale]


def test_a_class_that_it_is_no_method_of():
    wrong: Any = Scaled
    with pytest.raises(jr.SignatureError, match=r"argument w of total is <class .*Scaled'> of"):
        total(wrong, TREE, 0)


def test_a_function_that_is_made_anew_in_a_body():
    def make():
        @jr.rec_fn
        def inner(n):
            return jr.cond(n == 0, lambda: n, lambda: make()(n - 1))

        return inner

    with pytest.raises(jr.RecursionLimitError, match=r"inner is made anew .* define inner once"):
        make()(2)


def test_static_arguments_that_are_not_named_stay_so():
    def chosen(n, mode, scale):
        return jr.cond(n <= 0, lambda: 1.0 if mode == "one" else 2.0, lambda: n * len(scale))

    modes = (name for name in ["mode"])  # which can be read once
    named = jr.rec_fn(chosen, static_argnames=modes).with_options(static_argnums=2)
    assert named(0, "one", "ab") == 1
    assert named.with_options(max_calls=9)(3, "one", "ab") == 6


def test_equal_sets_are_one_static_argument():
    @jr.rec_fn(static_argnames="kinds")
    def counted(n, kinds):
        return jr.cond(n <= 0, lambda: len(kinds), lambda: counted(n - 1, kinds))

    assert counted(2, frozenset([0, 8])) == counted(2, frozenset([8, 0])) == 2
    assert counted.cache_info().traces == 1
    assert counted(2, frozenset([0, 8.0])) == 2
    assert counted.cache_info().traces == 2


def test_each_policy_is_asked():
    """Functions that differ in their policy alone share a trace, and no derivative."""
    asked = set()

    def policy(name, prim, *avals, **params):
        asked.add(name)
        return name == "keeps"

    @jr.rec_fn(max_calls=8)
    def chain(w, x, n):
        return jr.cond(n == 0, lambda: x, lambda: jnp.tanh(chain(w, x, n - 1) @ w))

    for name in ("keeps", "computes again"):
        f = chain.with_options(policy=partial(policy, name))
        jax.grad(lambda w, f=f: jnp.sum(f(w, jnp.ones(5), 3)))(jnp.eye(5) / 2)
        assert name in asked
