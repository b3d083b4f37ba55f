"""The C++ scheduler of jaxrec."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC: int
VERSION: int

def opcodes() -> dict[str, int]: ...
def dtypes() -> dict[str, int]: ...
def ffi_handlers() -> dict[str, Any]: ...

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
    def pad(self) -> int: ...
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
    def call_path(self, frame: int) -> str: ...
    def fill(
        self,
        buffers: Sequence[NDArray[Any]],
        capacity: Sequence[int] = ...,
        readers: bool = True,
    ) -> None: ...

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
    call_limit: int = 10_000_000,
    collect: bool = False,
    workers: int = 0,
    depth_limit: int = -1,
) -> Schedule: ...
