"""Derivatives in many directions at once: what they are derivatives of is computed once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from zoo import assert_close, forest, normal

import jaxrec as jr
from jaxrec import _compat
from jaxrec.lowering import _read
from jaxrec.lowering._read import Gather, Place, Sum, read_wave

ROWS = jnp.array([4, 0, 2, 2, 1, 3, 0, 4], jnp.int32)
POINTERS = jnp.array([0, 1, 3, 3, 4, 6, 7, 8, 8], jnp.int32)
WAVES = jnp.array([[9, 0, 2], [7, 3, 4]], jnp.int32)
ONCE = _compat.sums_shared_products
PLACES = {"all": Place(3), "a block": Place(3, 1), "right-aligned": Place(2, 1, 2)}


def read(place: Place, tape: Any, other: Any, number: Any = 1, rows: Any = ROWS) -> Any:
    gathers = [Gather(tape, rows), Gather(other.astype(jnp.int32), rows)]
    return read_wave(place, WAVES, number, gathers, [Sum(other, rows, POINTERS)])


def by_xla(monkeypatch: Any, run: Any) -> Any:
    """What XLA reads, whose operations JAX maps."""
    with monkeypatch.context() as patch:
        patch.setattr(
            _read, "_by_handler", lambda place, axes, given: _read._by_xla(place, True, given)
        )
        return run()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("axes", "sizes"),
    [
        ([(0, 0)], (3,)),
        ([(0, None)], (3,)),
        ([(None, 1)], (3,)),
        ([(0, 0)], (0,)),
        ([(0, 0), (0, 0)], (2, 3)),
        ([(0, None), (0, 0)], (0, 3)),
        ([(0, None), (None, 0)], (2, 3)),
        ([(0, 1), (None, 0)], (2, 3)),
    ],
)
def test_stacks_of_tapes(place, axes, sizes, monkeypatch):
    """However they are mapped, the numbers of the wave are one for all, or the same."""
    shapes = [[5, 2], [5, 3]]
    for k, size in reversed(list(enumerate(sizes))):
        for shape, axis in zip(shapes, axes[k], strict=True):
            if axis is not None:
                shape.insert(axis, size)
    tapes = [normal(seed, *shape) for seed, shape in enumerate(shapes)]

    def run() -> Any:
        mapped = lambda *tapes: read(PLACES[place], *tapes)  # noqa: E731
        for own in reversed(axes):
            mapped = jax.vmap(mapped, own, (None if ONCE else 0, 0, 0))
        return mapped(*tapes)

    made, wanted = run(), by_xla(monkeypatch, run)
    np.testing.assert_array_equal(made[0], jnp.broadcast_to(WAVES[1], made[0].shape))
    assert_close(made, wanted, 1e-6)


@pytest.mark.parametrize("mapped", ["number", "rows", "both"])
def test_waves_that_are_mapped(mapped, monkeypatch):
    tape, other = normal(1, 2, 5, 2), normal(2, 5, 3)
    rows, numbers = jnp.stack([ROWS, ROWS[::-1]]), jnp.array([0, 1])
    axes = (0 if mapped != "rows" else None, 0 if mapped != "number" else None)

    def run() -> Any:
        def one(tape: Any, number: Any, rows: Any) -> Any:
            return read(PLACES["a block"], tape, other, number, rows)

        given = numbers if axes[0] == 0 else 1, rows if axes[1] == 0 else ROWS
        return jax.vmap(one, (0, *axes))(tape, *given)

    assert_close(run(), by_xla(monkeypatch, run), 1e-6)


@jr.rec_fn
def solved(w, tree, i):
    """A cell whose value takes a decomposition, which its tangents use."""

    def node():
        below = solved(w, tree, tree.left[i]) + solved(w, tree, tree.right[i])
        return jnp.linalg.solve(3 * jnp.eye(4) + jnp.sin(w), below)

    return jr.cond(tree.left[i] < 0, lambda: w[tree.token[i] % 4], node)


@pytest.mark.parametrize("jacobian", [jax.jacfwd, jax.jacrev])
def test_values_are_computed_once(jacobian):
    w, tree = normal(3, 4, 4) / 4, forest()
    run = jax.jit(jacobian(lambda w: solved(w, tree, 0)))
    with jr.executor("reference"):
        assert_close(run(w), jacobian(lambda w: solved(w, tree, 0))(w), 1e-4)
    if not ONCE:
        return
    lines = str(run.lower(w).compile().as_text()).splitlines()
    decomposed = [line for line in lines if "getrf" in line]
    of_directions = "f32[16," if jacobian is jax.jacfwd else "f32[4,4,4,"
    assert decomposed and not [line for line in decomposed if of_directions in line]


def test_many_cotangents_of_a_cell_that_sums_products():
    """As many that XLA compiles the sum for many elements."""

    @jr.rec_fn
    def mixed(w, tree, i):
        def node():
            left, right = mixed(w, tree, tree.left[i]), mixed(w, tree, tree.right[i])
            return jnp.tanh(w @ left + right * jnp.sum(left))

        return jr.cond(tree.left[i] < 0, lambda: w[tree.token[i] % 6] + 1.0, node)

    w, tree = normal(5, 6, 6) / 3, forest()
    pull = jax.vjp(lambda w: jax.vmap(mixed, (None, None, 0))(w, tree, jnp.arange(12)), w)[1]
    cts = normal(6, 600, 12, 6)
    (made,) = jax.jit(jax.vmap(pull))(cts)
    assert_close(made, jnp.stack([pull(ct)[0] for ct in cts]), 1e-4)
