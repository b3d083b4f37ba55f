"""The waves of a profile as events of a Chrome trace, which Perfetto shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrec.report._profile import Profile


def estimated_events(profile: Profile) -> Iterator[dict[str, Any]]:
    """The waves one after the other, as long as their cells take alone."""
    process, lane = f"jaxrec {profile.schedule.name}", "waves (estimated: cells measured alone)"
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": process}}
    yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {"name": lane}}
    micros = {(c.cell, c.width): 1e6 * c.seconds for c in profile.cells}
    now = 0.0
    for number, wave in enumerate(profile.schedule.waves):
        took = micros[wave.cell, wave.width]
        args = {"wave": number, "calls": wave.count, "width": wave.width, "row": wave.start}
        yield {
            "ph": "X", "name": wave.cell, "cat": "wave", "pid": 0, "tid": 0,
            "ts": now, "dur": took, "args": args,
        }  # fmt: skip
        now += took


def launched_events(profile: Profile) -> Iterator[dict[str, Any]]:
    """Launches as events of a Chrome trace: by worker, and again by device."""
    later = max((x.start + x.seconds for x in profile.launches), default=0.0)
    launches = [*profile.launches, *(x._replace(start=x.start + later) for x in profile.backward)]
    # Launches of several workers overlap on a device: a lane for each.
    devices = list(dict.fromkeys((x.device, x.worker) for x in launches))
    for pid, name in enumerate((f"jaxrec {profile.schedule.name}: workers", "devices")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
    names = [(0, k, f"worker {k}") for k in range(len(profile.workers))]
    names += [(1, k, f"{device}, worker {w}") for k, (device, w) in enumerate(devices)]
    for pid, tid, name in names:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}
    for number, x in enumerate(launches):
        args = {"task": number, "calls": x.calls, "width": x.width, "domain": x.domain}
        lanes = (0, x.worker), (1, devices.index((x.device, x.worker)))
        for pid, tid in lanes:
            yield {
                "ph": "X", "name": x.name, "cat": "wave", "pid": pid, "tid": tid,
                "ts": 1e6 * x.start, "dur": 1e6 * x.seconds, "args": args,
            }  # fmt: skip
