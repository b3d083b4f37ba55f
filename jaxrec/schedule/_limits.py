"""When a recursion is taken to be without end, and the texts that say so.

A recursion that never reaches its base case must end in an error before it has used up the memory.
Calls are expanded depth first, so one that only nests is found by its depth, long before it has
made as many calls as a wide recursion may.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxrec.graph._ir import walk
from jaxrec.split._program import Program

_PATH_HEAD, _PATH_TAIL = 3, 1


@dataclasses.dataclass(frozen=True)
class Limits:
    """The most that one invocation may do, all lanes together.

    Attributes:
        calls: calls made.
        depth: calls nested in one another.
    """

    calls: int = 10_000_000
    depth: int = 1 << 20


_STEPPED_CALLS, _STEPPED_BYTES = 1 << 21, 1 << 30
"""What a recursion that runs cells to find out whether it goes on may do by default: calls, and
bytes of values on tapes. Half of it if it only nests, and less if its cells take long."""

_STEPS = {"graph": (Limits.depth, 2.4e4), "host": (1 << 14, 1.5e6)}
"""How far it may nest in some seconds: calls, and the arithmetic that takes as long as all else
that one of them does. On executor "host" each cell is a launch."""

_CELLS = 2
"""The cells that a call of them fires: one that decides, and one behind that."""

_FEW_CELLS, _CELLS_PASSED = 8, 10
"""How many cells of a program take no time where another one is fired next, and how many more take
as long as a call: the program looks at one after another which it is."""

_MANY, _STEPS_OF_MANY = 4, 1 << 13
"""What a step of several lanes takes beside its arithmetic, where one of a single lane takes 1: it
multiplies matrices. And how far they may nest, however many, where one of them may."""

_STEPPED_LEAST = 64
"""The calls that it may make however large their values are."""

_REFERENCE_DEPTH, _REFERENCE_OPERATIONS = 1 << 12, 1 << 15
"""How far executor "reference" nests by default: calls, and the operations of their bodies, each of
which takes its time and leaves a value for as long as its call is open."""


def stepped_limits(program: Program, executor: str, lanes: int) -> Limits | None:
    """The default limits of a stepped recursion of some lanes; None: it is planned."""
    if not program.is_stepped:
        return None
    affordable = max(_STEPPED_BYTES // max(program.call_bytes, 1), _STEPPED_LEAST)
    calls = min(_STEPPED_CALLS, affordable)
    steps, flops = _STEPS.get(executor, _STEPS["graph"])
    row = program.nested.flops / flops
    passed = max(len(program.cells) - _FEW_CELLS, 0) / _CELLS_PASSED
    nested = int(steps / (max(program.nested.cells / _CELLS, 1) * (1 + passed) + row))
    if lanes > 1:
        nested = max(int(steps / (_MANY + lanes * row)), min(nested, _STEPS_OF_MANY))
    nested = min(calls // 2, nested)
    return Limits(calls, max(nested, _STEPPED_LEAST // 2))


def reference_depth(program: Program) -> int:
    """The most nested calls by default of executor "reference"."""
    depth = _REFERENCE_DEPTH
    for function in program.graph.functions:
        made = [value.aval for op in walk(function.body) for value in op.outputs]
        size = sum(aval.size * aval.dtype.itemsize for aval in made)
        values = _REFERENCE_OPERATIONS // max(len(made), 1)
        depth = min(depth, values, _STEPPED_BYTES // max(size, 1))
    return max(depth, _STEPPED_LEAST)


def limits_for(
    *bounds: int | None, stepped: Limits | None = None, depth: int = Limits.depth
) -> Limits:
    """The limits of an invocation: the defaults, or twice the largest bound known if that is more.

    A bound that is too small is then told by the number of calls needed, not taken for a recursion
    without end.

    Args:
        *bounds: on calls, as far as there are any.
        stepped: the defaults of a stepped recursion; None: it is planned.
        depth: the default for nested calls of a planned one.
    """
    known = max([bound for bound in bounds if bound is not None], default=0)
    if stepped is None:
        return Limits(max(Limits.calls, 2 * known), max(depth, 2 * known))
    if known <= stepped.depth or known == stepped.calls:  # room that an eager call has tried
        return stepped
    return Limits(max(stepped.calls, 2 * known), 2 * known)


def format_path(steps: Sequence[str]) -> str:
    """`f -> f[1] -> g[0]`; a long path loses its middle, as in the core."""
    if len(steps) <= _PATH_HEAD + _PATH_TAIL + 1:
        return " -> ".join(steps)
    left_out = f"... ({len(steps) - _PATH_HEAD - _PATH_TAIL:,} more) ..."
    return " -> ".join([*steps[:_PATH_HEAD], left_out, *steps[-_PATH_TAIL:]])


def limit_text(name: str, what: str, path: Sequence[str], args: str) -> str:
    """The text of a `RecursionLimitError` of the function `name`, as the core writes it."""
    return (
        f"{name} {what}; a base case is missing or its condition is never met (a cycle in the "
        f"indices?). Call path: {_with_args(path, args)}. If it ends, declare at least as many "
        "calls as it makes: rec_fn(max_calls=...)."
    )


def itself_text(name: str, path: Sequence[str], args: str) -> str:
    """The same for a function that is shared and waits for its own result."""
    return (
        f"{name} calls itself with equal arguments before it returns, so it would wait for its own "
        "result: it is shared (memo=True), and a call that is made again is the same call. Call "
        f"path: {_with_args(path, args)}. Let every path of calls change the arguments (a cycle in "
        "the indices?)."
    )


def _with_args(path: Sequence[str], args: str) -> str:
    return format_path(path) + (f" with arguments ({args})" if args else "")
