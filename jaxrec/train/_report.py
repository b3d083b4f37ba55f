"""What a run prints: a line an epoch and, last of all, its result as JSON."""

from __future__ import annotations

import importlib.metadata
import json
import math
import platform
from collections.abc import Mapping
from typing import Any, Final

import jax

_PACKAGES: Final = ("jaxrec", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


def epoch_line(entry: Mapping[str, Any], epochs: int) -> str:
    """One epoch in words, for people."""
    dev = ", ".join(f"{name} {share:.3f}" for name, share in entry["dev"].items())
    speed = entry["trees_per_s"]
    rate = f", {speed:.0f} trees/s" if speed is not None else ""
    return f"epoch {entry['epoch']}/{epochs}: loss {entry['loss']:.3f}, dev {dev}{rate}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on, and the device."""
    found = {"python": platform.python_version(), "device": jax.devices()[0].device_kind}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def last_line(result: Mapping[str, Any]) -> str:
    """The result as one line of JSON that any reader takes: what is not finite becomes null."""
    return json.dumps(_finite(result), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
