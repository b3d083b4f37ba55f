"""The Mandelbrot set: every point iterates until it escapes, a recursion of its own.

Under `jax.vmap` each point stops by itself; the points that go on are one batch.
"""

import jax
import jax.numpy as jnp

import jaxrec as jr


@jr.rec_fn
def escape(c: jax.Array, z: jax.Array, n: jax.Array, limit: jax.Array) -> jax.Array:
    """How many steps of ``z -> z**2 + c`` it takes to leave the disc of radius 2, or `limit`."""
    outside = jnp.real(z) ** 2 + jnp.imag(z) ** 2 > 4.0
    return jr.cond(outside | (n >= limit), lambda: n, lambda: escape(c, z * z + c, n + 1, limit))


def image(width: int, height: int, limit: int) -> jax.Array:
    """Steps to escape at the points of a grid over the set, int32 ``[height, width]``."""
    real, imag = jnp.linspace(-2.2, 0.8, width), jnp.linspace(-1.2, 1.2, height)
    points = (real[None, :] + 1j * imag[:, None]).astype(jnp.complex64)
    bounded = escape.with_options(max_calls=width * height * (limit + 1))
    start = jnp.zeros((), jnp.complex64), jnp.int32(0), jnp.int32(limit)
    return jax.vmap(lambda c: bounded(c, *start))(points.ravel()).reshape(height, width)
