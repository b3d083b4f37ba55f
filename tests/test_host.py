"""Executor "host": the same results as the others, in eager calls and transformations."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import zoo_all
import zoo_modes
from zoo import JAXREC, PYTHON, assert_close, forest, loss, normal, random_trees, roots
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec.executors.host import _tasks
from jaxrec.executors.host._tasks import TaskList

RNN = tree_rnn(JAXREC)
PLAIN = tree_rnn(PYTHON)


@pytest.fixture
def args():
    return weights(), forest(), 0


def value(w, tree, i):
    return loss(RNN(w, tree, i))


def plain(w, tree, i):
    return loss(PLAIN(w, tree, i))


def batched(w, tree):
    return loss(jax.vmap(RNN, (None, None, 0))(w, tree, roots()))


class TestZoo:
    @pytest.mark.parametrize(("name", "workers"), [("tree_lstm", 2), ("top_down", 4)])
    def test_gradient_of_a_batch(self, name, workers):
        example = zoo_all.PROGRAMS[name]
        with example.precision(), jr.executor("host", workers=workers):
            got, want = zoo_modes.grad_vmap(example)
        assert_close(got, want, 10 * example.rtol)

    def test_gradients_of_lanes(self):
        example = zoo_all.PROGRAMS["children_by_row"]
        with jr.executor("host", workers=2):
            got, want = zoo_modes.vmap_grad(example)
        assert_close(got, want, 10 * example.rtol)


@jr.rec_fn
def fib(n):
    return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))


@jr.rec_fn
def ack(m, n):
    def step():
        return jr.cond(n == 0, lambda: ack(m - 1, 1), lambda: ack(m - 1, ack(m, n - 1)))

    return jr.cond(m == 0, lambda: n + 1, step)


class TestScalars:
    """What the machine for scalars runs has no waves, on executor "host" neither."""

    @pytest.mark.parametrize("workers", [1, 2])
    def test_values(self, workers):
        before = fib.cache_info().compilations
        with jr.executor("host", workers=workers):
            assert int(fib(24)) == 46368
            assert jax.vmap(fib)(jnp.arange(6)).tolist() == [0, 1, 1, 2, 3, 5]
            assert int(ack(2, 5)) == 13
        assert fib.cache_info().compilations == before

    def test_gradient(self):
        @jr.rec_fn
        def power(x, n):
            return jr.cond(n == 0, lambda: jnp.float32(1), lambda: x * power(x, n - 1))

        with jr.executor("host", workers=2):
            assert float(jax.grad(power)(jnp.float32(1.5), 4)) == pytest.approx(4 * 1.5**3)

    def test_bound(self):
        with (
            jr.executor("host"),
            pytest.raises(jr.CapacityError, match="max_calls is 10"),
        ):
            fib.with_options(max_calls=10)(12)

    def test_nan(self):
        @jr.rec_fn
        def inverse(x, n):
            return jr.cond(n == 0, lambda: x, lambda: 0 * (1 / inverse(x, n - 1)))

        message = {"host": r"Call path: inverse -> inverse", "graph": r"\(nan\) in the result of"}
        for name in ("host", "graph"):
            with (
                jr.executor(name),
                jax.debug_nans(True),
                pytest.raises(FloatingPointError, match=message[name]),
            ):
                inverse(jnp.float32(0), 3)

    def test_profile(self, tmp_path):
        with jr.executor("host", workers=2):
            profile = fib.profile(8)
        assert profile.on_machine and "run by the machine for scalars" in str(profile)
        assert sum(cell.calls for cell in profile.cells) == profile.schedule.num_calls
        profile.save_trace(tmp_path / "trace.json")
        assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


class TestTransformations:
    def test_value_and_grad(self, args):
        with jr.executor("host"):
            got = jax.value_and_grad(value)(*args)
        assert_close(got, jax.value_and_grad(plain)(*args), 1e-4)

    def test_vjp_pulled_back_twice(self, args):
        w, tree, i = args
        with jr.executor("host"):
            out, pull = jax.vjp(lambda w: RNN(w, tree, i), w)
            first, second = pull(out), pull(2 * out)
        want, plain_pull = jax.vjp(lambda w: PLAIN(w, tree, i), w)
        assert_close(out, want, 1e-5)
        assert_close((first, second), (plain_pull(want), plain_pull(2 * want)), 1e-4)

    @pytest.mark.slow
    @pytest.mark.parametrize("jacobian", [jax.jacrev, jax.jacfwd])
    def test_jacobians(self, jacobian):
        tree, leaves = forest(), normal(1, 6, 2)
        rest = {"kernel": normal(2, 4, 2), "bias": normal(3, 2)}

        def of(fun):
            return jacobian(lambda x: fun({"embed": x, **rest}, tree, 9))(leaves)

        with jr.executor("host"):
            got = of(RNN)
        assert_close(got, of(PLAIN), 1e-4)

    @pytest.mark.exhaustive
    def test_hessian(self, args):
        w, tree, _ = args

        def of(fun):
            return jax.hessian(lambda b: fun({**w, "bias": b}, tree, 10))(w["bias"])

        with jr.executor("host"):
            got = of(value)
        assert_close(got, of(plain), 1e-3)

    def test_checkpoint(self, args):
        with jr.executor("host"):
            got = jax.grad(jax.checkpoint(value))(*args)
        assert_close(got, jax.grad(plain)(*args), 1e-4)

    def test_eval_shape(self, args):
        with jr.executor("host"):
            types = jax.eval_shape(jax.grad(value), *args)
        assert types["bias"].shape == (3,)

    @pytest.mark.slow
    def test_optax(self, args):
        w, tree, _ = args
        optimizer = optax.adam(1e-2)

        def train():
            current, state = w, optimizer.init(w)
            for _ in range(3):
                updates, state = optimizer.update(jax.grad(batched)(current, tree), state)
                current = optax.apply_updates(current, updates)
            return current

        with jr.executor("host", workers=2):
            got = train()
        assert_close(got, train(), 1e-4)

    @pytest.mark.slow
    def test_collect(self, args):
        w, tree, _ = args

        def run(w):
            return jr.collect(RNN, (None, None, 0))(w, tree, roots())

        want, want_calls = run(w)
        with jr.executor("host"):
            got, calls = run(w)
            got_grad = jax.grad(lambda w: loss(run(w)[1].results))(w)
        assert_close((got, calls), (want, want_calls), 1e-5)
        assert_close(got_grad, jax.grad(lambda w: loss(run(w)[1].results))(w), 1e-4)

    def test_arguments_with_gradients(self):
        @jr.rec_fn
        def power(x, n):
            return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

        with jr.executor("host"):
            assert float(jax.grad(power)(jnp.float32(1.5), 4)) == pytest.approx(4 * 1.5**3)


class TestUnderJit:
    def test_it_names_executor_graph(self, args):
        with jr.executor("host"):
            with pytest.raises(jr.UnsupportedError, match=r'Use jr\.executor\("graph"\) there'):
                jax.jit(RNN)(*args)
            with pytest.raises(jr.UnsupportedError, match="tree_rnn was called under jit"):
                jax.jit(jax.grad(value))(*args)

    @pytest.mark.parametrize("options", [{}, {"memo": True}, {"max_calls": 100}])
    def test_scalars(self, options):
        f = fib.with_options(**options)
        with (
            jr.executor("host"),
            pytest.raises(jr.UnsupportedError, match=r"fib was called under jit"),
        ):
            jax.jit(f)(5)

    def test_the_same_function_compiles_afterwards(self, args):
        with jr.executor("host"):
            got = RNN(*args)
        assert_close(jax.jit(RNN)(*args), got, 1e-5)


class TestBounds:
    @pytest.mark.parametrize("transform", [lambda f: f, jax.grad])
    def test_a_declared_one_holds(self, args, transform):
        bounded = RNN.with_options(max_calls=2)
        run = transform(lambda w: loss(bounded(w, *args[1:])))
        with jr.executor("host"), pytest.raises(jr.CapacityError, match="but max_calls is 2"):
            run(args[0])

    @pytest.mark.slow
    def test_no_bound_is_needed_under_vmap_of_grad(self):
        @jr.rec_fn
        def collatz(x, n):
            def odd():
                return x * collatz(x, 3 * n + 1)

            def even():
                return x + collatz(x, n // 2)

            return jr.cond(n == 1, lambda: x, lambda: jr.cond(n % 2 == 0, even, odd))

        def plain_collatz(x, n):
            if n == 1:
                return x
            return x + plain_collatz(x, n // 2) if n % 2 == 0 else x * plain_collatz(x, 3 * n + 1)

        numbers, x = [6, 7, 9], jnp.float32(0.5)
        with jr.executor("host"):
            got = jax.vmap(jax.grad(collatz), (None, 0))(x, jnp.asarray(numbers))
        want = jnp.stack([jax.grad(plain_collatz)(x, n) for n in numbers])
        assert_close(got, want, 1e-4)

    def test_a_second_call_compiles_nothing(self, args):
        f = tree_rnn(JAXREC)
        w, tree, _ = args
        with jr.executor("host"):
            f(w, tree, 0)
            first = f.cache_info()
            f(jax.tree.map(lambda x: 2 * x, w), tree, 0)
        assert f.cache_info() == first and first.compilations > 1

    def test_other_numbers_of_calls_compile_little(self, caplog):
        f, (tree, (root,)) = tree_rnn(JAXREC), random_trees(np.random.default_rng(0), [40])
        gradient = jax.grad(lambda w, i: loss(jax.vmap(f, (None, None, 0))(w, tree, i)))
        with jr.executor("host"):
            of_size = {f.schedule(weights(), tree, i).num_calls: i for i in range(len(tree.left))}
            compiled, programs = [], []
            for size in sorted(of_size):
                several = jnp.array([root, root, of_size[size]])
                with jax.log_compiles(), caplog.at_level("WARNING"):
                    gradient(weights(), several)
                compiled.append(f.cache_info().compilations)
                programs.append(sum("Compiling" in message for message in caplog.messages))
        assert len(of_size) > 8
        assert compiled[-1] - compiled[3] < 4
        # Nor does JAX for other arrays.
        assert programs[-1] - programs[3] == compiled[-1] - compiled[3]

    def test_tapes_grow_together_and_by_much(self):
        f, (tree, _) = tree_rnn(JAXREC), random_trees(np.random.default_rng(0), [150])
        with jr.executor("host"):
            of_size = {f.schedule(weights(), tree, i).num_calls: i for i in range(len(tree.left))}
            compiled = []
            for least in (20, 40, 80, 200):
                i = of_size[min(size for size in of_size if size >= least)]
                jax.grad(lambda w, i=i: loss(f(w, tree, i)))(weights())
                compiled.append(f.cache_info().compilations)
        assert compiled[-1] < 1.5 * compiled[0]


@jr.rec_fn
def damped(x, n):
    return jr.cond(n == 0, lambda: x, lambda: 0.999 * damped(x, n - 1))


class TestLength:
    def test_tapes_hold_what_is_alive(self):
        with jr.executor("host"):
            profile = damped.profile(jnp.ones(8), 6_000)
        # Two values a call would be 384,000 bytes.
        assert profile.value_bytes < 100_000

    def test_tapes_of_large_residuals_hold_little_more_than_those(self):
        @jr.rec_fn
        def f(w, n):
            def product():
                below = f(w, n - 1)
                square = jnp.outer(w, w) * below
                return jnp.sum(jnp.tanh(square @ square))

            return jr.cond(n < 1, lambda: w.sum(), product)

        w = jnp.linspace(0, 1, 300)
        with jr.executor("host"):
            pullback = jax.vjp(lambda w: f(w, 5), w)[1]
        kept = sum(x.nbytes for x in jax.tree.leaves(pullback))
        assert 64 < kept / (4 * w.size**2) < 200  # matrices

    @pytest.mark.parametrize(("limit", "least"), [("_MOST_TASKS", 20), ("_MOST_WORDS", 2000)])
    def test_lists_of_tasks_are_run_in_parts(self, limit, least, monkeypatch):
        lengths = []
        run = TaskList.run

        def counted(self, *args):
            lengths.append(len(self.labels))
            return run(self, *args)

        monkeypatch.setattr(TaskList, "run", counted)
        monkeypatch.setattr(_tasks, limit, least)
        with jr.executor("host"):
            of = jax.value_and_grad(lambda x: damped(x, 2500).sum())
            value, gradient = of(jnp.full(9, 2.0))
        want = jnp.full(9, 0.999**2500)
        assert_close((value, gradient), (2 * want.sum(), want), 1e-3)
        assert len(lengths) > 4 and max(lengths) < 100


@jr.rec_fn
def chain(w, x, n):
    return jr.cond(n == 0, lambda: x, lambda: jnp.tanh(w @ chain(w, x, n - 1)))


@jr.rec_fn
def sink(x, n):
    return jr.cond(n == 0, lambda: x, lambda: jnp.sqrt(sink(x, n - 1) - 0.3))


def chains(w, x):
    return jnp.sum(jax.vmap(chain, (None, 0, 0))(w, x, jnp.arange(30, 34)))


class TestRuns:
    """Waves that follow one another in a domain are launched together."""

    @pytest.mark.parametrize("workers", [1, 2])
    def test_fewer_launches_than_waves(self, workers):
        w, x = 0.5 * jnp.eye(8), jnp.ones((4, 8))
        labels = []
        add = TaskList.add

        def watched(self, label, *args, **kwargs):
            labels.append(label)
            return add(self, label, *args, **kwargs)

        want = jax.value_and_grad(chains, (0, 1))(w, x)
        with pytest.MonkeyPatch.context() as patch, jr.executor("host", workers=workers):
            patch.setattr(TaskList, "add", watched)
            got = jax.value_and_grad(chains, (0, 1))(w, x)
        assert_close(got, want, 1e-5)
        forward = [a for a in labels if a.wave >= 0 and not a.name.endswith("backward")]
        backward = [a for a in labels if a.wave >= 0 and a.name.endswith("backward")]
        # 33 levels of at most four calls, and the ends.
        assert 3 <= len(forward) <= 12 and 3 <= len(backward) <= 12
        assert sum(a.calls for a in forward) == 30 + 31 + 32 + 33 + 4

    def test_single_waves_where_somebody_looks_at_them(self):
        w, x = 0.5 * jnp.eye(8), jnp.ones((4, 8))
        with jr.executor("host"):
            profile = chain.profile(w, x[0], 40)
        cells = [x for x in profile.launches if x.name in ("chain.0", "chain.1")]
        assert [x.calls for x in cells] == [1] * 41
        with (
            jr.executor("host"),
            jax.debug_nans(True),
            pytest.raises(FloatingPointError, match=r"made by cell sink\.0 of sink\. Call path"),
        ):
            sink(jnp.ones(3), 20)

    def test_cells_that_call_python_are_launched_one_by_one(self):
        seen = []

        def host(x):
            seen.append(float(x))
            if len(seen) == 7:
                raise ValueError("the seventh")
            return np.float32(x)

        @jr.rec_fn
        def called(x, n):
            def below():
                shape = jax.ShapeDtypeStruct((), jnp.float32)
                y = jax.pure_callback(host, shape, x, vmap_method="sequential")
                return called(y + 1, n - 1)

            return jr.cond(n == 0, lambda: x, below)

        with (
            jr.executor("host"),
            pytest.raises(jr.JaxRecError, match=r"the seventh.*Wave 6, 1"),
        ):
            called(jnp.float32(0), 20)


def none_overlap(events):
    """Whether the events of each lane follow one another."""
    last = {}
    for event in sorted(events, key=lambda e: e["ts"]):
        lane = event["pid"], event["tid"]
        if event["ts"] < last.get(lane, 0) - 0.01:  # a hundredth of a microsecond, for rounding
            return False
        last[lane] = event["ts"] + event["dur"]
    return True


class TestProfile:
    def test_workers_and_launches(self, args, tmp_path):
        with jr.executor("host", workers=2, policy="split"):
            profile = RNN.profile(*args)
        assert profile.executor == "host"
        assert sum(cell.calls for cell in profile.cells) == profile.schedule.num_calls
        assert len(profile.workers) == 2
        assert sum(worker.launches for worker in profile.workers) == len(profile.launches)
        assert "worker  launches  stolen" in str(profile)
        assert "tree_rnn.0 backward" in str(profile)
        assert {"tree_rnn.1 contraction", "cotangent tapes"} <= {x.name for x in profile.backward}
        profile.save_trace(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
        assert {"worker 0", "worker 1"} <= lanes
        names = {e["name"] for e in events if e["ph"] == "X"}
        assert {"tree_rnn.0", "tree_rnn.1", "tree_rnn.0 backward"} <= names
        assert none_overlap([e for e in events if e["ph"] == "X"])


@pytest.mark.slow
def test_soak():
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from benchmarks.soak import soak

    found = soak(runs=12, seed=3)
    assert found["calls"] > 9_000 and found["mismatches"] == 0
