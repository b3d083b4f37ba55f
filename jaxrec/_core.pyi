"""The C++ scheduler of jaxrec."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC: int
VERSION: int
MOST_WORKERS: int

NATIVE_MAGIC: int
NATIVE_VERSION: int

def opcodes() -> dict[str, int]: ...
def dtypes() -> dict[str, int]: ...
def native_forms() -> dict[str, int]: ...
def native_instructions() -> dict[str, list[str]]: ...
def evaluate(op: int, dtype: int, a: int, b: int | None = None) -> int: ...
def convert(to: int, source: int, a: int) -> int: ...
def ffi_handlers() -> dict[str, dict[str, Any]]: ...
def ffi_types() -> dict[str, dict[str, Any]]: ...

class PlanError(Exception):
    """Arguments: `code` (CAPACITY, RECURSION_LIMIT, INDEX, PROGRAM, INTERNAL), `text`, `needed`."""

    args: tuple[str, str, int]

class Schedule:
    """A finished schedule. Arrays are copies."""

    @property
    def num_calls(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def num_waves(self) -> int: ...
    @property
    def num_collected(self) -> int: ...
    @property
    def info_size(self) -> int: ...
    @property
    def waves(self) -> NDArray[np.int32]: ...
    @property
    def value_rows(self) -> list[int]: ...
    @property
    def read_rows(self) -> list[int]: ...
    @property
    def cell_rows(self) -> list[int]: ...
    @property
    def frame_function(self) -> NDArray[np.int32]: ...
    @property
    def frame_parent(self) -> NDArray[np.int32]: ...
    @property
    def frame_site(self) -> NDArray[np.int32]: ...
    @property
    def frame_lane(self) -> NDArray[np.int32]: ...
    def cell_frames(self, cell: int) -> NDArray[np.int32]: ...
    def wave_frame(self, wave: int, row: int) -> int: ...
    def call_path(self, frame: int) -> str: ...
    def lay_out(
        self, widths: Sequence[int], costs: Sequence[float], sweeps: bool = False
    ) -> None: ...
    def reuse_rows(self, widths: Sequence[int]) -> None: ...
    def fill(
        self,
        buffers: Sequence[NDArray[Any]],
        capacity: Sequence[int] = ...,
        readers: bool = True,
    ) -> None: ...

class Stepper:
    """The scheduler of a program whose control reads what cells compute."""

    @property
    def reads_next(self) -> bool: ...
    def call_path(self, wave: int, row: int) -> str: ...
    def step(self, tapes: Sequence[NDArray[Any]]) -> NDArray[np.int32]: ...
    def operands(self, buffers: Sequence[NDArray[Any]]) -> None: ...
    def finish(self) -> Schedule: ...

MANY_READERS: int

def most_readers(program: NDArray[np.int64], collect: bool) -> list[list[int]]: ...
def start_stepper(
    program: NDArray[np.int64],
    roots: Sequence[NDArray[Any]],
    outers: Sequence[NDArray[Any]],
    outer_lanes: NDArray[np.int64],
    lanes: int,
    widths: Sequence[int],
    costs: Sequence[float],
    names: str,
    max_calls: int = -1,
    call_limit: int = -1,
    collect: bool = False,
    depth_limit: int = -1,
    reuse: bool = False,
) -> Stepper: ...
def plan(
    program: NDArray[np.int64],
    roots: Sequence[NDArray[Any]],
    outers: Sequence[NDArray[Any]],
    outer_lanes: NDArray[np.int64],
    lanes: int,
    widths: Sequence[int],
    costs: Sequence[float],
    names: str,
    max_calls: int = -1,
    call_limit: int = -1,
    collect: bool = False,
    workers: int = 0,
    depth_limit: int = -1,
    waves: bool = True,
    sweeps: bool = False,
) -> Schedule: ...

class Division:
    """A schedule divided into domains."""

    @property
    def domains(self) -> int: ...
    @property
    def copies(self) -> list[tuple[int, int, int]]: ...
    def estimate(
        self, schedule: Schedule, costs: Sequence[float], copy_cost: float, workers: int
    ) -> float: ...
    def replace(self, schedule: Schedule) -> None: ...

def estimate(schedule: Schedule, costs: Sequence[float]) -> float: ...
def divide(
    schedule: Schedule,
    shards: int,
    cell_device: Sequence[int],
    widths: Sequence[int],
    costs: Sequence[float],
    copy_cost: float,
) -> Division: ...

class RunReport:
    """What a run of tasks did, and how it ended."""

    def take_error(self) -> BaseException | None: ...
    @property
    def failed(self) -> int: ...
    @property
    def workers(self) -> list[tuple[int, int, int]]: ...
    @property
    def times(self) -> list[tuple[int, int, int]]: ...

def run_tasks(
    tasks: list[tuple[Any, ...]],
    slots: list[Any],
    workers: int,
    ahead: int,
    check: Any,
    scope: Any,
) -> RunReport: ...

class NativeFunction:
    def __init__(
        self,
        program: NDArray[np.int64],
        names: str,
        outer_lanes: NDArray[np.int64],
        lanes: int,
        max_calls: int = -1,
        rows: int = 1,
        depth_limit: int = -1,
        call_limit: int = -1,
        workers: int = 0,
    ) -> None: ...
    def run(
        self,
        roots: list[Any],
        outers: Sequence[NDArray[Any]],
        results: Sequence[NDArray[Any]],
    ) -> None: ...
