"""Which cells have one call of a root ready at a time."""

from __future__ import annotations

import jax.numpy as jnp
from split import program_of
from zoo import normal

import jaxrec as jr
from jaxrec.schedule._layout import make_layout


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
