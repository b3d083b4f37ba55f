"""What a training run is made of: its data, batches, settings, steps and accuracies."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_train import ONE_EPOCH, TINY, TINY_LISTOPS

from jaxrec import data
from jaxrec.train import _batching, parse_settings
from jaxrec.train._batching import eval_batches, eval_shape, train_batches
from jaxrec.train._evaluate import accuracies, count
from jaxrec.train._program import make_program
from jaxrec.train._task import load_task


def first_steps(*args):
    """The states before and after a step on a batch, and the losses of two steps on it."""
    settings = parse_settings([*ONE_EPOCH, *args])
    task = load_task(settings)
    program = make_program(settings, task)
    batch = next(train_batches(task.train, settings.batch, len(task.vocabulary), 0, 0))
    before = jax.tree.map(np.array, program.state)
    state, first = program.step(program.state, batch)
    after = jax.tree.map(np.array, state)
    return before, after, float(first), float(program.step(state, batch)[1])


def are_equal(a, b):
    return all(jax.tree.leaves(jax.tree.map(np.array_equal, a, b)))


class TestSettingsTakeEffect:
    def test_word_vectors_and_weights_have_optimizers_of_their_own(self):
        before, after, *_ = first_steps("--embed-lr", "0")
        assert are_equal(before.table, after.table)
        assert not are_equal(before.weights, after.weights)
        before, after, *_ = first_steps("--lr", "0", "--embed-lr", "0.1")
        assert not are_equal(before.table, after.table)
        assert are_equal(before.weights, after.weights)

    def test_dropout_is_drawn_anew_each_step(self):
        *_, first, second = first_steps("--lr", "0", "--embed-lr", "0", "--dropout", "0.5")
        assert first != second

    def test_weights_decay(self):
        weights = [
            first_steps("--optimizer", "sgd", "--l2", str(l2))[1].weights for l2 in (0.0, 1.0)
        ]
        assert not are_equal(*weights)

    def test_word_vectors_are_where_training_begins(self, treebank, tmp_path):
        vectors = tmp_path / "vectors.txt"
        vectors.write_text("good 1 2 3 4\nbad 5 6 7 8\n", encoding="utf-8")
        args = ["--data", treebank, "--glove", vectors, *TINY, "--embed", "4"]
        settings = parse_settings([str(arg) for arg in args])
        (table,) = jax.tree.leaves(make_program(settings, load_task(settings)).state.table)
        for row in ([1, 2, 3, 4], [5, 6, 7, 8]):
            assert np.any(np.all(np.asarray(table) == row, axis=1))


@pytest.mark.parametrize("name", ["label", "token", "left", "right", "roots"])
def test_data_are_told_apart_by_all_that_trees_are(name):
    task = load_task(parse_settings(["--trees", "8"]))
    changed = dataclasses.replace(task.train, **{name: np.asarray(getattr(task.train, name))[::-1]})
    assert dataclasses.replace(task, train=changed).fingerprint() != task.fingerprint()


def test_no_listops_expression_is_in_two_parts():
    task = load_task(parse_settings(TINY_LISTOPS))
    parts = [set(data.unpack(f, task.vocabulary)) for f in (task.train, task.dev, task.test)]
    assert [len(part) for part in parts] == [32, 6, 6]
    assert len(set.union(*parts)) == 44


def test_an_epoch_is_a_function_of_seed_and_number():
    task = load_task(parse_settings(TINY_LISTOPS))

    def epoch(*args, start=0):
        batches = train_batches(task.train, 8, len(task.vocabulary), *args, start=start)
        return [batch.rows[batch.forest.token].tolist() for batch in batches]

    assert epoch(0, 1) == epoch(0, 1)
    assert epoch(0, 1)[2:] == epoch(0, 1, start=2)
    assert epoch(0, 1) != epoch(0, 2)
    assert epoch(0, 1) != epoch(1, 1)


def test_batches_count_in_their_own_rows():
    task = load_task(parse_settings(TINY_LISTOPS))
    batches = list(train_batches(task.train, 5, len(task.vocabulary), 0, 0))
    assert len({batch.forest.num_nodes for batch in batches}) <= 4
    assert sum(batch.weight.sum() for batch in batches) == 32
    for batch in batches:
        leaves = batch.forest.token[batch.forest.token >= 0]
        assert set(leaves.tolist()) == set(range(len(set(leaves.tolist()))))
        assert (batch.rows[leaves] < len(task.vocabulary)).all()


def test_evaluation_has_one_shape():
    task = load_task(parse_settings(["--trees", "1000"]))
    shape = eval_shape(task.dev, task.test)
    assert shape.trees == 100
    for part in (task.dev, task.test):
        forests = list(eval_batches(part, shape))
        assert {(forest.num_trees, forest.num_nodes) for forest in forests} == {shape}
        labelled = sum((forest.label >= 0).sum() for forest in forests)
        assert labelled == (part.label >= 0).sum()
    small, large = load_task(parse_settings(["--trees", "7"])).dev, task.dev
    assert eval_shape(small, large).trees == 100
    assert len(list(eval_batches(small, eval_shape(small, large)))) == 1


def test_evaluation_has_one_shape_where_the_last_batch_is_not_full(monkeypatch):
    monkeypatch.setattr(_batching, "EVAL_SIZE", 2)
    leaf = data.Tree(0, "a")
    trees = [leaf, leaf, data.Tree(0, None, (leaf, data.Tree(0, None, (leaf, leaf))))]
    forest = data.pack(trees, data.Vocabulary(["a"]))
    batches = list(eval_batches(forest, eval_shape(forest)))
    assert [batch.num_nodes for batch in batches] == [6, 6]


def test_a_batch_that_is_not_full_counts_its_trees(treebank):
    settings = parse_settings(["--data", str(treebank), *TINY])
    task = load_task(settings)
    program = make_program(settings, task)
    losses = [
        float(program.step(jax.tree.map(jnp.copy, program.state), batch)[1])
        for size in (4, 16)
        for batch in train_batches(task.train, size, len(task.vocabulary), 0, 0)
    ]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_accuracies_leave_out_what_has_no_label():
    forest = data.Forest(
        label=np.array([4, 2, 0, -1, 1]),
        token=np.zeros(5, np.int32),
        left=np.full(5, -1),
        right=np.full(5, -1),
        roots=np.array([0, 1, 4, 3]),
    )
    predicted = jnp.eye(5)[jnp.array([3, 2, 0, 1, 4])]
    got = accuracies([count(predicted, forest)] * 2, polar=True)
    assert got == {"root": 1 / 3, "nodes": 2 / 4, "binary": 1 / 2}
