"""Timing, the machine, and rows: what all benchmark scripts share."""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

_PACKAGES = ("jaxrec", "jax", "jaxlib", "numpy", "torch", "dyNET38")


def machine() -> dict[str, Any]:
    """The processor's name, the cores this process may use, the load when the script began, and the
    device that JAX puts arrays on, where that is another one.
    """
    found = {"cpu": _cpu_name(), "cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
    device = jax.devices()[0]
    return found if device.platform == "cpu" else found | {"device": device.device_kind}


def _cpu_name() -> str:
    with open("/proc/cpuinfo", encoding="ascii") as lines:
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that are compared, as far as they are installed."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


class Rows:
    """Prints rows of one benchmark as JSON, one a line, each with the machine and the versions."""

    def __init__(self, benchmark: str) -> None:
        self._common = {"machine": machine(), "versions": versions()}
        self._benchmark = benchmark

    def __call__(self, **values: Any) -> None:
        row = {"benchmark": self._benchmark, **values, **self._common}
        print(json.dumps(row), flush=True)


def seconds(action: Callable[[], Any]) -> float:
    """How long `action` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def warm_seconds(action: Callable[[], Any]) -> float:
    """The time of an action that follows one of its own, as in a loop, not one of another program.

    Another program leaves its threads behind and takes the memory that would be used again.
    """
    action()
    return seconds(action)


def interleave(
    actions: Mapping[str, Callable[[], Sequence[float]]], repeats: int
) -> dict[str, np.ndarray]:
    """Runs every action `repeats` times in turn, so that noise of the machine hits all alike.

    Args:
        actions: by name; each returns what it measured, always as many numbers.
        repeats: rounds; every round begins with the next action.

    Returns:
        What was measured, by name, shape [repeats, numbers].
    """
    measured: dict[str, list[Sequence[float]]] = {name: [] for name in actions}
    names = list(actions)
    for repeat in range(repeats):
        first = repeat % len(names)
        for name in names[first:] + names[:first]:
            measured[name].append(actions[name]())
    return {name: np.array(values) for name, values in measured.items()}


def spread(values: np.ndarray) -> dict[str, float]:
    """The median of `values` and how far they scatter: quartiles."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"seconds": float(middle), "quartile_1": float(low), "quartile_3": float(high)}
