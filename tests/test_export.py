"""Programs that are exported run where they were made, in another process, and nowhere else."""

from __future__ import annotations

import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from processes import check_in_a_process
from zoo import forest

import jaxrec as jr

_ELSEWHERE = """
import pickle
import jax
import numpy as np
from jax import export
import jaxrec
jaxrec.register_handlers()
with open("{path}", "rb") as file:
    fields, args, expected = pickle.load(file)
made = export.Exported(**fields, _get_vjp=None).call(*args)
jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), made, expected)
print("done")
"""


@jr.rec_fn
def power(x, n):
    return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))


@jr.rec_fn
def fold(w, left, right, i):
    def node():
        return jnp.tanh(w @ (fold(w, left, right, left[i]) + fold(w, left, right, right[i])))

    return jr.cond(left[i] < 0, lambda: w[i % 3], node)


@jr.rec_fn(max_calls=100)
def shrink(w, x):
    return jr.cond(jnp.sum(x * x) < 0.1, lambda: x, lambda: 1.1 * shrink(w, jnp.tanh(0.8 * w @ x)))


W = 0.9 * jnp.eye(40)
PROGRAMS = {
    "scalars": (power, (1.1, 7)),
    "planned": (fold, (W, forest().left, forest().right, 0)),
    "stepped": (shrink, (W, jnp.linspace(0.0, 1.0, 40))),
}


@pytest.fixture(params=PROGRAMS)
def program(request):
    fun, args = PROGRAMS[request.param]
    return jax.jit(jax.value_and_grad(lambda *args: jnp.sum(fun(*args) ** 2))), args


def exported(program, **options):
    fun, args = program
    return export.export(fun, disabled_checks=jr.export_checks(), **options)(*args)


def assert_same(made, expected):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), made, expected)


def test_in_the_same_process(program):
    fun, args = program
    assert_same(exported(program).call(*args), fun(*args))


def test_in_another_process(program, tmp_path):
    """What `Exported.serialize` does needs a library that JAX does not; these are its parts."""
    fun, args = program
    made = exported(program)
    fields = {f.name: getattr(made, f.name) for f in dataclasses.fields(made)}
    del fields["_get_vjp"]
    path = tmp_path / "program"
    path.write_bytes(pickle.dumps((fields, *jax.tree.map(np.asarray, (args, fun(*args))))))
    check_in_a_process(_ELSEWHERE.format(path=path))


def test_for_several_platforms(program):
    fun, args = program
    made = exported(program, platforms=("cpu", "cuda"))
    assert made.platforms == ("cpu", "cuda")
    assert_same(made.call(*args), fun(*args))


def test_checks_are_those_of_the_handlers():
    fun, args = PROGRAMS["scalars"]
    with pytest.raises(ValueError, match="jaxrec_native"):
        export.export(jax.jit(fun))(*args)


def test_symbolic_shapes_are_refused():
    (size,) = export.symbolic_shape("size")
    nodes = jax.ShapeDtypeStruct((size,), jnp.int32)
    vectors = jax.ShapeDtypeStruct((size, 40), jnp.float32)
    with pytest.raises(jr.UnsupportedError, match=r"argument left of fold is of shape \[size\]"):
        exported((jax.jit(fold), (W, nodes, nodes, 0)))
    mapped = jax.jit(jax.vmap(shrink, (None, 0)))
    with pytest.raises(jr.UnsupportedError, match=r"vmap maps shrink over is of shape \[size\]"):
        exported((mapped, (W, vectors)))
