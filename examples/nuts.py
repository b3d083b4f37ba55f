"""The No-U-Turn sampler, as its authors wrote it: a recursion that doubles a trajectory.

Hoffman & Gelman, "The No-U-Turn Sampler: adaptively setting path lengths in Hamiltonian Monte
Carlo" (JMLR 15, 2014), algorithm 3. How far a trajectory goes depends on the states that it
reaches; with `jax.vmap` over chains each chain stops where it should, and the leapfrog steps of all
chains are one batch.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxrec as jr

LogDensity = Callable[[jax.Array], jax.Array]

MAX_ERROR = 1000.0
"""The greatest error of the energy of a step that still counts (delta max in the paper)."""


class Trajectory(NamedTuple):
    """Both ends, the draw so far, the number of states in the slice, and whether to go on."""

    back_position: jax.Array
    back_momentum: jax.Array
    front_position: jax.Array
    front_momentum: jax.Array
    draw: jax.Array
    size: jax.Array
    goes_on: jax.Array


def leapfrog(
    log_density: LogDensity, position: jax.Array, momentum: jax.Array, step: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One step of the leapfrog integrator; backwards if `step` is negative."""
    force = jax.grad(log_density)
    momentum = momentum + step / 2 * force(position)
    position = position + step * momentum
    return position, momentum + step / 2 * force(position)


def _one_state(
    log_density: LogDensity,
    position: jax.Array,
    momentum: jax.Array,
    log_slice: jax.Array,
    step: jax.Array,
) -> Trajectory:
    position, momentum = leapfrog(log_density, position, momentum, step)
    energy = log_density(position) - momentum @ momentum / 2
    size = (log_slice <= energy).astype(jnp.int32)
    goes_on = log_slice < energy + MAX_ERROR
    return Trajectory(position, momentum, position, momentum, position, size, goes_on)


def no_u_turn(t: Trajectory) -> jax.Array:
    """Whether neither end moves towards the other."""
    span = t.front_position - t.back_position
    return (span @ t.back_momentum >= 0) & (span @ t.front_momentum >= 0)


def extended(first: Trajectory, second: Trajectory, forward: jax.Array) -> Trajectory:
    """The ends of two trajectories in a row; the rest is that of `first`."""
    return first._replace(
        back_position=jnp.where(forward, first.back_position, second.back_position),
        back_momentum=jnp.where(forward, first.back_momentum, second.back_momentum),
        front_position=jnp.where(forward, second.front_position, first.front_position),
        front_momentum=jnp.where(forward, second.front_momentum, first.front_momentum),
    )


def joined(first: Trajectory, second: Trajectory, forward: jax.Array, key: jax.Array) -> Trajectory:
    """Two halves of a subtree: a draw from both, uniform over the states in the slice."""
    both = extended(first, second, forward)
    total = first.size + second.size
    # The second half's share; the draw is its own as often as that.
    take = jax.random.uniform(key) * total < second.size
    goes_on = first.goes_on & second.goes_on & no_u_turn(both)
    draw = jnp.where(take, second.draw, first.draw)
    return both._replace(draw=draw, size=total, goes_on=goes_on)


@jr.rec_fn(static_argnames="log_density")
def build_tree(
    log_density: LogDensity,
    position: jax.Array,
    momentum: jax.Array,
    log_slice: jax.Array,
    step: jax.Array,
    height: jax.Array,
    key: jax.Array,
) -> Trajectory:
    """The ``2**height`` states that follow a state, as far as they make no U-turn."""

    def leaf() -> Trajectory:
        return _one_state(log_density, position, momentum, log_slice, step)

    def node() -> Trajectory:
        keys = jax.random.split(key, 3)
        first = build_tree(log_density, position, momentum, log_slice, step, height - 1, keys[0])
        forward = step > 0

        def rest() -> Trajectory:
            at = jnp.where(forward, first.front_position, first.back_position)
            moving = jnp.where(forward, first.front_momentum, first.back_momentum)
            second = build_tree(log_density, at, moving, log_slice, step, height - 1, keys[1])
            return joined(first, second, forward, keys[2])

        return jr.cond(first.goes_on, rest, lambda: first)

    return jr.cond(height == 0, leaf, node)


@jr.rec_fn(static_argnames="log_density")
def _double(
    log_density: LogDensity,
    trajectory: Trajectory,
    log_slice: jax.Array,
    step: jax.Array,
    height: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """Doubles a trajectory, in a random direction, until it turns; its draw."""

    def more() -> jax.Array:
        keys = jax.random.split(key, 4)
        forward = jax.random.bernoulli(keys[0])
        at = jnp.where(forward, trajectory.front_position, trajectory.back_position)
        moving = jnp.where(forward, trajectory.front_momentum, trajectory.back_momentum)
        signed = jnp.where(forward, step, -step)
        new = build_tree(log_density, at, moving, log_slice, signed, height, keys[1])
        accept = new.goes_on & (jax.random.uniform(keys[2]) * trajectory.size < new.size)
        both = extended(trajectory, new, forward)
        both = both._replace(
            draw=jnp.where(accept, new.draw, trajectory.draw),
            size=trajectory.size + new.size,
            goes_on=new.goes_on & no_u_turn(both),
        )
        return _double(log_density, both, log_slice, step, height + 1, keys[3])

    return jr.cond(trajectory.goes_on & (height < 10), more, lambda: trajectory.draw)


def draw(
    log_density: LogDensity,
    position: jax.Array,
    step: jax.Array,
    key: jax.Array,
    max_calls: int | None = None,
) -> jax.Array:
    """The next state ``[n]`` of the chain."""
    keys = jax.random.split(key, 3)
    momentum = jax.random.normal(keys[0], position.shape)
    energy = log_density(position) - momentum @ momentum / 2
    log_slice = energy + jnp.log(jax.random.uniform(keys[1]))
    start = Trajectory(
        position, momentum, position, momentum, position, jnp.int32(1), jnp.bool_(True)
    )
    double = _double if max_calls is None else _double.with_options(max_calls=max_calls)
    return double(log_density, start, log_slice, step, jnp.int32(0), keys[2])
