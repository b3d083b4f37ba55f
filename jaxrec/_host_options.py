"""The options of executor "host"."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from jaxrec import _compat
from jaxrec._core import MOST_WORKERS
from jaxrec._errors import UnsupportedError

POLICIES = ("adaptive", "batch", "split", "alone")

Device = Any
"""A `jax.Device`, which is not a type that annotations may name."""

Place = Callable[[str], Any]


@dataclasses.dataclass(frozen=True)
class HostOptions:
    """How executor "host" runs calls; compared by value.

    Attributes:
        workers: threads that launch waves.
        devices: the devices that cells may run on; the first has the arguments and the results.
        place: the device of a cell by its name; all on the first if None.
        policy: how ready calls become waves.
        follows: whether the only device is JAX's default one, which `here` looks up.
    """

    workers: int
    devices: tuple[Device, ...]
    place: Place | None
    policy: str
    follows: bool = False

    def here(self) -> HostOptions:
        """The options for calls that are made here."""
        if not self.follows or self.is_default:
            return self
        return dataclasses.replace(self, devices=(default_device(),))

    @property
    def domains(self) -> int:
        """The largest number of domains that a schedule is divided into."""
        return len(self.devices) * self.shards

    @property
    def shards(self) -> int:
        """The largest number of shards on a device."""
        most = MOST_WORKERS // len(self.devices)  # domains are numbered as workers are
        return 1 if self.policy == "batch" else min(self.workers, most)

    @property
    def on_cpu(self) -> bool:
        """Whether all devices are the host's own."""
        return all(device.platform == "cpu" for device in self.devices)

    @property
    def is_default(self) -> bool:
        """Whether all runs on the device that JAX puts arrays on."""
        return self.devices == (default_device(),)

    def fills_cores(self, domains: int) -> bool:
        """Whether a schedule of so many domains keeps every core busy by itself."""
        return self.on_cpu and min(self.workers, domains) >= _cores()

    def at_home(self, operand: Any) -> Any:
        """An operand on the first device, where kernels expect it."""
        home = self.devices[0]
        if not isinstance(operand, jax.Array) or operand.devices() == {home}:
            return operand
        return jax.device_put(operand, home)

    def device_of(self, cell: str) -> int:
        """The number of the device that a cell runs on."""
        if self.place is None:
            return 0
        device = self.place(cell)
        _check_place(cell, device, self.devices)
        return self.devices.index(device)


def _check_name(cell: Any) -> None:
    """Checks that a cell may have a name: that of its function, and a number."""
    if not isinstance(cell, str) or not cell.rpartition(".")[2].isdecimal():
        raise UnsupportedError(
            f'executor "host": place names {cell!r}, expected a cell, as "f.0", the first of a '
            "function f. The waves of f.schedule(...) name those that there are."
        )


def _check_place(cell: str, device: Any, devices: Sequence[Any]) -> None:
    if device not in devices:
        raise UnsupportedError(
            f'executor "host": place puts cell {cell!r} on {device!r}, expected one of '
            f"the devices {', '.join(map(repr, devices))}. Pass it in devices=."
        )


def host_options(
    workers: int | None,
    devices: Any,
    place: Callable[[str], Any] | Mapping[str, Any] | None,
    policy: str,
) -> HostOptions:
    """Checks the options and fills in those that are left out.

    Raises:
        UnsupportedError: an option has no meaning.
    """
    if policy not in POLICIES:
        known = ", ".join(map(repr, POLICIES))
        raise UnsupportedError(f'executor "host": policy {policy!r}, expected one of {known}')
    if workers is None:
        workers = _cores()
    if not is_count(workers, 1, MOST_WORKERS):
        raise UnsupportedError(
            f'executor "host": workers={workers!r}, expected 1 or more, up to {MOST_WORKERS:,}'
        )
    given = (default_device(),) if devices is None else _device_list(devices)
    if not (place is None or callable(place) or isinstance(place, Mapping)):
        raise UnsupportedError(
            f'executor "host": place={place!r}, expected a mapping from names of cells to devices, '
            "or a function of the name"
        )
    if isinstance(place, Mapping):
        for cell, device in place.items():
            _check_name(cell)
            _check_place(cell, device, given)
        place = _Table(tuple(place.items()), given[0])
    return HostOptions(int(workers), given, place, policy, follows=devices is None)


def is_count(value: Any, least: int, most: int) -> bool:
    """Whether an option is an integer in a range."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and bool(least <= value <= most)


def _device_list(devices: Any) -> tuple[Device, ...]:
    if not isinstance(devices, Iterable) or not all(hasattr(d, "platform") for d in devices):
        raise UnsupportedError(
            f'executor "host": devices={devices!r}, expected a list of devices, as jax.devices() is'
        )
    given = tuple(devices)
    if not given:
        raise UnsupportedError('executor "host": devices is empty, expected at least one device')
    return given


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_device() -> Any:
    """The device that JAX puts arrays on."""
    chosen = _compat.setting("jax_default_device")
    if isinstance(chosen, str):
        return jax.local_devices(backend=chosen)[0]
    return chosen if chosen is not None else jax.local_devices()[0]


@dataclasses.dataclass(frozen=True)
class _Table:
    """A placement given as a mapping; cells that it does not name are on the first device."""

    items: tuple[tuple[str, Any], ...]
    otherwise: Any

    def __call__(self, cell: str) -> Any:
        return dict(self.items).get(cell, self.otherwise)
