"""The split into planes: what is outer, control or a cell, and how many calls there can be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo_all
from split import program_of
from zoo import JAXREC, PYTHON, forest, normal, roots
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec.split._scalar import DTYPES, OPCODES


def names_of(program, positions):
    return [program.graph.entry.param_names[k] for k in positions]


class TestPlanes:
    def test_tree_network(self):
        _, program = program_of(tree_rnn(JAXREC), weights(), forest(), 0)
        assert names_of(program, program.control) == ["i"]
        assert names_of(program, program.data) == []
        assert len(program.outers) == 6
        assert len(program.cells) == 2

    def test_data_that_is_carried_down(self):
        example = zoo_all.PROGRAMS["top_down"]
        _, program = program_of(example.build(JAXREC), *example.args)
        assert names_of(program, program.data) == ["h"]
        assert names_of(program, program.control) == ["i"]

    def test_scalar_of_both_planes(self):
        example = zoo_all.PROGRAMS["float_control"]
        _, program = program_of(example.build(JAXREC), *example.args)
        assert names_of(program, program.control) == names_of(program, program.data) == ["step"]

    def test_argument_that_some_call_changes_is_not_outer(self):
        @jr.rec_fn
        def f(w, v, n):
            return jr.cond(n == 0, lambda: w + v, lambda: f(w, 2 * v, n - 1))

        _, program = program_of(f, jnp.ones(2), jnp.ones(2), 3)
        assert [program.graph.entry.params.index(v) for v in program.outers] == [0]
        assert names_of(program, program.data) == ["v"]

    def test_outer_values_through_mutual_recursion(self):
        example = zoo_all.PROGRAMS["first_child_next_sibling"]
        _, program = program_of(example.build(JAXREC), *example.args)
        assert len(program.outers) == 4

    def test_swapped_arguments_are_not_outer(self):
        @jr.rec_fn
        def f(a, b, n):
            return jr.cond(n == 0, lambda: a - b, lambda: f(b, a, n - 1))

        _, program = program_of(f, jnp.ones(2), jnp.ones(2), 3)
        assert not program.outers
        assert f(jnp.ones(2), jnp.zeros(2), 3).tolist() == [-1, -1]

    def test_result_that_is_passed_on_needs_no_cell(self):
        example = zoo_all.PROGRAMS["leftmost"]
        _, program = program_of(example.build(JAXREC), *example.args)
        assert len(program.cells) == 1

    def test_cells_are_cut_only_where_calls_are(self):
        example = zoo_all.PROGRAMS["work_between_calls"]
        _, program = program_of(example.build(JAXREC), *example.args)
        assert len(program.cells) == 4  # a leaf; before, between and after two calls


class TestBounds:
    """Capacity that follows from the arguments, so that `jit` needs no `max_calls`."""

    def run(self, fun, *args):
        return jax.jit(fun)(*args)

    def test_calls_on_no_node(self):
        @jr.rec_fn
        def f(tree, i):
            def node():
                return 1 + f(tree, tree.left[i]) + f(tree, tree.right[i])

            return jr.cond(i < 0, lambda: 0, node)

        tree = forest()
        assert int(self.run(f, tree, 0)) == 9
        sums = self.run(jax.vmap(f, (None, 0)), tree, roots())
        assert sums.tolist() == [9, 1, 15]

    def test_function_around_a_recursion(self):
        inner = tree_rnn(JAXREC)

        @jr.rec_fn
        def f(w, tree, i):
            return inner(w, tree, i) + inner(w, tree, tree.left[i])

        got = self.run(f, weights(), forest(), 0)
        plain = tree_rnn(PYTHON)
        tree = forest()
        want = plain(weights(), tree, 0) + plain(weights(), tree, int(tree.left[0]))
        np.testing.assert_allclose(got, want, rtol=1e-5)

    def test_nodes_of_captured_and_derived_arrays(self):
        following = jnp.array([3, 0, -1, 2])

        @jr.rec_fn
        def f(shift, i):
            after = following + shift
            return jr.cond(after[i] < 0, lambda: i, lambda: f(shift, after[i]))

        assert int(self.run(f, jnp.int32(0), 1)) == 2

    def test_helper_that_is_called_twice_a_node(self):
        @jr.rec_fn
        def helper(x):
            return jnp.sin(x)

        @jr.rec_fn
        def f(x, tree, i):
            def node():
                left, right = f(x, tree, tree.left[i]), f(x, tree, tree.right[i])
                return helper(left) * helper(right) + helper(x)

            return jr.cond(tree.left[i] < 0, lambda: x * tree.token[i], node)

        with jr.executor("reference"):
            want = f(0.3, forest(), 10)
        np.testing.assert_allclose(self.run(f, 0.3, forest(), 10), want, rtol=1e-5)

    def test_an_index_that_nothing_follows_from_counts_no_nodes(self):
        @jr.rec_fn
        def f(labels, tree, i, label):
            def node():
                below = [f(labels, tree, tree[side][i], tree["label"][i]) for side in ("l", "r")]
                return labels[label] + below[0] * below[1]

            return jr.cond(tree["l"][i] < 0, lambda: labels[label], node)

        tree = {"l": jnp.array([1, -1, -1]), "r": jnp.array([2, -1, -1])}
        tree["label"] = jnp.array([40, 0, 0])
        labels = jnp.arange(50.0)
        run = jr.collect(f, in_axes=None)
        value, calls = jax.jit(run)(labels, tree, 0, 3)
        assert float(value) == 3.0 + 40.0 * 40.0
        assert calls.valid.shape == (3,)

    def test_counters_have_no_bound(self):
        example = zoo_all.PROGRAMS["power"]
        fun = example.build(JAXREC).with_options(max_calls=None)
        of = jax.grad(lambda x, n: fun(x, n).sum())
        _, n = example.args
        with pytest.raises(jr.CapacityError, match="must be bounded"):
            jax.jit(of)(jnp.ones(9), n)


OPERATIONS = {
    "arithmetic": lambda n: (n * 7 - 3) // 2 % 11,
    "negative_division": lambda n: (-n - 5) // 3 + (-n) % 4,
    "bits": lambda n: ((n << 3) ^ (n >> 1)) & 0b1011011 | 4,
    "comparison": lambda n: jnp.where((n > 2) & ~(n == 5), n, n + 20),
    "clip": lambda n: jnp.clip(n, 2, 6) + jnp.abs(-n) + jnp.sign(n),
    "power": lambda n: n**3 + n**2,
    "extremes": lambda n: jnp.maximum(n, 4) - jnp.minimum(n, 3),
    "convert": lambda n: (n.astype(jnp.float32) * 1.7 + 0.5).astype(jnp.int32),
    "square_root": lambda n: jnp.floor(jnp.sqrt(n.astype(jnp.float32) * 3)).astype(jnp.int32),
    "rounding": lambda n: jnp.round(n.astype(jnp.float32) / 4 + jnp.ceil(n / 3)).astype(jnp.int32),
    "narrow": lambda n: (n.astype(jnp.int8) * jnp.int8(50)).astype(jnp.int32),
    "unsigned": lambda n: (n.astype(jnp.uint8) - jnp.uint8(9)).astype(jnp.int32),
    "small_array": lambda n: jnp.stack([n, 2 * n, n - 1])[::-1].sum() + jnp.arange(4).max(),
    "reductions": lambda n: jnp.array([1, 2, 3]).prod() + jnp.stack([n, 5]).min(),
    "population": lambda n: jax.lax.population_count(n) + jax.lax.clz(n),
    "selection": lambda n: jax.lax.select_n(n % 3, n, n + 7, n * 2),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_control_machine_computes_what_jax_does(name):
    """A recursion whose depth is a computed scalar, over all small arguments."""
    compute = OPERATIONS[name]

    @jr.rec_fn
    def count(n, at):
        return jr.cond(at >= jnp.abs(compute(n)), lambda: 0, lambda: 1 + count(n, at + 1))

    for n in range(1, 12, 2):
        want = int(jnp.abs(compute(jnp.int32(n))))
        assert count.schedule(jnp.int32(n), 0).num_calls == want + 1


def test_codes_are_those_of_the_core():
    assert DTYPES["float32"] == 9 and DTYPES["bool"] == 0
    assert len(set(OPCODES.values())) == len(OPCODES)


def test_control_reads_scalars_of_every_type():
    for dtype in (jnp.int8, jnp.int16, jnp.int32, jnp.uint8, jnp.uint16, jnp.uint32, jnp.float32):
        limits = jnp.array([3, 5], dtype)

        @jr.rec_fn
        def count(at, limits=limits):
            return jr.cond(at >= limits[1], lambda: 0, lambda: 1 + count(at + 1, limits))

        assert int(count(dtype(0))) == 5


def test_what_a_choice_of_a_cell_reads_is_on_no_tape():
    """A choice without calls is a part of the cell, its branches too."""

    @jr.rec_fn
    def power(w, x, n):
        def node():
            y = w @ power(w, x, n - 1)
            z = jnp.sin(y)
            return jax.lax.cond(z.sum() > 0, lambda: y + z, lambda: y - 1)

        return jr.cond(n <= 0, lambda: x, node)

    program = program_of(power, jnp.eye(2), jnp.ones(2), 3)[1]
    assert [len(spec.outputs) for spec in program.cells] == [1, 1]
    assert len(program.classes) == 1


def test_integer_results_of_cells_are_not_control():
    """An index that a cell computes may be a result, and may not decide about calls."""

    @jr.rec_fn
    def best(scores, tree, i):
        def node():
            a, b = best(scores, tree, tree.left[i]), best(scores, tree, tree.right[i])
            return jnp.where(scores[a] > scores[b], a, b)

        return jr.cond(tree.left[i] < 0, lambda: i, node)

    tree, scores = forest(), normal(3, 25)
    leaves = [k for k in range(9) if tree.left[k] < 0]
    assert int(best(scores, tree, 0)) == max(leaves, key=lambda k: float(scores[k]))


@pytest.mark.parametrize("name", ["even_steps", "import_in_branch", "memo_computed_index"])
def test_a_program_becomes_the_same_text_each_time(name):
    """What JAX keeps of compiled programs, across processes too, is found by their text."""
    program, texts = zoo_all.PROGRAMS[name], set()
    for _ in range(6):
        texts.add(jax.jit(program.build(JAXREC)).lower(*program.args).as_text())
    assert len(texts) == 1
