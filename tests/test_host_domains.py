"""Executor "host": its options, JAX's settings, and schedules over several domains and devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from processes import check_in_a_process
from zoo import JAXREC, assert_close, forest, loss, roots
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec.invocation._params import Params

RNN = tree_rnn(JAXREC)


@pytest.fixture
def args():
    return weights(), forest(), 0


def batched(w, tree):
    return loss(jax.vmap(RNN, (None, None, 0))(w, tree, roots()))


class TestSettings:
    def test_without_jit_the_cells_are_compiled_all_the_same(self, args):
        want = jax.value_and_grad(lambda w: loss(RNN(w, *args[1:])))(args[0])
        with jr.executor("host"), jax.disable_jit():
            got = jax.value_and_grad(lambda w: loss(RNN(w, *args[1:])))(args[0])
        assert_close(got, want, 1e-5)

    @pytest.mark.slow
    def test_arguments_come_to_the_device(self):
        script = """
            import jax
            import jax.numpy as jnp
            import jaxrec as jr

            @jr.rec_fn
            def halve(x, n):
                is_done = (n == 0) | (jnp.sum(x) < 0)
                return jr.cond(is_done, lambda: x, lambda: halve(x / 2, n - 1))

            mesh = jax.sharding.Mesh(jax.devices(), "d")
            spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
            for place in (jax.devices()[1], spread):
                x = jax.device_put(jnp.ones(4), place)
                with jr.executor("host"):
                    assert (halve(x, 2) == 0.25).all()
                    assert (jax.grad(lambda x: halve(x, 2).sum())(x) == 0.25).all()
            print("done")
        """
        check_in_a_process(script, devices=2)

    def test_one_device_that_is_not_the_first(self):
        script = """
            import jax
            import jax.numpy as jnp
            import jaxrec as jr

            @jr.rec_fn
            def halve(x, n):
                is_done = (n == 0) | (jnp.sum(x) < 0)
                return jr.cond(is_done, lambda: x, lambda: halve(x / 2, n - 1))

            @jr.rec_fn
            def power(x, n):
                return jr.cond(n == 0, lambda: jnp.ones_like(x), lambda: x * power(x, n - 1))

            fib = jr.rec_fn(
                lambda n: jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))
            )
            first, second, third = jax.devices()

            def check(x, where):
                tangent = lambda x: jax.jvp(lambda x: power(x, 3), (x,), (x,))[1]
                slope = jax.grad(lambda x: power(x, 3).sum())
                for f, value in ((halve, 0.5), (power, 8.0), (tangent, 24.0), (slope, 12.0)):
                    got = f(x, 3 if f is power else 2) if f in (halve, power) else f(x)
                    assert (got == value).all() and got.devices() == {where}, (f, got, where)
                assert fib(10).devices() == {where}

            with jr.executor("host"):
                check(2 * jnp.ones(4), first)
            with jax.default_device(second), jr.executor("host"):
                check(jax.device_put(2 * jnp.ones(4), first), second)
            with jr.executor("host"):
                for device in (second, third):
                    with jax.default_device(device):
                        check(2 * jnp.ones(4), device)
            for given in (first, second, third):
                with jr.executor("host", devices=[second]):
                    check(jax.device_put(2 * jnp.ones(4), given), second)
            with jax.default_device(second), jr.executor("host", devices=[first]):
                check(2 * jnp.ones(4), first)
            with jr.executor("host"):
                check(jax.device_put(2 * jnp.ones(4), third), first)
            print("done")
        """
        check_in_a_process(script, devices=3)


class TestOptions:
    @pytest.mark.parametrize(
        ("name", "options", "message"),
        [
            ("host", {"policy": "best"}, "policy 'best', expected one of 'adaptive'"),
            ("host", {"workers": 0}, "workers=0, expected 1 or more"),
            ("host", {"workers": True}, "workers=True, expected 1 or more"),
            ("host", {"workers": 2**40}, "expected 1 or more, up to 1,024"),
            ("host", {"devices": []}, "devices is empty"),
            ("host", {"devices": ["cpu"]}, r"devices=\['cpu'\], expected a list of devices"),
            ("host", {"devices": 3}, "devices=3, expected a list of devices"),
            ("host", {"place": {"f.0": 3}}, "puts cell 'f.0' on 3, expected one of the devices"),
            ("host", {"place": {"f": jax.devices()[0]}}, "place names 'f', expected a cell, as"),
            ("host", {"place": 3}, "place=3, expected a mapping"),
            ("graph", {"workers": 2}, "executor 'graph' has no options"),
        ],
    )
    def test_wrong_options(self, name, options, message):
        with pytest.raises(jr.UnsupportedError, match=message), jr.executor(name, **options):
            pass


class TestDivided:
    """A schedule over several domains: shards of the call tree, and devices."""

    @pytest.mark.parametrize("policy", ["split", "alone"])
    def test_gradients(self, args, policy):
        w, tree, _ = args
        with jr.executor("host", workers=2, policy=policy):
            got = jax.value_and_grad(batched)(w, tree)
        assert_close(got, jax.value_and_grad(batched)(w, tree), 1e-4)

    @pytest.mark.slow
    def test_collected_calls(self, args):
        w, tree, _ = args

        def run(w):
            return jr.collect(RNN, (None, None, 0))(w, tree, roots())

        with jr.executor("host", workers=3, policy="split"):
            got = run(w)
        assert_close(got, run(w), 1e-5)

    @pytest.mark.slow
    def test_devices(self):
        script = """
            import jax
            import jaxrec as jr
            from test_host import RNN, assert_close, batched, forest, weights
            first, second, third = jax.devices()
            want = jax.value_and_grad(batched)(weights(), forest())
            places = {"adaptive": {"tree_rnn.0": second}, "split": lambda cell: third}
            for policy, place in places.items():
                devices = (first, second, third)
                with jr.executor("host", workers=2, devices=devices, place=place, policy=policy):
                    got = jax.value_and_grad(batched)(weights(), forest())
                    names = {x.device for x in RNN.profile(weights(), forest(), 0).launches}
                assert_close(got, want, 1e-4)
                assert len(names) > 1, names
            print("done")
        """
        check_in_a_process(script, devices=3)

    def test_cells_run_where_they_are_placed(self):
        """Also where nothing runs on some device, and with more workers than can be numbered."""
        script = """
            import jax
            import jaxrec as jr
            from test_host import RNN, assert_close, forest, weights
            devices = first, second, third = jax.devices()

            def used(place, workers):
                how = dict(workers=workers, devices=devices, place=place, policy="split")
                with jr.executor("host", **how):
                    made = RNN.profile(weights(), forest(), 0).launches
                return {(x.name, x.device) for x in made if x.name.startswith("tree_rnn")}

            cells = {name for name, _ in used(None, 2)}
            assert used(None, 2) == {(name, "cpu:0") for name in cells}
            leaf = max(cells)
            others = {(name, "cpu:0") for name in cells - {leaf}}
            assert used({leaf: second}, 2) == others | {(leaf, "cpu:1")}
            assert used({leaf: third}, 1024) == others | {(leaf, "cpu:2")}
            print("done")
        """
        check_in_a_process(script, devices=3)

    def test_what_crosses_is_not_kept(self):
        """A chain of rows of 64 KiB from device to device, each copied alone and once."""
        script = """
            import jax
            import jax.numpy as jnp
            import resource
            import jaxrec as jr

            @jr.rec_fn
            def even(w, x, n):
                return jr.cond(n <= 0, lambda: x, lambda: jnp.tanh(w * odd(w, x, n - 1)))

            @jr.rec_fn
            def odd(w, x, n):
                return jr.cond(n <= 0, lambda: x, lambda: jnp.sin(w * even(w, x, n - 1)))

            def peak():
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

            x, devices = jnp.ones(16384), jax.devices()
            place = {"odd.2": devices[1], "odd.3": devices[1]}
            want = even(0.5, x, 700)
            with jr.executor("host", workers=1, devices=devices, place=place):
                before = peak()
                assert jnp.allclose(even(0.5, x, 700), want)
                assert peak() - before < 150, (before, peak())
                made = even.profile(0.5, x[:4], 700).launches
            copies = {x.width for x in made if x.name.startswith("copy")}
            assert copies == {1}, copies
            print("done")
        """
        check_in_a_process(script, devices=2)

    def test_a_device_that_was_not_given(self, args):
        message = r"'tree_rnn\.0' on 'gpu:7', expected one of"
        with (
            jr.executor("host", place=lambda cell: "gpu:7"),
            pytest.raises(jr.UnsupportedError, match=message),
        ):
            RNN(*args)


@pytest.mark.parametrize("workers", [2, 4])
def test_waves_may_be_as_wide_as_the_share_of_a_worker(workers, monkeypatch):
    @jr.rec_fn
    def chain(w, x, n):
        return jr.cond(n < 1, lambda: x, lambda: jnp.tanh(w @ chain(w, x, n - 1)))

    made, size = [], Params.unbounded_layout

    def noted(params, calls, widths, **how):
        made.append(widths)
        return size(params, calls, widths, **how)

    monkeypatch.setattr(Params, "unbounded_layout", noted)
    with jr.executor("host", workers=workers, policy="split"):
        jax.vmap(chain, (None, 0, None))(jnp.eye(64), jnp.ones((64, 64)), 40)
    assert made
    assert all({64 // workers, 64} <= set(widths) for widths in made)
