"""A call on executor "host" that has ended leaves nothing for Python's search for cycles.

That comes late, and until then the tapes of the call would take memory.
"""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import pytest
from processes import check_in_a_process
from waves import sine
from zoo import JAXREC, forest, loss, roots
from zoo_trees import tree_rnn, weights

import jaxrec as jr
from jaxrec.executors.host._call import HostCall

RNN = tree_rnn(JAXREC)


@pytest.mark.parametrize("policy", ["batch", "split"])
def test_tapes_are_freed_at_once(policy):
    def batched(w):
        return loss(jax.vmap(RNN, (None, None, 0))(w, forest(), roots()))

    check(lambda: jax.grad(batched)(weights()), policy)


def test_tapes_of_a_stepped_program_are_freed_at_once():
    @jr.rec_fn
    def halved(x):
        return jr.cond(x < 1, lambda: x, lambda: sine(x) * halved(x / 2))

    check(lambda: jax.grad(halved)(jnp.float32(20)), "batch")


@pytest.mark.slow
def test_few_calls_that_keep_much_take_little():
    """A call of this keeps 0.8 MB; there is no room for a thousand of them."""
    script = """
        import resource
        import jax
        import jax.numpy as jnp
        import jaxrec as jr

        @jr.rec_fn
        def turned(w, x, n):
            is_done = (n == 0) | (jnp.sum(x) > 1e9)
            turns = lambda: jax.lax.fori_loop(0, 12, lambda _, y: jnp.tanh(w @ y), x)
            return jr.cond(is_done, lambda: x, lambda: turned(w, turns(), n - 1))

        def slope(w):
            return jax.grad(lambda w: jnp.sum(turned(w, jnp.ones((128, 128)), 3)))(w)

        want = slope(0.9 * jnp.eye(128))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with jr.executor("host"):
            got = slope(0.9 * jnp.eye(128))
        assert jnp.allclose(got, want, rtol=1e-4)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown < 1_500_000, grown  # kilobytes
        print("done")
    """
    check_in_a_process(script)


def check(run, policy):
    with jr.executor("host", workers=2, policy=policy):
        run()
        gc.collect()
        gc.disable()
        try:
            run()
            left = [x for x in gc.get_objects() if isinstance(x, HostCall)]
        finally:
            gc.enable()
    assert not left
