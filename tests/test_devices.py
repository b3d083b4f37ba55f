"""Several devices: `shard_map`, meshes with explicit axes, and where results are."""

from __future__ import annotations

import textwrap

import pytest
from processes import check_in_a_process

SHARDED = """
    import warnings
    import jax, jax.numpy as jnp, numpy as np, pytest
    import jaxrec as jr
    from jax.sharding import Mesh, PartitionSpec as P
    from waves import sine
    from zoo import JAXREC, PYTHON, forest, loss
    from zoo_trees import tree_rnn, weights

    warnings.simplefilter("error")
    mesh = Mesh(np.array(jax.devices()), ("x",))
    assert mesh.size == 2
    w, tree, roots = weights(), forest(), jnp.array([0, 10])
    run = jax.vmap(tree_rnn(JAXREC), (None, None, 0))
    sharded = jax.shard_map(
        lambda w, i: run(w, tree, i), mesh=mesh, in_specs=(P(), P("x")), out_specs=P("x")
    )
    plain = tree_rnn(PYTHON)
    np.testing.assert_allclose(
        jax.jit(sharded)(w, roots), jnp.stack([plain(w, tree, int(i)) for i in roots]), rtol=1e-5,
        atol=1e-6,
    )
    got = jax.jit(jax.grad(lambda w: (sharded(w, roots) ** 2).sum()))(w)
    want = jax.grad(lambda w: sum((plain(w, tree, int(i)) ** 2).sum() for i in roots))(w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), got, want)
    # What was traced for two devices serves one.
    again = jax.grad(lambda w: (run(w, tree, roots) ** 2).sum())(w)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), again, want)

    apart = jax.device_put(roots, jax.NamedSharding(mesh, P("x")))
    with pytest.warns(UserWarning, match="tree_rnn runs as a whole on each of 2 devices"):
        np.testing.assert_allclose(
            jax.jit(lambda i: run(w, tree, i))(apart), sharded(w, roots), rtol=1e-5
        )

    @jr.rec_fn(max_calls=32)
    def halve(x):
        return jr.cond(x.sum() < 1.0, lambda: x, lambda: halve(x / 2) + sine(x))

    divided = jax.device_put(jnp.ones((2, 3)), jax.NamedSharding(mesh, P("x")))
    message = r"compiled for arrays on 2 .* Call it inside jax.shard_map"
    with pytest.raises(jr.UnsupportedError, match=message):
        jax.jit(jax.vmap(halve))(divided)
    each = jax.shard_map(jax.vmap(halve), mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    whole = jax.vmap(halve)(jnp.ones((2, 3)))
    np.testing.assert_allclose(jax.jit(each)(divided), whole, rtol=1e-5)

    # Each axis of a mesh is a device's own or XLA's to divide.
    square = Mesh(np.array(jax.devices()).reshape(1, 2), ("x", "y"))
    partly = jax.shard_map(
        jax.vmap(halve), mesh=square, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}
    )
    with pytest.raises(jr.UnsupportedError, match="over all axes of the mesh"):
        jax.jit(partly)(jnp.ones((2, 3)))

    # The derivative of tanh makes constants, which do not vary.
    @jr.rec_fn(max_calls=32)
    def bounded(x, n):
        return jr.cond(n < 1, lambda: x, lambda: jnp.tanh(x * bounded(x, n - 1)))

    def total(x):
        own = jax.shard_map(
            lambda x: bounded(x[0], 2)[None], mesh=mesh, in_specs=P("x"), out_specs=P("x")
        )
        return jnp.sum(own(x))

    points = jnp.array([0.5, 0.8])
    found = jax.jit(jax.grad(lambda x: jnp.sum(jax.grad(total)(x))))(points)
    own = jax.vmap(jax.grad(jax.grad(lambda x: jnp.tanh(x * jnp.tanh(x * x)))))
    np.testing.assert_allclose(found, own(points), rtol=1e-4)

    # A body may ask which device it is on, and of how many.
    @jr.rec_fn(max_calls=8)
    def placed(x, n):
        def node():
            return placed(x * jax.lax.axis_size("x") + jax.lax.axis_index("x"), n - 1)

        return jr.cond(n == 0, lambda: x, node)

    def on(devices):
        mesh = Mesh(np.array(jax.devices()[:devices]), ("x",))
        run = jax.shard_map(
            lambda x: placed(x, 2), mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False
        )
        return jax.jit(run)(jnp.array([1.0, 3.0]))

    np.testing.assert_allclose(on(2), [4.0, 15.0], rtol=1e-6)
    np.testing.assert_allclose(on(1), [1.0, 3.0], rtol=1e-6)
    print("done")
"""


def test_shard_map_over_two_devices():
    check_in_a_process(SHARDED, devices=2)


@pytest.mark.slow
def test_results_are_where_arguments_were_put():
    script = """
        import jax
        import jax.numpy as jnp
        import jaxrec as jr

        @jr.rec_fn
        def fib(n):
            return jr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2))

        @jr.rec_fn
        def halved(x):
            return jr.cond(jnp.sum(x) < 1, lambda: x, lambda: halved(x / 2))

        second = jax.devices()[1]
        for executor in ("graph", "reference"):
            with jr.executor(executor):
                for f, x in ((fib, jnp.int32(9)), (halved, jnp.arange(3.0))):
                    assert f(jax.device_put(x, second)).devices() == {second}, (executor, f)
                    assert f(x).devices() == {jax.devices()[0]}
        print("done")
    """
    check_in_a_process(script, devices=2)


@pytest.mark.slow
def test_second_derivatives_inside_shard_map():
    script = """
        import jax
        import jax.numpy as jnp
        from jax.sharding import PartitionSpec
        import jaxrec as jr

        @jr.rec_fn(max_calls=8)
        def f(w, n):  # an array that the body makes is the same on all devices
            return jr.cond(n <= 0, lambda: 0.5 * jnp.ones(1), lambda: w * f(w, n - 1))

        def product(w):
            return jax.jvp(jax.grad(lambda w: f(w, 3).sum()), (w,), (w,))[1]

        spec = PartitionSpec("d")
        mesh = jax.make_mesh((2,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
        mapped = jax.shard_map(product, mesh=mesh, in_specs=spec, out_specs=spec)
        assert jax.jit(mapped)(jnp.array([1.0, 2.0])).tolist() == [3.0, 12.0]
        print("done")
    """
    check_in_a_process(script, devices=2)


EXPLICIT = """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec
    import jaxrec as jr

    @jr.rec_fn
    def f(w, x, n):
        return jr.cond(n < 1, lambda: x * w, lambda: jnp.sin(f(w, x * 1.5, n - 1)))

    types = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((2,), ("d",), axis_types=types)
    x, w = jnp.arange(4.0), jnp.ones(4)
    divided = jax.device_put(x, NamedSharding(mesh, PartitionSpec("d")))
    copied = jax.device_put(w, NamedSharding(mesh, PartitionSpec()))
"""


def check_on_a_mesh(script):
    check_in_a_process(textwrap.dedent(EXPLICIT) + textwrap.dedent(script), devices=2)


@pytest.mark.slow
def test_explicit_axes_of_a_mesh():
    script = """
        def value(w, x):
            return f(w, x, 3)

        def forward(w, x):
            return jax.jvp(value, (w, x), (w, x))[1]

        def gradients(w, x):
            return jax.grad(lambda w, x: value(w, x).sum(), (0, 1))(w, x)

        def check(of, *given):
            # What JAX can add the arguments to, each, as it can what it computes of them.
            for a, b in zip(jax.tree.leaves(of(*given)), jax.tree.leaves(of(w, x)), strict=True):
                for other, same in zip(given, (w, x), strict=True):
                    np.testing.assert_allclose(a + other, b + same, rtol=1e-6)

        for executor in ("graph", "host", "reference"):
            with jr.executor(executor):
                for of in (value, forward):
                    for given in ((w, divided), (copied, divided), (copied, x)):
                        check(of, *given)
                    with jax.set_mesh(mesh):
                        check(of, w, divided)
                with jax.set_mesh(mesh):  # JAX asks for it in gradients, also without recursion
                    check(gradients, w, divided)
                    check(gradients, copied, divided)
        print("done")
    """
    check_on_a_mesh(script)


@pytest.mark.slow
def test_vmap_over_an_explicit_axis_of_a_mesh():
    script = """
        def shifted(x):
            return f(2.0, x, 3) * x + 1

        def both(x):
            return jax.value_and_grad(shifted)(x)

        for of in (shifted, jax.grad(shifted), both, lambda x: jax.jvp(shifted, (x,), (x,))):
            want = jax.vmap(of)(x)
            with jax.set_mesh(mesh):
                for mapped in (jax.vmap(of), jax.jit(jax.vmap(of))):
                    got = mapped(divided)
                    assert {str(jax.typeof(a)) for a in jax.tree.leaves(got)} == {"float32[4@d]"}
                    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
                        np.testing.assert_allclose(a, b, rtol=1e-6)
        for mapped in (jax.vmap(shifted), jax.jit(jax.vmap(shifted))):  # also where none is set
            np.testing.assert_allclose(mapped(divided), jax.vmap(shifted)(x), rtol=1e-6)
        print("done")
    """
    check_on_a_mesh(script)


@pytest.mark.slow
def test_a_schedule_inside_a_mesh():
    script = """
        @jr.rec_fn
        def shrink(x):
            return jr.cond(jnp.sum(x * x) < 1, lambda: x, lambda: shrink(x * 0.5))

        with jax.set_mesh(mesh):
            assert shrink.schedule(x).num_calls == 3
        print("done")
    """
    check_on_a_mesh(script)
