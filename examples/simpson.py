"""Adaptive quadrature: an interval is halved where the integrand needs it.

Whether an interval is halved depends on computed values, so the calls are known only as they are
made; all intervals that are under way at the same time are one batch. The derivative with respect
to the integrand's parameters follows the same intervals.

Source: Kuncir, "Algorithm 103: Simpson's rule integrator" (CACM 5(6), 1962); Lyness, "Notes on the
adaptive Simpson quadrature routine" (JACM 16(3), 1969), for the error estimate and its correction.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

import jaxrec as jr

Integrand = Callable[[jax.Array, jax.Array], jax.Array]


class Interval(NamedTuple):
    """An interval, the integrand at its ends and in its middle, and Simpson's estimate."""

    start: jax.Array
    end: jax.Array
    at_start: jax.Array
    at_middle: jax.Array
    at_end: jax.Array
    estimate: jax.Array


def _interval(f: Integrand, theta: jax.Array, start: jax.Array, end: jax.Array) -> Interval:
    at_start, at_middle, at_end = f(theta, start), f(theta, (start + end) / 2), f(theta, end)
    estimate = (end - start) / 6 * (at_start + 4 * at_middle + at_end)
    return Interval(start, end, at_start, at_middle, at_end, estimate)


def _half(
    f: Integrand, theta: jax.Array, start: jax.Array, end: jax.Array, ends: tuple[jax.Array, ...]
) -> Interval:
    """One half of an interval; the integrand at its ends is known."""
    at_middle = f(theta, (start + end) / 2)
    estimate = (end - start) / 6 * (ends[0] + 4 * at_middle + ends[1])
    return Interval(start, end, ends[0], at_middle, ends[1], estimate)


@jr.rec_fn(static_argnames="f")
def _refine(f: Integrand, theta: jax.Array, tolerance: jax.Array, whole: Interval) -> jax.Array:
    middle = (whole.start + whole.end) / 2
    left = _half(f, theta, whole.start, middle, (whole.at_start, whole.at_middle))
    right = _half(f, theta, middle, whole.end, (whole.at_middle, whole.at_end))
    error = left.estimate + right.estimate - whole.estimate

    def enough() -> jax.Array:
        return left.estimate + right.estimate + error / 15

    def halve() -> jax.Array:
        return _refine(f, theta, tolerance / 2, left) + _refine(f, theta, tolerance / 2, right)

    return jr.cond(jnp.abs(error) <= 15 * tolerance, enough, halve)


def integrate(
    f: Integrand,
    theta: jax.Array,
    start: float,
    end: float,
    tolerance: float,
    max_calls: int | None = None,
) -> jax.Array:
    """The integral of ``f(theta, x)`` over x from `start` to `end`, differentiable in `theta`."""
    whole = _interval(f, theta, jnp.float32(start), jnp.float32(end))
    refine = _refine if max_calls is None else _refine.with_options(max_calls=max_calls)
    return refine(f, theta, jnp.float32(tolerance), whole)
