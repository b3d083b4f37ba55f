"""Row-sparse updates against the dense ones."""

from __future__ import annotations

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrec import optim

NUM_ROWS, WIDTH, CAPACITY = 40, 5, 24


def random_steps(seed, steps=6):
    """Tables, and for each step rows, their gradient, and the same gradient as a whole table."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        rows, _ = optim.used_rows(rng.integers(-1, NUM_ROWS, 20), NUM_ROWS, CAPACITY)
        used = int((rows < NUM_ROWS).sum())
        small = np.zeros((CAPACITY, WIDTH), np.float32)
        small[:used] = rng.normal(size=(used, WIDTH))
        dense = np.zeros((NUM_ROWS, WIDTH), np.float32)
        dense[rows[:used]] = small[:used]
        yield rows, used, small, dense


@partial(jax.jit, static_argnums=0)
def dense_update(transform, table, state, gradient):
    updates, state = transform.update(gradient, state, table)
    return optax.apply_updates(table, updates), state


def first_table():
    return jax.random.normal(jax.random.key(0), (NUM_ROWS, WIDTH))


@pytest.mark.parametrize(
    "transform",
    [
        optax.adagrad(0.1),
        optax.adagrad(0.1, initial_accumulator_value=0.0, eps=1e-12),
        optax.sgd(0.1),
        optax.adagrad(optax.exponential_decay(0.1, 2, 0.5)),
    ],
)
def test_equals_the_dense_update(transform):
    optimizer = optim.RowOptimizer(transform)
    update = jax.jit(optimizer.update, donate_argnums=(0, 1))
    table, dense_table = first_table(), first_table()
    state, dense_state = optimizer.init(table), transform.init(dense_table)
    for rows, _, small, dense in random_steps(1):
        table, state = update(table, state, small, rows)
        dense_table, dense_state = dense_update(transform, dense_table, dense_state, dense)
    # The same operations on each element; XLA may contract or vectorise two shapes differently, and
    # the steps of a row may cancel.
    same = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7)
    same(table, dense_table)
    jax.tree.map(same, state, dense_state)


def test_decay_and_moments_touch_used_rows_only():
    transform = optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.01))
    optimizer = optim.RowOptimizer(transform)
    table = first_table()
    state = optimizer.init(table)
    for rows, used, small, _ in random_steps(2, steps=3):
        before = np.array(table)
        table, state = optimizer.update(table, state, small, rows)
        unused = np.setdiff1d(np.arange(NUM_ROWS), rows[:used])
        np.testing.assert_array_equal(np.asarray(table)[unused], before[unused])
        assert (np.asarray(table)[rows[:used]] != before[rows[:used]]).any(axis=1).all()


def test_decay_of_used_rows_equals_the_dense_one():
    transform = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.5))
    optimizer, table = optim.RowOptimizer(transform), first_table()
    rows, used, small, dense = next(random_steps(3))
    new, _ = optimizer.update(table, optimizer.init(table), small, rows)
    updates, _ = transform.update(jnp.asarray(dense), transform.init(table), table)
    wanted = np.asarray(optax.apply_updates(table, updates))[rows[:used]]
    np.testing.assert_allclose(np.asarray(new)[rows[:used]], wanted, rtol=1e-6)


def test_a_table_may_be_a_pytree():
    transform = optax.adagrad(0.1)
    table = {"a": first_table(), "b": jnp.ones((NUM_ROWS, 2, 3))}
    optimizer = optim.RowOptimizer(transform)
    rows = optim.used_rows([5, 3], NUM_ROWS).rows
    gradient = jax.tree.map(jnp.ones_like, optim.gather_rows(table, rows))
    new, state = optimizer.update(table, optimizer.init(table), gradient, rows)
    changed = np.flatnonzero((np.asarray(new["b"]) != 1).any(axis=(1, 2)))
    assert changed.tolist() == [3, 5]
    assert jax.tree.structure(state) == jax.tree.structure(optimizer.init(table))


def test_a_training_step_equals_the_dense_one():
    """Through the gather: gradients of used rows are those of the table."""
    table, tokens = first_table(), np.array([7, 2, 7, -1, 30])
    rows, local = optim.used_rows(tokens, NUM_ROWS, CAPACITY)

    def loss(table, index):
        picked = jnp.where(index[:, None] >= 0, table[index], 0)
        return jnp.sum(jnp.tanh(picked) ** 2)

    transform = optax.adagrad(0.1)
    updates, _ = transform.update(jax.grad(loss)(table, tokens), transform.init(table))
    optimizer = optim.RowOptimizer(transform)
    gradient = jax.grad(loss)(optim.gather_rows(table, rows), local)
    new, _ = optimizer.update(table, optimizer.init(table), gradient, rows)
    np.testing.assert_array_equal(new, optax.apply_updates(table, updates))


def test_the_compiled_update_writes_in_place():
    optimizer = optim.RowOptimizer(optax.adagrad(0.1))
    table = jnp.zeros((5000, WIDTH))
    rows = optim.used_rows([1], 5000, CAPACITY).rows
    small = jnp.zeros((CAPACITY, WIDTH))
    update = jax.jit(optimizer.update, donate_argnums=(0, 1))
    text = update.lower(table, optimizer.init(table), small, rows).compile().as_text()
    assert text is not None
    copies = [line for line in text.splitlines() if "= f32[5000,5]" in line and " copy(" in line]
    assert not copies


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-1, 9), max_size=30), st.integers(0, 5))
def test_used_rows_renumber(indices, spare):
    needed = len({index for index in indices if index >= 0})
    rows, local = optim.used_rows(np.array(indices, np.int32), 10, needed + spare)
    assert rows.dtype == local.dtype == np.int32
    assert (np.diff(rows) > 0).all()
    assert (rows[needed:] >= 10).all()
    assert [int(rows[at]) if at >= 0 else -1 for at in local] == indices


def test_rows_go_round():
    table = first_table()
    rows = optim.used_rows([4, 9], NUM_ROWS, 4).rows
    small = optim.gather_rows(table, rows)
    np.testing.assert_array_equal(small[:2], table[np.array([4, 9])])
    assert not np.asarray(small[2:]).any()
    np.testing.assert_array_equal(optim.scatter_rows(table, rows, small), table)


def test_errors_name_the_numbers():
    with pytest.raises(ValueError, match="got index 10, expected one below num_rows=10"):
        optim.used_rows([3, 10], 10)
    with pytest.raises(ValueError, match="got capacity=1, expected 2 or more"):
        optim.used_rows([3, 4, 4], 10, 1)
    with pytest.raises(ValueError, match=f"got num_rows=10, capacity={2**31}, expected less"):
        optim.used_rows([1], 10, 2**31)
    with pytest.raises(ValueError, match="rows are numbered in int32"):
        optim.used_rows([2**40], 2**41)
