"""Derivative rules that are not the derivative: what JAX does of each order, and so does jaxrec.

A rule that is right hides which code is differentiated. These rules are wrong on purpose, and the
oracle is the same text as plain Python recursion under the same transformations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from cases import in_turn
from waves import in_waves, tanh
from zoo import JAXREC, PYTHON, Language, assert_close

import jaxrec as jr
from jaxrec.lowering._repeatable import is_repeatable

RULES: dict[str, Callable[[Language], Any]] = {}


def rule(build: Any) -> Any:
    RULES[build.__name__] = build
    return build


@jax.custom_vjp
def bent(y: Any) -> Any:
    return jnp.sin(y)


bent.defvjp(lambda y: (jnp.sin(y), y), lambda y, g: (g * 0.7 * y,))


@jax.custom_vjp
def decayed(y: Any) -> Any:
    return jnp.sin(y)


decayed.defvjp(lambda y: (jnp.sin(y), y), lambda y, g: (jnp.sin(g * y) + 0.3 * y,))


@jax.custom_jvp
def pushed(y: Any) -> Any:
    return jnp.sin(y)


pushed.defjvp(lambda p, t: (jnp.sin(p[0]), 0.7 * p[0] * t[0]))


def around(lang: Language, within: Callable[[Any], Callable[..., Any]]) -> Any:
    """A recursion with a rule around one of its two calls."""

    @lang.rec_fn(max_calls=64)
    def f(x, n):
        applied = within(f)
        return lang.cond(n <= 0, lambda: tanh(x), lambda: applied(x, n) * x + x * f(0.9 * x, n - 1))

    return f


@rule
def backward_rule(lang: Language) -> Any:
    def within(f: Any) -> Any:
        def value(y, n):
            return jnp.sin(f(y * 0.5, n - 1))

        applied = jax.custom_vjp(value)
        applied.defvjp(lambda y, n: (value(y, n), y), lambda y, g: (g * 0.7 * y, None))
        return applied

    return around(lang, within)


@rule
def backward_rule_of_itself(lang: Language) -> Any:
    """The forward rule calls the function for its value, as is usual."""

    def within(f: Any) -> Any:
        applied = jax.custom_vjp(lambda y, n: jnp.sin(f(y * 0.5, n - 1)))
        applied.defvjp(lambda y, n: (applied(y, n), y), lambda y, g: (g * 0.7 * y, None))
        return applied

    return around(lang, within)


@rule
def rule_with_a_bias(lang: Language) -> Any:
    """The backward rule gives something for a cotangent of zero."""

    def within(f: Any) -> Any:
        applied = jax.custom_vjp(lambda y, n: jnp.sin(f(y * 0.5, n - 1)))

        def forward(y, n):
            inner = f(y * 0.5, n - 1)
            return jnp.sin(inner), (y, inner)

        applied.defvjp(forward, lambda r, g: (jnp.sin(g * r[1]) + 0.3 * r[0], None))
        return applied

    return around(lang, within)


@rule
def forward_rule(lang: Language) -> Any:
    def within(f: Any) -> Any:
        applied = jax.custom_jvp(lambda y, n: jnp.sin(f(y * 0.5, n - 1)))

        @applied.defjvp
        def _(primals, tangents):
            value = applied(*primals)
            return value, 0.7 * primals[0] * value * tangents[0]

        return applied

    return around(lang, within)


def without_calls(lang: Language, activation: Any) -> Any:
    """Rules in cells, on values of a call and on a value that all calls share."""

    @lang.rec_fn(max_calls=64)
    def f(w, x, n):
        def node():
            return activation(w * f(w, x * 0.5, n - 1)) + x * f(w, x, n - 1) * activation(w)

        return lang.cond(n <= 0, lambda: activation(w) * activation(in_waves(x)), node)

    return lambda x, n: f(x, jnp.cos(x), n)


RULES["backward_rule_in_cells"] = lambda lang: without_calls(lang, bent)
RULES["rule_with_a_bias_in_cells"] = lambda lang: without_calls(lang, decayed)
RULES["forward_rule_in_cells"] = lambda lang: without_calls(lang, pushed)


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def loss_of(name: str, lang: Language) -> Callable[[Any], Any]:
    fun = RULES[name](lang)
    return lambda x: (fun(x, 2) ** 2).sum() + fun(x, 2)[0]


def point() -> Any:
    return jnp.array([0.3, -0.8, 1.1])


def second(loss: Any) -> Any:
    """Through the value and through the derivative, of one point and of two at a time."""

    def first(x):
        value, slope = jax.value_and_grad(loss)(x)
        values, slopes = jax.vmap(jax.value_and_grad(loss))(jnp.stack([x, 2 * x]))
        return jnp.sin(value) + (slope**2).sum() + jnp.cos(values).sum() + (slopes**3).sum()

    return jax.value_and_grad(first)


def third(loss: Any) -> Any:
    def squared(fun: Any) -> Any:
        return lambda x: sum(jnp.sum(part**2) for part in jax.value_and_grad(fun)(x))

    return jax.grad(squared(squared(loss)))


@pytest.mark.parametrize(
    "name",
    [pytest.param("rule_with_a_bias", marks=pytest.mark.exhaustive), "rule_with_a_bias_in_cells"],
)
def test_rules_that_do_not_keep_zero(name: str) -> None:
    """What is computed for no call, or for a rule's own use, gets none of their bias."""

    def both(loss: Any) -> Any:
        return lambda x: (jax.grad(loss)(x), jax.vmap(jax.grad(loss))(jnp.stack([x, 2 * x])))

    got = jax.jit(both(loss_of(name, JAXREC)))(point())
    assert_close(got, both(loss_of(name, PYTHON))(point()), 1e-9)


def check_second_derivatives(name: str) -> None:
    got = jax.jit(second(loss_of(name, JAXREC)))(point())
    assert_close(got, second(loss_of(name, PYTHON))(point()), 1e-9)


@pytest.mark.exhaustive  # they compile for up to minutes
@pytest.mark.parametrize("name", [n for n in RULES if n != "rule_with_a_bias"])
def test_second_derivatives(name: str) -> None:
    check_second_derivatives(name)


THIRD = ["backward_rule_of_itself", "forward_rule", "forward_rule_in_cells"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", THIRD)
def test_third_derivatives(name: str) -> None:
    got = jax.jit(third(loss_of(name, JAXREC)))(point())
    assert_close(got, third(loss_of(name, PYTHON))(point()), 1e-9)


@pytest.mark.parametrize("name", ["backward_rule", "rule_with_a_bias_in_cells"])
@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.exhaustive
def test_executors_agree(name: str, executor: str) -> None:
    with jr.executor(executor):
        loss = loss_of(name, JAXREC)
        got = jax.grad(lambda x: jnp.sum(jax.grad(loss)(x) ** 2))(point())
    plain = loss_of(name, PYTHON)
    assert_close(got, jax.grad(lambda x: jnp.sum(jax.grad(plain)(x) ** 2))(point()), 1e-9)


@pytest.mark.exhaustive
def test_hessian_of_a_forward_rule() -> None:
    got = jax.jit(jax.hessian(loss_of("forward_rule", JAXREC)))(point())
    assert_close(got, jax.hessian(loss_of("forward_rule", PYTHON))(point()), 1e-9)


@pytest.mark.parametrize("executor", ["graph", "reference"])
def test_mixed_derivatives(executor: str) -> None:
    """Of one argument, then of another that the rule alone depends on."""

    def build(lang: Language) -> Any:
        @lang.rec_fn(max_calls=64)
        def f(w, x, n):
            applied = jax.custom_vjp(lambda y, n: f(jnp.cos(y), y * 0.5, n - 1))

            def forward(y, n):
                return applied(y, n), y

            applied.defvjp(forward, lambda y, g: (g * y, None))
            return lang.cond(n <= 0, lambda: w * tanh(x), lambda: w * applied(x, n) + x)

        return lambda w, x: f(w, x, 2).sum()

    def mixed(fun: Any) -> Any:
        inner = jax.grad(fun)
        return jax.grad(lambda w, x: jnp.sin(inner(w, x)).sum(), (0, 1))

    args = point(), jnp.cos(point())
    with jr.executor(executor):
        got = mixed(build(JAXREC))(*args)
    assert_close(got, mixed(build(PYTHON))(*args), 1e-9)


def test_division_by_zero_beside_calls() -> None:
    """A rule that divides by what is zero in no call of the user's gives no NaN."""

    @jax.custom_vjp
    def ratio(y):
        return jnp.sin(y)

    ratio.defvjp(lambda y: (jnp.sin(y), y), lambda y, g: (g / y,))

    def build(lang: Language) -> Any:
        @lang.rec_fn(max_calls=64)
        def f(w, n):
            below = lambda: ratio(w * f(w, n - 1)) + ratio(w)  # noqa: E731
            return lang.cond(n <= 0, lambda: ratio(w), below)

        return lambda x: f(x, 4).sum()

    assert_close(jax.jit(second(build(JAXREC)))(point()), second(build(PYTHON))(point()), 1e-9)


def test_collect_refuses_calls_inside_a_rule() -> None:
    f = RULES["backward_rule"](JAXREC)
    with pytest.raises(jr.UnsupportedError, match=r"collect of f: a custom_vjp .* Make the calls"):
        jr.collect(f)(point(), 2)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_residuals_of_perturbed_operands_alone(executor: str) -> None:
    """A rule with symbolic zeros keeps other residuals for each set of operands."""

    @jax.custom_vjp
    def product(x: Any, y: Any) -> Any:
        return x * y

    def forward(x: Any, y: Any) -> Any:
        kept = y.value if x.perturbed else None, x.value if y.perturbed else None
        return x.value * y.value, kept

    def backward(kept: Any, ct: Any) -> Any:
        return tuple(None if factor is None else ct * factor for factor in kept)

    product.defvjp(forward, backward, symbolic_zeros=True)

    @jr.rec_fn
    def f(x: Any, y: Any, n: Any) -> Any:
        return jr.cond(n <= 0, lambda: 0 * x, lambda: f(x, y, n - 1) + product(x, y))

    with jr.executor(executor):
        for calls in (3, 40):  # of other sizes, so that nothing is kept of the first round
            assert jax.grad(f, 0)(2.0, 5.0, calls) == 5 * calls
            assert jax.grad(f, 1)(2.0, 5.0, calls) == 2 * calls
            assert jax.grad(f, (0, 1))(2.0, 5.0, calls) == (5 * calls, 2 * calls)


def halved_size(x: Any, ct: Any) -> Any:
    size = jnp.abs(ct)
    return (x * (ct / size) * size,)


@pytest.mark.parametrize(
    ("backward", "known"),
    [
        (lambda x, ct: (ct * x,), True),
        (lambda x, ct: (ct / (1 + x * x),), True),
        (lambda x, ct: (jnp.linalg.solve(jnp.eye(2) + x, ct),), True),
        (lambda x, ct: (jnp.where(x > 0, ct, 0.1 * ct),), True),
        (lambda x, ct: (ct + 0.1 * x,), False),
        (lambda x, ct: (jnp.clip(ct, -1, 1),), False),
        (lambda x, ct: (jnp.where(ct > 1, 1.0, ct),), False),
        (lambda x, ct: (ct / ct,), False),
        (lambda x, ct: (ct * (1 / ct),), False),
        (halved_size, False),
    ],
)
def test_rules_that_are_linear(backward: Any, known: bool) -> None:
    """Only then rows that are no call may go into a sum over rows."""

    @jax.custom_vjp
    def same(x: Any) -> Any:
        return x

    same.defvjp(lambda x: (x, x), backward)

    @jr.rec_fn
    def f(x: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: x, lambda: same(f(x, n - 1)))

    f(jnp.ones(2), 1)
    program = next(iter(vars(f)["_cache"].values())).program
    assert all(is_repeatable(program, spec) for spec in program.cells) is known


@pytest.mark.parametrize("kind", ["jvp", "vjp"])
def test_what_a_function_closes_over_that_a_rule_calls(kind: str) -> None:
    """Inside of the rule it would have no derivative, without a word."""

    def loss(scale: Any, x: Any) -> Any:
        @jr.rec_fn
        def f(x: Any, n: Any) -> Any:
            def more() -> Any:
                if kind == "jvp":
                    twice = jax.custom_jvp(lambda x, n: 2 * f(x, n - 1))
                    twice.defjvp(lambda p, t: (twice(*p), 0.7 * t[0]))
                else:
                    twice = jax.custom_vjp(lambda x, n: 2 * f(x, n - 1))
                    twice.defvjp(lambda x, n: (twice(x, n), None), lambda _, ct: (0.7 * ct, None))
                return twice(x, n)

            return jr.cond(n <= 0, lambda: scale * x, more)

        return f(x, 2)

    assert loss(1.5, 3.0) == 18
    assert jax.grad(loss, 1)(1.5, 3.0) == jnp.float32(0.7)
    with pytest.raises(jr.UnsupportedError, match="f closes over a value that is differentiated"):
        jax.grad(loss)(1.5, 3.0)


@jax.custom_vjp
def both(a: Any, x: Any) -> Any:
    """Of its results the second is the same for all calls of a wave."""
    return a * x, jnp.sin(a)


both.defvjp(
    lambda a, x: (both(a, x), (a, x)),
    lambda kept, cts: (cts[0] * kept[1] + cts[1] * jnp.cos(kept[0]), cts[0] * kept[0]),
)


@pytest.mark.parametrize(("calls", "executor"), in_turn([1, 4], ("graph", "host")))
def test_a_rule_with_a_result_that_all_calls_share(executor: str, calls: int) -> None:
    def build(lang: Language) -> Any:
        @lang.rec_fn
        def f(w, x, n):
            def more():
                y, z = both(w, x)
                return y + z + f(w, x * 1.1, n - 1)

            return lang.cond(n <= 0, lambda: jnp.sin(w), more)

        return f

    want = jax.grad(build(PYTHON), (0, 1))(0.7, 0.3, calls)
    with jr.executor(executor):
        assert_close(jax.grad(build(JAXREC), (0, 1))(0.7, 0.3, calls), want, 1e-5)
    roomy = build(JAXREC).with_options(max_calls=100)
    assert_close(jax.jit(jax.grad(roomy, (0, 1)))(0.7, 0.3, calls), want, 1e-5)


@jax.custom_vjp
def clipped(w: Any) -> Any:
    """Its rule makes something else of a sum than of its parts."""
    return w


clipped.defvjp(lambda w: (w, None), lambda _, ct: (jnp.clip(ct, -0.05, 0.05),))


@pytest.mark.parametrize("executor", ["graph", "host"])
def test_a_rule_whose_value_is_read_before_and_after_a_call(executor: str) -> None:
    def build(lang: Language) -> Any:
        @lang.rec_fn
        def f(w, x, n):
            def more():
                v, u = clipped(w), clipped(w * n)
                return f(w, x * v, n - 1) * v + u * f(w, x, n - 1) + u

            return lang.cond(n <= 0, lambda: x, more)

        return f

    want = jax.grad(build(PYTHON))(2.0, 3.0, 2)
    with jr.executor(executor):
        assert_close(jax.grad(build(JAXREC))(2.0, 3.0, 2), want, 1e-5)


@pytest.mark.parametrize("executor", ["graph", "host", "reference"])
def test_a_rule_that_closes_over_an_array(executor):
    """A rule has no derivative in it, and nobody asks for one."""
    scale = jnp.array([1.0, 2.0])

    @jax.custom_vjp
    def scaled(x, p):
        return jnp.sin(p) * x * scale

    def backward(kept, ct):
        x, p = kept
        return jnp.sin(p) * ct * scale, (jnp.cos(p) * x * scale * ct).sum()

    scaled.defvjp(lambda x, p: (scaled(x, p), (x, p)), backward)

    @jr.rec_fn
    def f(p, x, n):
        y = scaled(x, p)
        return jr.cond(n == 0, lambda: y, lambda: y * 0.5 + f(p, y, n - 1))

    def plain(p, x, n):
        y = scaled(x, p)
        return y if n == 0 else y * 0.5 + plain(p, y, n - 1)

    with jr.executor(executor):
        got = jax.grad(lambda p: f(p, scale, 2).sum())(0.7)
    want = jax.grad(lambda p: plain(p, scale, 2).sum())(0.7)
    assert float(got) == pytest.approx(float(want), rel=1e-5)
