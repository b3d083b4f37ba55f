"""A call on executor "host" that has ended leaves nothing for Python's search for cycles.

That comes late, and until then the tapes of the call would take memory.
"""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import pytest
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
        return jr.cond(x < 1, lambda: x, lambda: jnp.sin(x) * halved(x / 2))

    check(lambda: jax.grad(halved)(jnp.float32(20)), "batch")


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
