"""The split into planes: what is outer, control or a cell, and how many calls there can be."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zoo_all
from zoo import JAXREC, PYTHON, forest, normal, roots
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec.schedule._layout import make_layout, widths_of
from jaxrec.split._scalar import DTYPES, OPCODES


def program_of(fun, *args):
    return fun.graph(*args), fun._invocation(*fun._bind(args, {})).program


def names_of(program, positions):
    return [program.graph.entry.param_names[k] for k in positions]


class TestCosts:
    @staticmethod
    def turns(length):
        @jr.rec_fn
        def turned(w, x, n):
            def more():
                y = jax.lax.fori_loop(0, length, lambda _, y: jnp.tanh(w @ y), x)
                return turned(w, y, n - 1) + turned(w, y, n - 2)

            return jr.cond(n <= 0, lambda: x, more)

        return program_of(turned, jnp.eye(64), jnp.ones((64, 64)), 2)[1]

    def test_a_loop_costs_what_its_turns_cost(self):
        once, often = self.turns(1), self.turns(50)
        assert 40 < often.row_flops / once.row_flops < 60
        assert often.shared_elements == once.shared_elements

    def test_waves_that_compute_for_long_are_narrow(self):
        once, often = self.turns(1), self.turns(1000)
        assert widths_of(once, 64, 1 << 14)[-1] == 256
        assert widths_of(often, 64, 1 << 14) == (1, 2, 4)

    @pytest.mark.parametrize(
        ("lanes", "widths"), [(1, (1, 64, 256)), (3, (1, 4, 256)), (30, (1, 32, 256))]
    )
    def test_a_few_roots_have_a_width(self, lanes, widths):
        assert widths_of(self.turns(1), lanes, 1 << 14) == widths

    def test_a_width_that_saves_nothing_is_not_compiled(self):
        @jr.rec_fn
        def count(x, n):
            def more():
                return jnp.sin(count(x, n - 1)) + count(x, n - 2)

            return jr.cond(n <= 0, lambda: x, more)

        _, program = program_of(count, jnp.ones(2), 3)
        assert widths_of(program, 1, 100) == (1, 16)

    def test_many_cells_have_two_widths(self):
        @jr.rec_fn
        def turned(x, n):
            def more(k):
                return lambda: jnp.sin(k * turned(x, n - 1) + turned(x, n - 2))

            return jr.cond(n <= 0, lambda: x, lambda: jr.switch(n % 9, list(map(more, range(9)))))

        _, program = program_of(turned, jnp.ones(40), 3)
        assert widths_of(program, 1, 1 << 14) == (1, 32)
        assert widths_of(program, 64, 1 << 14) == (1, 64)

    @pytest.mark.parametrize("nests", [False, True])
    def test_waves_of_a_recursion_in_a_cell_have_two_widths(self, nests):
        @jr.rec_fn
        def power(x, n):
            return jr.cond(n == 0, lambda: jnp.sum(x**3), lambda: power(jnp.cos(x), n - 1))

        @jr.rec_fn
        def descend(x, n):
            moved = jax.grad(power)(x, 3) if nests else jnp.sin(x)

            def more():
                return descend(x - moved, n - 1) + descend(x + moved, n - 2)

            return jr.cond(n <= 0, lambda: x, more)

        _, program = program_of(descend, jnp.ones(40), 3)
        assert program.nests == nests
        assert widths_of(program, 1, 1 << 14) == ((1, 64) if nests else (1, 64, 256))
        assert widths_of(program, 1, 2) == (1, 2)

    @pytest.mark.parametrize(("lanes", "widths"), [(1, [1, 4, 4, 16]), (3, [4, 16, 16, 16])])
    def test_waves_are_no_wider_than_all_calls_of_a_cell(self, lanes, widths):
        @functools.partial(jr.rec_fn, static_argnums=1)
        def halves(x, n):
            if n == 0:
                return jnp.sin(x)
            return jnp.cos(halves(x[:n], n - 1)).sum() + x * halves(x[-n:], n - 1).sum()

        _, program = program_of(halves, jnp.ones(40), 3)
        layout = make_layout(program, lanes, 1 << 14, widths=(1, 4, 16))
        last = {spec.cell.function: spec.cell.index for spec in program.cells}
        assert [layout.widths_of(cell)[-1] for cell in last.values()] == widths


class TestFirings:
    """How often a cell fires at most, of so many calls in all."""

    @staticmethod
    def mapped(lanes):
        xs = jnp.linspace(0, 1, lanes)

        @jr.rec_fn
        def mapped(x, n):
            def more():
                return jnp.sum(jax.vmap(lambda s: mapped(x * s, n - 1))(xs))

            return jr.cond(n == 0, lambda: x, more)

        return mapped

    @staticmethod
    def sums():
        @jr.rec_fn
        def log(x):
            return jnp.log(x)

        @jr.rec_fn
        def sums(x, n):
            y = log(x)

            def more():
                return jnp.tanh(sums(x + y, n - 1)) + sums(x, n - 2) * odd(x, n - 1)

            return jr.cond(n <= 0, lambda: x, more)

        @jr.rec_fn
        def odd(x, n):
            return sums(x, n - 1) + log(x + 1)

        return sums

    @pytest.mark.parametrize("kind", ["mapped", "sums"])
    def test_are_no_fewer_than_there_are(self, kind):
        fun = self.mapped(100) if kind == "mapped" else self.sums()
        args = jnp.ones(70) if kind == "sums" else 1.0, 2 if kind == "mapped" else 7
        _, program = program_of(fun, *args)
        schedule = fun.schedule(*args)
        layout = make_layout(program, 1, schedule.num_calls)
        fired = {spec.cell.name: 0 for spec in program.cells}
        for wave in schedule.waves:
            fired[wave.cell] += wave.count
        most = {spec.cell.name: layout.fires[spec.cell.index] for spec in program.cells}
        assert sum(fired.values()) == schedule.rows
        assert all(fired[name] <= most[name] for name in fired), (fired, most)
        if kind == "mapped":  # 101 of more than 12,000 calls map over a hundred
            assert fired["mapped.0"] == most["mapped.0"] == 101

    def test_values_take_little_memory(self):
        fun = self.mapped(300).with_options(max_calls=120_000)
        memory = jax.jit(fun).lower(1.0, 2).compile().memory_analysis()
        assert memory is not None and memory.temp_size_in_bytes < 50e6


class TestReady:
    """Calls of one root that run one after the other need no wider waves than there are roots."""

    W, X = jnp.eye(3), jnp.ones(3)

    def widest(self, fun, *args, lanes=1):
        """The widest waves of each cell."""
        _, program = program_of(fun, *args)
        layout = make_layout(program, lanes, 1 << 14)
        return [layout.widths_of(spec.cell.index)[-1] for spec in program.cells]

    def test_results_that_follow_from_results(self):
        @jr.rec_fn
        def fold(w, x, n):
            return jr.cond(n < 0, lambda: jnp.sin(x), lambda: jnp.tanh(w @ fold(w, x, n - 1)))

        for lanes, widest in ((1, 1), (3, 4), (64, 64)):
            assert self.widest(fold, self.W, self.X, 4, lanes=lanes) == [widest] * 2

    def test_arguments_that_follow_from_arguments(self):
        @jr.rec_fn
        def down(w, x, n):
            return jr.cond(n == 0, lambda: x, lambda: down(w, jnp.tanh(w @ x), n - 1))

        assert set(self.widest(down, self.W, self.X, 4)) == {1}

    def test_functions_that_call_each_other(self):
        @jr.rec_fn
        def even(w, x, n):
            return jr.cond(n == 0, lambda: x, lambda: jnp.sin(odd(w, w @ x, n - 1)))

        @jr.rec_fn
        def odd(w, x, n):
            def more():
                return jr.cond(n % 3 == 0, lambda: even(w, x, n - 1), lambda: odd(w, -x, n - 1))

            return jr.cond(n <= 0, lambda: x, more)

        @jr.rec_fn
        def outer(w, x, n):
            return jnp.cos(even(w, jnp.sin(w @ x), n)) + w @ jnp.cos(x)

        assert set(self.widest(outer, self.W, self.X, 4)) == {1}

    def test_several_chains(self):
        @jr.rec_fn
        def fold(w, x, n):
            return jr.cond(n < 0, lambda: x, lambda: jnp.tanh(w @ fold(w, x, n - 1)))

        @jr.rec_fn
        def thrice(w, x, n):
            return fold(w, x, n) + fold(w, 2 * x, n + 1) + fold(w, 3 * x, n - 1)

        assert max(self.widest(thrice, self.W, self.X, 4)) == 4

    def test_control_that_is_computed(self):
        @jr.rec_fn
        def until(w, x):
            return jr.cond(jnp.sum(x) > 9.0, lambda: x, lambda: until(w, x + w @ x))

        assert set(self.widest(until, self.W, self.X)) == {1}

    def test_two_calls(self):
        @jr.rec_fn
        def both(w, x, n):
            def more():
                return both(w, w @ x, n - 1) + both(w, x, n - 2)

            return jr.cond(n <= 0, lambda: x, more)

        assert min(self.widest(both, self.W, self.X, 4)) == 256

    def test_what_a_call_computes_from_no_other(self):
        @jr.rec_fn
        def sums(w, xs, n):
            def more():
                return jnp.tanh(w @ xs[n]) + jnp.sin(sums(w, xs, n - 1))

            return jr.cond(n < 0, lambda: xs[0], more)

        xs = normal(1, 5, 3)
        assert sorted(self.widest(sums, self.W, xs, 4)) == [1, 1, 256]
        waves = sums.schedule(self.W, xs, 4).waves
        assert sorted(wave.count for wave in waves) == [1, 1, 1, 1, 1, 1, 5]

    def test_functions_that_are_called_along_a_chain(self):
        @jr.rec_fn
        def step(w, x):
            return jnp.tanh(w @ x)

        @jr.rec_fn
        def fold(w, xs, n):
            def more():
                return step(w, jnp.sin(step(w, fold(w, xs, n - 1))))

            return jr.cond(n < 0, lambda: xs[0], more)

        @jr.rec_fn
        def sums(w, xs, n):
            def more():
                return step(w, xs[n]) + jnp.sin(sums(w, xs, n - 1))

            return jr.cond(n < 0, lambda: xs[0], more)

        xs = normal(1, 5, 3)
        assert max(self.widest(fold, self.W, xs, 4)) == 2
        assert max(self.widest(sums, self.W, xs, 4)) == 256

    def test_a_chain_in_each_call_of_another(self):
        @jr.rec_fn
        def inner(w, x, n):
            return jr.cond(n < 0, lambda: x, lambda: jnp.tanh(w @ inner(w, x, n - 1)))

        @jr.rec_fn
        def outer(w, xs, n):
            def more():
                return inner(w, xs[n], n) + jnp.sin(outer(w, xs, n - 1))

            return jr.cond(n < 0, lambda: xs[0], more)

        assert max(self.widest(outer, self.W, normal(1, 5, 3), 4)) == 256

    def test_what_a_call_computes_from_a_result_that_is_ready(self):
        @jr.rec_fn
        def first(w, x, n):
            def more():
                made, _ = first(w, 2 * x, n - 1)
                return x, jnp.tanh(w @ made)

            return jr.cond(n == 0, lambda: (x, x), more)

        assert max(self.widest(first, self.W, self.X, 4)) == 256


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
