"""What a body closes over: a call means the value of now, not that of when it was traced."""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib
import sys
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxrec as jr

executors = pytest.mark.parametrize("executor", ["graph", "host", "reference"])

weight = jnp.ones(2)


def scaled(x):
    return weight * x


@jr.rec_fn
def power(x, n):
    return jr.cond(n == 0, lambda: x, lambda: scaled(power(x, n - 1)))


@pytest.fixture(autouse=True)
def as_it_was():
    global weight
    weight = jnp.ones(2)


@executors
def test_a_variable_of_the_module(executor):
    global weight
    with jr.executor(executor):
        np.testing.assert_array_equal(power(jnp.ones(2), 3), 1)
        weight = jnp.full(2, 2.0)
        np.testing.assert_array_equal(power(jnp.ones(2), 3), 8)


@pytest.mark.parametrize("transform", [jax.grad, lambda f: jax.jit(jax.grad(f))])
def test_a_variable_that_is_differentiated_later(transform):
    def loss(w):
        global weight
        weight = w
        return power(jnp.ones(2), 3).sum()

    assert float(loss(jnp.full(2, 2.0))) == 16
    np.testing.assert_array_equal(transform(loss)(jnp.full(2, 2.0)), 12)
    np.testing.assert_array_equal(jax.vmap(loss)(jnp.ones((3, 2))), 2)


def test_a_variable_of_an_enclosing_function():
    factor = 2

    @jr.rec_fn
    def double(n):
        return jr.cond(n == 0, lambda: 1, lambda: factor * double(n - 1))

    assert [double(3), double(3)] == [8, 8]  # the second as a repeat of the first
    factor = 3
    assert double(3) == 27


def test_what_is_in_a_pytree():
    params = {"w": jnp.ones(2), "b": None}

    @jr.rec_fn
    def affine(x, n):
        def more():
            y = params["w"] * affine(x, n - 1)
            return y if params["b"] is None else y + params["b"]

        return jr.cond(n == 0, lambda: x, more)

    np.testing.assert_array_equal(affine(jnp.ones(2), 2), 1)
    params["w"] = jnp.full(2, 2.0)
    np.testing.assert_array_equal(affine(jnp.ones(2), 2), 4)
    params["b"] = jnp.ones(2)
    np.testing.assert_array_equal(affine(jnp.ones(2), 2), 7)


def test_a_module_that_is_updated():
    linear = nnx.Linear(2, 2, use_bias=False, rngs=nnx.Rngs(0))

    @jr.rec_fn
    def layers(x, n):
        return jr.cond(n == 0, lambda: x, lambda: linear(layers(x, n - 1)))

    before = layers(jnp.ones(2), 2)
    linear.kernel[...] = 2 * linear.kernel[...]
    np.testing.assert_allclose(layers(jnp.ones(2), 2), 4 * before, rtol=1e-5)


class Plain:
    def __init__(self, w):
        self.w, self.calls = w, 0

    @jr.rec_fn
    def total(self, n):
        return jr.cond(n == 0, lambda: self.w, lambda: self.w + self.total(n - 1))


@executors
def test_an_object_that_a_method_is_bound_to(executor):
    plain = Plain(jnp.ones(2))
    with jr.executor(executor):
        np.testing.assert_array_equal(plain.total(3), 4)
        plain.w = jnp.full(2, 10.0)
        np.testing.assert_array_equal(plain.total(3), 40)


def test_a_helper_that_is_redefined(monkeypatch):
    np.testing.assert_array_equal(power(jnp.ones(2), 3), 1)
    monkeypatch.setitem(globals(), "scaled", lambda x: 5 * x)
    np.testing.assert_array_equal(power(jnp.ones(2), 3), 125)


def test_a_function_that_is_passed():
    factor = jnp.ones(2)

    @functools.partial(jr.rec_fn, static_argnums=0)
    def applied(f, x, n):
        return jr.cond(n == 0, lambda: x, lambda: f(applied(f, x, n - 1)))

    def times(x):
        return factor * x

    np.testing.assert_array_equal(applied(times, jnp.ones(2), 2), 1)
    factor = jnp.full(2, 3.0)
    np.testing.assert_array_equal(applied(times, jnp.ones(2), 2), 9)


def test_what_bodies_do_not_name_may_change():
    plain = Plain(jnp.ones(2))
    plain.total.clear_cache()
    for _ in range(3):
        plain.calls += 1
        plain.total(3)
    assert plain.total.cache_info().traces == 1


def test_what_was_traced_before_is_forgotten():
    global weight
    power.clear_cache()
    for k in range(3):
        weight = jnp.full(2, float(k))
        np.testing.assert_array_equal(power(jnp.ones(2), 1), k)
        assert power.cache_info().traces == k + 1
    assert len({id(traced) for traced in power._cache.values()}) == 1


@pytest.mark.parametrize("transform", [lambda f: f, jax.grad])
def test_an_object_is_freed_with_what_was_traced_of_it(transform):
    Plain.total.clear_cache()

    def total(w):
        plain = Plain(w)
        objects.append(weakref.ref(plain))
        return plain.total(3).sum()

    objects = []
    for _ in range(3):
        transform(total)(jnp.ones(2))
    gc.collect()
    assert [ref() for ref in objects] == [None, None, None]
    assert not Plain.total._cache
    assert Plain.total.cache_info().traces == 3


class Slotted:
    __slots__ = ("w",)

    def __init__(self, w):
        self.w = w

    @jr.rec_fn
    def total(self, n):
        return jr.cond(n == 0, lambda: self.w, lambda: self.w + self.total(n - 1))


def test_an_object_that_cannot_be_referred_to_weakly():
    slotted = Slotted(jnp.ones(2))
    np.testing.assert_array_equal(slotted.total(3), 4)
    slotted.w = jnp.full(2, 10.0)
    np.testing.assert_array_equal(slotted.total(3), 40)


class Stage:
    def __init__(self, k):
        self.k = k

    @jr.rec_fn
    def go(self, x, n):
        if self.k == 0:
            return jr.cond(n == 0, lambda: x, lambda: self.go(x, n - 1))
        return 2 * Stage(self.k - 1).go(x, n)


def test_objects_that_a_body_makes():
    stage = Stage(3)
    for _ in range(2):
        np.testing.assert_array_equal(stage.go(jnp.ones(2), 2), 8)
    assert stage.go.cache_info().traces == 1


class Fields(dict):
    __getattr__ = dict.__getitem__


def test_objects_that_answer_anything():
    fields = Fields(w=jnp.ones(2))

    class Raises:
        def __getattr__(self, name):
            raise RuntimeError(name)

        def __eq__(self, other):
            raise RuntimeError("compared")

    odd: Any = Raises()
    loop: dict[str, Any] = {"w": jnp.ones(2)}
    loop["self"] = loop

    @jr.rec_fn
    def f(x, n):
        def more():
            assert isinstance(odd, Raises)
            return fields.w * loop["w"] * f(x, n - 1)

        return jr.cond(n == 0, lambda: x, more)

    for _ in range(3):
        np.testing.assert_array_equal(f(jnp.ones(2), 2), 1)
    assert f.cache_info().traces == 1


def test_the_structure_of_what_is_closed_over():
    drop, params = nnx.Dropout(0.5, rngs=nnx.Rngs(0)), {"a": jnp.full(2, 2.0), "b": None}
    drop.eval()

    @jr.rec_fn
    def f(x, n):
        def more():
            y = x if params["a"] is None else params["a"] * x
            return y + 0 * f(x, n - 1) + (0 if drop.deterministic else 100)

        return jr.cond(n == 0, lambda: x, more)

    np.testing.assert_array_equal(f(jnp.ones(2), 1), 2)
    params["a"], params["b"] = None, params["a"]
    np.testing.assert_array_equal(f(jnp.ones(2), 1), 1)
    drop.train()
    np.testing.assert_array_equal(f(jnp.ones(2), 1), 101)


class Composed(Plain):
    def scaled(self, x):
        return self.w * x

    @jr.rec_fn
    def power(self, x, n):
        return jr.cond(n == 0, lambda: x, lambda: self.scaled(self.power(x, n - 1)))


def test_what_a_method_reads():
    composed = Composed(jnp.ones(2))
    np.testing.assert_array_equal(composed.power(jnp.ones(2), 2), 1)
    composed.w = jnp.full(2, 3.0)
    np.testing.assert_array_equal(composed.power(jnp.ones(2), 2), 9)


def test_data_of_the_class_of_an_object(monkeypatch):
    class Scaled:
        factor = 2.0

        @jr.rec_fn
        def power(self, x, n):
            return jr.cond(n == 0, lambda: x, lambda: self.power(x, n - 1) * self.factor)

    class More(Scaled):
        pass

    scaled, more = Scaled(), More()
    assert [float(x.power(1.0, 3)) for x in (scaled, more)] == [8.0, 8.0]
    monkeypatch.setattr(Scaled, "factor", 3.0)
    monkeypatch.setattr(More, "factor", 1.0, raising=False)
    assert [float(x.power(1.0, 3)) for x in (scaled, more)] == [27.0, 1.0]
    more.factor = 2.0
    assert float(more.power(1.0, 3)) == 8.0


def test_a_value_that_is_replaced_for_a_while():
    """The trace of before serves again afterwards."""
    params = {"w": jnp.full(2, 2.0)}

    @jr.rec_fn
    def f(x, n):
        return jr.cond(n == 0, lambda: x, lambda: params["w"] * f(x, n - 1))

    def loss(w):
        kept, params["w"] = params["w"], w
        try:
            return f(jnp.ones(2), 2).sum()
        finally:
            params["w"] = kept

    np.testing.assert_array_equal(f(jnp.ones(2), 2), 4)
    before = dict(f._cache)
    np.testing.assert_array_equal(jax.grad(loss)(jnp.full(2, 3.0)), 6)
    np.testing.assert_array_equal(f(jnp.ones(2), 2), 4)
    assert dict(f._cache) == before


@pytest.mark.parametrize("kind", [float, np.float32, lambda x: complex(x, -0.0)])
def test_the_sign_of_zero(kind):
    scale = kind(0.0)

    @jr.rec_fn
    def sign(x, n):
        return jr.cond(n == 0, lambda: jnp.copysign(x, np.real(scale)), lambda: sign(x, n - 1))

    assert sign(2.0, 1) == 2.0
    scale = kind(-0.0)
    assert sign(2.0, 1) == -2.0


def test_a_value_that_escapes_is_told_by_the_branch_that_made_it():
    kept = []

    @jr.rec_fn
    def keeping(x, n):
        def more():
            kept.append(2 * x)
            return keeping(x, n - 1)

        return jr.cond(n == 0, lambda: x, more)

    keeping(1.0, 2)
    with pytest.raises(jax.errors.UnexpectedTracerError, match=r"was more at .*test_closure\.py"):
        jnp.sin(kept[-1])


def test_a_module_that_is_reloaded(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    source = tmp_path / "reloaded_module.py"
    source.write_text("def half(x): return x / 2\ndef act(x): return half(x)\n")
    module = importlib.import_module("reloaded_module")

    @jr.rec_fn
    def f(x, n):
        return jr.cond(n <= 0, lambda: x, lambda: module.act(f(x, n - 1)))

    assert float(f(8.0, 2)) == 2
    source.write_text("def half(x): return x / 4  #\ndef act(x): return half(x)\n")
    importlib.reload(module)
    assert float(f(8.0, 2)) == 0.5
    assert float(jax.grad(f)(8.0, 2)) == 1 / 16


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Scaled:
    x: Any

    def times(self):
        return FACTOR * self.x


FACTOR = 2.0


def test_what_a_method_of_an_argument_names(monkeypatch):
    @jr.rec_fn
    def f(a, n):
        return jr.cond(n <= 0, lambda: a.x, lambda: f(Scaled(a.times()), n - 1))

    assert float(f(Scaled(1.0), 2)) == 4
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert float(f(Scaled(1.0), 2)) == 9


class Called:
    next: Any

    def __init__(self, k):
        self.k = k

    def __call__(self, x, n):
        return jr.cond(n <= 0, lambda: x, lambda: self.k * self.next(x, n - 1))

    def method(self, x, n):
        return self(x, n)


@pytest.mark.parametrize("of", [lambda c: c, lambda c: c.method, lambda c: c.__call__])
def test_a_callable_object(of):
    called = Called(2.0)
    called.next = jr.rec_fn(of(called))
    assert float(called.next(1.0, 2)) == 4
    called.k = 3.0
    assert float(called.next(1.0, 2)) == 9


class Replaced:
    def times(self, x):
        return 2 * x

    @jr.rec_fn
    def f(self, x, n):
        return jr.cond(n <= 0, lambda: x, lambda: self.times(self.f(x, n - 1)))


def test_a_method_that_an_object_replaces():
    replaced = Replaced()
    assert float(replaced.f(1.0, 2)) == 4
    setattr(replaced, "times", lambda x: 3 * x)  # noqa: B010 (pyright knows it as a method)
    assert float(replaced.f(1.0, 2)) == 9


@pytest.mark.parametrize("rule", [jax.custom_vjp, jax.custom_jvp])
def test_what_a_derivative_rule_names(rule, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 2.0)
    same = rule(lambda x: x)
    if rule is jax.custom_vjp:
        same.defvjp(lambda x: (x, None), lambda _, g: (FACTOR * g,))
    else:
        same.defjvp(lambda at, by: (at[0], FACTOR * by[0]))

    @jr.rec_fn
    def f(x, n):
        return jr.cond(n <= 0, lambda: x, lambda: same(f(x, n - 1)))

    assert float(jax.grad(f)(1.0, 2)) == 4
    monkeypatch.setattr(sys.modules[__name__], "FACTOR", 3.0)
    assert float(jax.grad(f)(1.0, 2)) == 9


class Counted:
    made = 0

    def __init__(self, k):
        self.k = k
        Counted.made += 1

    def __call__(self, x):
        return self.k * x


def test_what_making_an_object_changes_is_not_looked_at():
    counted = Counted(2.0)

    @jr.rec_fn
    def f(x, n):
        return jr.cond(n <= 0, lambda: x, lambda: counted(f(x, n - 1)))

    f(1.0, 2)
    (traced, *_) = f._cache.values()
    Counted(3.0)
    assert traced.closure.holds()


def test_a_long_chain_of_helpers():
    chain = ["class C: pass", "c = C()", "def h0(x): return x"]
    chain += [f"c.a{k} = 1.0\ndef h{k}(x): return h{k - 1}(x) + c.a{k}" for k in range(1, 201)]
    module: dict[str, Any] = {}
    exec("\n".join(chain), module)
    helper, c = module["h200"], module["c"]

    @jr.rec_fn
    def f(x, n):
        return jr.cond(n <= 0, lambda: x, lambda: helper(f(x, n - 1)))

    assert float(f(0.0, 2)) == 400
    c.a1 = 2.0
    assert float(f(0.0, 2)) == 402


def test_functions_of_libraries_are_not_followed():
    @jr.rec_fn
    def f(x, n):
        return jr.cond(n <= 0, lambda: nnx.relu(jnp.sin(x)), lambda: f(x, n - 1))

    float(f(1.0, 2))
    traced, *_ = f._cache.values()
    variables = traced.closure._variables
    assert {v._name for v in variables or ()} <= {"", "nnx", "jnp", "jr"}
