"""How fast a platform launches waves and computes: what the sizes of an invocation depend on."""

from __future__ import annotations

from typing import NamedTuple


class Platform(NamedTuple):
    """The speeds of a platform, as far as sizes depend on them.

    Attributes:
        widest: the largest batch size at which cells are compiled: wider ones are no faster a row,
            or slower.
        wave_flops: arithmetic that takes as long as launching a wave.
        little_flops: arithmetic that is too little to have a narrower wave compiled that does
            without it.
        wave_bytes: bytes of values that a wave makes at most: tapes have room for some more waves.
        step_rows: the most rows of a step of the contraction that makes the cotangents of outer
            values.
        has_narrow: whether a wave of one call takes less time than one of a few.
        sweep_flops: arithmetic that takes as long as looking several times which wave comes next:
            up to so much, computing a wave of every cell instead. 0: looking takes no time.
    """

    widest: int
    wave_flops: float
    little_flops: float
    wave_bytes: int
    step_rows: int
    has_narrow: bool
    sweep_flops: float


CPU = Platform(256, 3e6, 1e4, 1 << 23, 1024, has_narrow=True, sweep_flops=0.0)
"""Measured on two CPU cores."""

ACCELERATOR = Platform(4096, 1e9, 1e9, 1 << 26, 1 << 14, has_narrow=False, sweep_flops=2e9)
"""Measured on an NVIDIA H200. The host waits for the device before each wave, and to look whether
another kind of wave comes next: each time as long as the arithmetic of a thousand rows takes."""


def platform_named(name: str) -> Platform:
    """The speeds of a platform of JAX."""
    return CPU if name == "cpu" else ACCELERATOR
