"""How wide waves are, and how much room the calls of an invocation take."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from split import program_of

import jaxrec as jr
from jaxrec.schedule._layout import make_layout
from jaxrec.schedule._widths import widths_of


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
        assert widths_of(program, 1, 400) == (8,)

    def test_many_cells_with_rules_have_a_width_of_one_call(self):
        """What a rule takes in the backward pass is not known: it may call Python."""
        scaled = jax.custom_vjp(lambda k, x: k * x)
        scaled.defvjp(lambda k, x: (k * x, k), lambda k, ct: (None, k * ct))

        @jr.rec_fn
        def turned(x, n):
            def more(k):
                return lambda: scaled(k, turned(x, n - 1) + turned(x, n - 2))

            return jr.cond(n <= 0, lambda: x, lambda: jr.switch(n % 9, list(map(more, range(9)))))

        _, program = program_of(turned, jnp.ones(70), 3)
        assert widths_of(program, 1, 400) == (1, 8)

    def test_many_cells_that_compute_much_have_a_width_of_one_call(self):
        @jr.rec_fn
        def turned(w, x, n):
            def more(k):
                return lambda: w @ (k * turned(w, x, n - 1) + turned(w, x, n - 2))

            return jr.cond(n <= 0, lambda: x, lambda: jr.switch(n % 9, list(map(more, range(9)))))

        _, program = program_of(turned, jnp.eye(64), jnp.ones(64), 3)
        assert widths_of(program, 1, 400) == (1, 8)

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
        pairs = zip(program.cells, layout.cell_rows, strict=True)
        most = {spec.cell.name: rows - 2 * layout.pad for spec, rows in pairs}
        assert sum(fired.values()) == schedule.rows
        assert all(fired[name] <= most[name] for name in fired), (fired, most)
        if kind == "mapped":  # 101 of more than 12,000 calls map over a hundred
            assert fired["mapped.0"] == most["mapped.0"] == 101

    def test_values_take_little_memory(self):
        fun = self.mapped(300).with_options(max_calls=120_000)
        memory = jax.jit(fun).lower(1.0, 2).compile().memory_analysis()
        assert memory is not None and memory.temp_size_in_bytes < 50e6
