"""Options and axes that users get wrong."""

from __future__ import annotations

import jax.numpy as jnp
import pytest
from test_errors import ONE, TREE, total

import jaxrec as jr


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
        ("workers", -1, "a number of threads"),
    ],
)
def test_wrong_values(option, value, expected):
    message = f"{option}={value!r} of total: expected {expected}"
    with pytest.raises(jr.SignatureError, match=message):
        total.with_options(**{option: value})
    with pytest.raises(jr.SignatureError, match=f"of <lambda>: expected {expected}"):
        jr.rec_fn(lambda x: x, **{option: value})


def test_unknown_option():
    with pytest.raises(jr.SignatureError, match=r"option 'max_call': expected one of .*max_calls"):
        total.with_options(max_call=3)


def test_static_argument_is_not_hashable():
    @jr.rec_fn(static_argnums=1)
    def f(x, options):
        return x

    with pytest.raises(
        jr.SignatureError, match=r"static argument options of f is a list, .* not h"
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
