"""Functions of JAX that have derivative rules: those are the derivatives of what they compute."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from zoo import assert_close

import jaxrec as jr
from jaxrec._order import has_rule

FUNCTIONS = {
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "softmax": jax.nn.softmax,
    "logsumexp": lambda x: x + jax.nn.logsumexp(x),
    "logaddexp": lambda x: jnp.logaddexp(x, x[::-1] ** 2),
    "softplus": jax.nn.softplus,
    "xlogy": lambda x: jax.scipy.special.xlogy(x, x**2 + 1),
    "sinc": jnp.sinc,
}
W = jnp.array([[0.3, -0.8, 0.2], [-0.5, 0.7, 0.4], [0.6, 0.1, -0.9]])
X = jnp.array([0.4, -0.3, 1.2])
CASES: list[Any] = [
    pytest.param("relu", jax.hessian, marks=pytest.mark.exhaustive, id="relu"),
    pytest.param(
        "logaddexp",
        lambda f: jax.jacrev(jax.jacrev(f)),
        marks=pytest.mark.exhaustive,
        id="logaddexp",
    ),
    pytest.param(
        "relu", lambda f: jax.jacfwd(jax.hessian(f)), marks=pytest.mark.exhaustive, id="third"
    ),
]


def tanh_of_another_slope() -> Any:
    fun = jax.custom_jvp(jnp.tanh)
    fun.defjvps(lambda t, _, x: 2 * t * x)
    return fun


def solved(x: Any) -> Any:
    """A root by a rule of JAX that is made of the user's functions."""
    return jax.lax.custom_root(
        lambda y: y**2 - x, x, lambda _, x0: jnp.sqrt(x0), lambda g, y: y / g(jnp.ones_like(y))
    )


def rules(fun: Any) -> list[bool]:
    return [has_rule(eqn) for eqn in jax.make_jaxpr(fun)(X).eqns]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_they_count_no_derivatives(name):
    assert not any(rules(FUNCTIONS[name]))


class Sine:
    """A function that no file has the source of."""

    def __call__(self, x):
        return jnp.sin(x)


def of_an_object() -> Any:
    fun = jax.custom_jvp(Sine())
    fun.defjvps(lambda t, _, x: 2 * t * x)
    return fun


USERS = [tanh_of_another_slope(), jax.jit(tanh_of_another_slope()), of_an_object()]


@pytest.mark.parametrize("fun", USERS, ids=["function", "jit", "object"])
def test_a_rule_of_the_user_for_one_of_them_does(fun):
    assert any(rules(fun))


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_derivatives_of_derivatives(name, mode):
    activation = FUNCTIONS[name]

    @jr.rec_fn
    def tree(w, x, n):
        def node():
            return activation(w @ tree(w, x, n - 1) + tree(w, 0.5 * x, n - 1) * x)

        return jr.cond(n == 0, lambda: activation(w @ x), node)

    def plain(w, x, n):
        if n == 0:
            return activation(w @ x)
        return activation(w @ plain(w, x, n - 1) + plain(w, 0.5 * x, n - 1) * x)

    def of(f):
        return jax.jit(mode(lambda x: jnp.sum(f(W, x, 2) ** 2)))(X)

    assert_close(of(tree), of(plain), 1e-4)


def test_a_root_by_the_users_functions():
    @jr.rec_fn
    def roots(x, n):
        return jr.cond(n == 0, lambda: x, lambda: solved(1 + roots(x, n - 1)))

    def plain(x, n):
        return x if n == 0 else solved(1 + plain(x, n - 1))

    def of(f):
        return jax.hessian(lambda x: jnp.sum(f(x, 2)))(X**2)

    assert_close(of(roots), of(plain), 1e-4)
