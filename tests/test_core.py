"""The scheduler, through its nanobind surface and its XLA FFI handler, against a slow model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from core_model import Cell, Function, Model, Program, Rows
from core_programs import EVEN_ODD, EVEN_ODD_NAMES, TREE, TREE_NAMES, lanes_of, random_forest
from core_random import RandomProgram

from jaxrec import _core
from jaxrec.schedule._handlers import register_handlers

WIDTHS, COSTS = (4, 16), (1.0, 2.0)
I32 = "int32"


def plan(
    program: Program,
    roots: Sequence[np.ndarray],
    outers: Sequence[np.ndarray] = (),
    names: str = "",
    *,
    outer_lanes: np.ndarray | None = None,
    widths: Sequence[int] = WIDTHS,
    costs: Sequence[float] = COSTS,
    **options: Any,
) -> _core.Schedule:
    lanes = lanes_of(list(outers)) if outer_lanes is None else outer_lanes
    return _core.plan(
        program.encode(), roots, outers, lanes, len(roots[0]), widths, costs, names, **options
    )


def buffer_types(
    program: Program, rows: Rows, *, collect: bool, slack: int = 0, readers: bool = True
) -> list[tuple[tuple[int, ...], str]]:
    """Shape and type of every output buffer, with `slack` rows more than needed."""
    entry = program.functions[program.entry]
    pad = 2 * rows.pad + slack
    info = 3 + len(entry.results) * (1 + collect) + len(program.cells)
    out: list[tuple[tuple[int, ...], str]] = [((info,), I32)]
    out.append(((len(rows.waves) + slack, rows.columns), I32))
    for cell, firings in zip(program.cells, rows.cell_rows, strict=True):
        n = len(firings) + pad
        out += [((n,), I32) for _ in cell.inputs]
        out += [((n + 1 if readers else 0,), I32) for _ in cell.outputs]
        out += [((n,), d) for d in (*cell.exports, I32)]
    lanes, calls = len(rows.roots), len(rows.collected) + slack
    out += [((lanes + 1 if readers else 0,), I32) for _ in entry.data]
    out += [((lanes,), I32) for _ in entry.results]
    out += [((calls,), I32) for _ in entry.results if collect]
    out += [((len(r) + pad if readers else 0,), I32) for r in rows.reads]
    if collect:
        out += [((calls,), d) for d in (I32, *entry.control)]
    return out


def garbage(types: list[tuple[tuple[int, ...], str]], item: int = 77) -> list[np.ndarray]:
    """Buffers as XLA hands them out: with anything in them."""
    return [np.full(shape, item, dtype) for shape, dtype in types]


def expected(
    model: Model, rows: Rows, types: list[Any], *, collect: bool, item: int = 77
) -> list[np.ndarray]:
    """What the buffers should hold, from the slow model: in rows behind those needed, garbage."""
    program, pad = model.program, rows.pad
    entry = program.functions[program.entry]
    out = garbage(types, item)
    it = iter(out)
    head = [len(rows.waves), len(model.frames), len(rows.collected)]
    next(it)[:] = [*head, *rows.result_start, *rows.collect_start, *map(len, rows.cell_rows)]
    waves = next(it)
    if rows.waves:
        waves[: len(rows.waves)] = rows.waves
    readers = Readers(rows, program.classes)
    for number, (cell, firings) in enumerate(zip(program.cells, rows.cell_rows, strict=True)):
        needed = len(firings) + 2 * pad
        for k in range(len(cell.inputs)):
            _put(next(it)[:needed], [rows.row(f.inputs[k]) for f in firings], pad, fill=pad)
        for k, c in enumerate(cell.outputs):
            readers.table(next(it)[: needed + 1], c, rows.value_rows(number, k), pad)
        for k, dtype in enumerate(cell.exports):
            buffer = next(it)
            buffer = buffer if np.issubdtype(dtype, np.floating) else buffer[:needed]
            _put(buffer, [f.exports[k] for f in firings], pad)
        _put(next(it)[:needed], [model.frames[f.frame].lane for f in firings], pad)
    for k, c in enumerate(entry.data):
        readers.table(next(it), c, rows.root_rows(k), 0)
    for frames in [rows.roots, *([rows.collected] if collect else [])]:
        for k in range(len(entry.results)):
            _put(next(it), [rows.row(f.results[k]) for f in frames], 0, fill=pad)
    for c in range(program.classes):
        next(it)[: len(readers.rows[c])] = readers.rows[c]
    if collect:
        _put(next(it), [f.lane for f in rows.collected], 0)
        for k, buffer in enumerate(it):
            _put(buffer, [f.control[k] for f in rows.collected], 0)
    return out


def _put(buffer: np.ndarray, items: list[int], start: int, fill: int = 0) -> None:
    buffer[:] = fill
    buffer[start : start + len(items)] = items


class Readers:
    """The read rows of every value, a class at a time, in the order tables ask for them."""

    def __init__(self, rows: Rows, classes: int) -> None:
        self.readers = [rows.readers(c) for c in range(classes)]
        self.rows: list[list[int]] = [[] for _ in range(classes)]

    def table(self, pointers: np.ndarray, c: int, values: list[int], start: int) -> None:
        """Fills pointers for these value rows, which begin at row `start`."""
        if len(pointers) == 0:
            return
        pointers[: start + 1] = len(self.rows[c])
        for i, value in enumerate(values):
            self.rows[c] += self.readers[c].get(value, [])
            pointers[start + i + 1] = len(self.rows[c])
        pointers[start + len(values) + 1 :] = len(self.rows[c])


def _depth(model: Model, frame: int) -> int:
    depth = 0
    while frame >= 0:
        depth, frame = depth + 1, model.frames[frame].parent
    return depth


def assert_all_equal(got: Sequence[Any], want: Sequence[np.ndarray]) -> None:
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        np.testing.assert_array_equal(np.asarray(g), w, err_msg=f"buffer {i}")


CASES = {
    "tree": (TREE, TREE_NAMES),
    "even_odd": (EVEN_ODD, EVEN_ODD_NAMES),
}


def inputs(case: str, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    if case == "tree":
        roots, outers = random_forest(rng, trees=int(rng.integers(1, 9)), leaves=12)
        return [roots], outers
    return [rng.integers(0, 10, size=5).astype(np.int32)], []


def assert_matches_model(
    program: Program, roots: list[np.ndarray], outers: list[np.ndarray], **options: Any
) -> None:
    model = Model(program, roots, outers, len(roots[0]))
    collect = options["collect"]
    rows = model.lay_out(WIDTHS, COSTS, collect)
    schedule = plan(program, roots, outers, **options)
    assert schedule.waves.tolist() == rows.waves
    depths = (_depth(model, f) for f in range(len(model.frames)))
    assert schedule.depth == max(depths, default=0)
    assert schedule.value_rows == rows.values
    assert schedule.read_rows == [len(r) for r in rows.reads]
    assert schedule.cell_rows == [len(f) for f in rows.cell_rows]
    for name in ("function", "parent", "site", "lane"):
        got = getattr(schedule, f"frame_{name}").tolist()
        assert got == [getattr(f, name) for f in model.frames]
    for cell, firings in enumerate(rows.cell_rows):
        assert schedule.cell_frames(cell).tolist() == [f.frame for f in firings]
    types = buffer_types(program, rows, collect=collect, slack=3)
    buffers = garbage(types)
    schedule.fill(buffers)
    assert_all_equal(buffers, expected(model, rows, types, collect=collect))


@pytest.mark.parametrize("collect", [False, True])
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("case", CASES)
def test_matches_the_model(case: str, workers: int, collect: bool) -> None:
    program, _ = CASES[case]
    for seed in range(5):
        assert_matches_model(program, *inputs(case, seed), workers=workers, collect=collect)


@pytest.mark.parametrize("block", range(4))
def test_random_programs_match_the_model(block: int) -> None:
    for seed in range(25 * block, 25 * (block + 1)):
        drawn = RandomProgram(seed)
        assert_matches_model(
            drawn.program, *drawn.inputs(), workers=1 + seed % 3, collect=seed % 2 == 0
        )


def test_buffers_of_the_exact_size_are_enough() -> None:
    roots, outers = inputs("tree", 0)
    model = Model(TREE, roots, outers, len(roots[0]))
    rows = model.lay_out(WIDTHS, COSTS, collect=True)
    types = buffer_types(TREE, rows, collect=True)
    buffers = garbage(types)
    plan(TREE, roots, outers, collect=True).fill(buffers)
    assert_all_equal(buffers, expected(model, rows, types, collect=True))


def test_every_buffer_that_is_too_small_is_named() -> None:
    roots, outers = inputs("tree", 0)
    rows = Model(TREE, roots, outers, len(roots[0])).lay_out(WIDTHS, COSTS, collect=True)
    types = buffer_types(TREE, rows, collect=True)
    schedule = plan(TREE, roots, outers, TREE_NAMES, collect=True)
    for i, (shape, dtype) in enumerate(types[1:], start=1):
        small: Any = (shape[0] - 1, *shape[1:])
        buffers = garbage([*types[:i], (small, dtype), *types[i + 1 :]])
        with pytest.raises(_core.PlanError, match="CapacityError: tree_lstm needs") as caught:
            schedule.fill(buffers)
        assert caught.value.args[0] == "CAPACITY"
        assert caught.value.args[2] > 0


def test_capacity_bounds_rows_without_readers() -> None:
    roots, outers = inputs("tree", 0)
    rows = Model(TREE, roots, outers, len(roots[0])).lay_out(WIDTHS, COSTS, collect=False)
    buffers = garbage(buffer_types(TREE, rows, collect=False, readers=False))
    schedule = plan(TREE, roots, outers)
    enough = [n + 2 * rows.pad for n in (*rows.values, *map(len, rows.reads))]
    schedule.fill(buffers, enough, readers=False)
    for i, what in enumerate(["value rows", "value rows", "read rows", "read rows"]):
        tight = [n - (i == k) for k, n in enumerate(enough)]
        with pytest.raises(_core.PlanError, match=f"CapacityError: .* {what}"):
            schedule.fill(buffers, tight, readers=False)
    with pytest.raises(_core.PlanError, match="capacity needs two numbers a class"):
        schedule.fill(buffers, enough[:1], readers=False)


def test_no_lanes_is_an_empty_schedule() -> None:
    empty = [np.zeros(0, np.int32)]
    schedule = plan(TREE, empty, inputs("tree", 0)[1])
    assert (schedule.num_calls, schedule.num_waves, schedule.depth) == (0, 0, 0)


def test_batched_outers_are_read_by_lane() -> None:
    # Two forests, two roots each: lane // 2 chooses the forest.
    forests = [inputs("tree", seed) for seed in (3, 4)]
    size = max(len(outers[0]) for _, outers in forests)
    stacked = [
        np.stack([np.pad(outers[k], (0, size - len(outers[k]))) for _, outers in forests])
        for k in range(3)
    ]
    roots = np.concatenate([np.resize(r[0], 2) for r, _ in forests])
    lanes = np.array([2, 2] * 3, np.int64)
    got = plan(TREE, [roots], stacked, outer_lanes=lanes)
    alone = [
        plan(TREE, [roots[2 * i : 2 * i + 2]], forests[i][1]).frame_parent.tolist() for i in (0, 1)
    ]
    shift = len(alone[0])
    assert got.frame_parent.tolist() == alone[0] + [p + shift if p >= 0 else p for p in alone[1]]


def test_call_paths() -> None:
    tree = [np.array(a, np.int32) for a in ([0, 0, 5, 6, 7], [1, 3, -1, -1, -1], [2, 4, 0, 0, 0])]
    schedule = plan(TREE, [np.array([0], np.int32)], tree, TREE_NAMES)
    paths = [schedule.call_path(i) for i in range(schedule.num_calls)]
    assert paths[0] == "tree_lstm"
    assert paths[3] == "tree_lstm -> tree_lstm[0] -> tree_lstm[1]"
    assert paths[4] == "tree_lstm -> tree_lstm[1]"
    with pytest.raises(IndexError, match="there is no frame 5"):
        schedule.call_path(5)
    long = plan(EVEN_ODD, [np.array([80], np.int32)], names=EVEN_ODD_NAMES)
    assert long.call_path(20) == "even" + " -> odd[7] -> even[3]" * 10
    assert long.call_path(80) == "even -> odd[7] -> even[3] -> ... (77 more) ... -> even[3]"


def test_too_many_calls_names_the_number_needed() -> None:
    roots, outers = inputs("tree", 0)
    calls = plan(TREE, roots, outers).num_calls
    plan(TREE, roots, outers, max_calls=calls)
    with pytest.raises(_core.PlanError, match=f"made {calls} calls in one invocation") as caught:
        plan(TREE, roots, outers, TREE_NAMES, max_calls=calls - 1)
    assert caught.value.args == (
        "CAPACITY",
        f"CapacityError: tree_lstm made {calls} calls in one invocation, but max_calls is "
        f"{calls - 1} (declared, or as many as the nodes that index its calls, each counted once). "
        f"Pass rec_fn(max_calls={calls}) or more (or none, and call eagerly: capacity then grows "
        "by itself).",
        calls,
    )


def test_an_index_out_of_range_names_the_array_and_the_path() -> None:
    tree = [np.array(a, np.int32) for a in ([0, 5, 6], [1, 12, -1], [2, 0, 0])]
    with pytest.raises(_core.PlanError, match="out of range") as caught:
        plan(TREE, [np.array([0], np.int32)], tree, TREE_NAMES)
    assert caught.value.args[:2] == (
        "INDEX",
        "JaxRecError: tree_lstm read left[12], which is out of range for an array of 3 elements "
        "(axis 0). Call path: tree_lstm -> tree_lstm[0] -> tree_lstm[0]. "
        "Check where the index into tree.left comes from.",
    )


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cycle_ends_with_the_same_message_for_any_number_of_workers(workers: int) -> None:
    cycle = [np.array(a, np.int32) for a in ([0], [0], [0])]
    with pytest.raises(_core.PlanError, match="without ending") as caught:
        plan(TREE, [np.array([0], np.int32)], cycle, TREE_NAMES, workers=workers, call_limit=1000)
    assert caught.value.args[:2] == (
        "RECURSION_LIMIT",
        "RecursionLimitError: tree_lstm made more than 1000 calls without ending; a base case is "
        "missing or its condition is never met (a cycle in the indices?). Call path: tree_lstm -> "
        "tree_lstm[0] -> tree_lstm[0] -> ... (997 more) ... -> tree_lstm[0] with arguments (i=0). "
        "If it ends, declare at least as many calls as it makes: rec_fn(max_calls=...).",
    )


def test_a_cell_has_no_waves_of_a_width_of_infinite_cost() -> None:
    roots, outers = inputs("tree", 0)
    free = plan(TREE, roots, outers, costs=[2.0, 2.0] * 2)
    bound = plan(TREE, roots, outers, costs=[2.0, np.inf, 2.0, 2.0])
    leaves = [row for row in free.waves.tolist() if row[0] < 2]
    assert any(row[0] == 1 for row in leaves)
    assert not any(row[0] == 1 for row in bound.waves.tolist())
    fired = sum(row[1] for row in leaves)
    assert fired == sum(row[1] for row in bound.waves.tolist() if row[0] == 0)


def test_depth_limit() -> None:
    roots = [np.array([30], np.int32)]
    assert plan(EVEN_ODD, roots, depth_limit=31).depth == 31
    with pytest.raises(_core.PlanError, match="nested more than 30 calls deep"):
        plan(EVEN_ODD, roots, names=EVEN_ODD_NAMES, depth_limit=30)


def test_wrong_inputs_are_refused() -> None:
    roots, outers = inputs("tree", 0)
    with pytest.raises(_core.PlanError, match=r"root argument 0 is float32\[.*expected int32"):
        plan(TREE, [roots[0].astype(np.float32)], outers)
    with pytest.raises(_core.PlanError, match=r"outer array is int64\[.*expected int32 of rank 1"):
        plan(TREE, roots, [outers[0].astype(np.int64), *outers[1:]])
    with pytest.raises(_core.PlanError, match="widths must ascend"):
        plan(TREE, roots, outers, widths=[8, 4])
    with pytest.raises(_core.PlanError, match="costs must be positive"):
        plan(TREE, roots, outers, costs=[0.0, 1.0])
    with pytest.raises(_core.PlanError, match="of the least width finite"):
        plan(TREE, roots, outers, costs=[np.inf, 1.0])
    with pytest.raises(_core.PlanError, match="a cost for each width, or for each of each cell"):
        plan(TREE, roots, outers, costs=[1.0])


def _one_function(*code: tuple[Any, ...], results: tuple[int, ...] = ()) -> Program:
    function = Function((I32,), (0,), results, 3, 2, code)
    return Program((), 2, (Cell((1,), (0,)),), (function,))


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (_one_function(), "does not end with RETURN"),
        (_one_function(("ADD", 1, I32, 0, 0)), "does not end with RETURN"),
        (_one_function(("LABEL", "a"), ("JUMP", "a"), ("RETURN", [])), "goes backward"),
        (_one_function(("ADD", 9, I32, 0, 0), ("RETURN", [])), "a register is 9"),
        (_one_function(("ADD", 1, I32, 0, 2), ("RETURN", [])), "register 2 is read before"),
        (_one_function(("AND", 1, "float32", 0, 0), ("RETURN", [])), "AND does not take"),
        (
            _one_function(("FIRE", 0, [], [0], [1]), ("RETURN", [])),
            "holds class 0.*expected class 1",
        ),
        (_one_function(("FIRE", 0, [], [], [1]), ("RETURN", [])), "FIRE inputs: got 0, expected 1"),
        (_one_function(("RETURN", [0])), "RETURN results: got 1, expected 0"),
        (_one_function(("RETURN", [1]), results=(0,)), "holds class -1"),
        (_one_function(("SWITCH", 0, []), ("RETURN", [])), "SWITCH has no branches"),
        (_one_function(("CALL", 3, 0, [], [], []), ("RETURN", [])), "a callee is 3"),
        (_one_function(("EXP", 1, "float32", 0), ("RETURN", [])), "EXP is for native programs"),
    ],
)
def test_malformed_programs_are_refused(program: Program, match: str) -> None:
    with pytest.raises(_core.PlanError, match=match) as caught:
        plan(program, [np.zeros(1, np.int32)])
    assert caught.value.args[0] == "PROGRAM"


def test_cut_programs_are_refused() -> None:
    words = TREE.encode()
    roots, outers = inputs("tree", 0)
    for n in range(len(words)):
        with pytest.raises(_core.PlanError, match="malformed control program"):
            _core.plan(words[:n], roots, outers, lanes_of(outers), 1, [4], [1.0], "")


@pytest.fixture(scope="module", autouse=True)
def _registered() -> None:
    register_handlers()  # the types of states before what has them
    handler = _core.ffi_handlers()["cpu"]["jaxrec_plan"]
    jax.ffi.register_ffi_target("jaxrec_plan_test", handler, platform="cpu")


def ffi_plan(program: Program, types: list[Any], lanes: int, **attrs: Any) -> Any:
    """A function of (roots, outers) that schedules inside XLA."""
    call = jax.ffi.ffi_call(
        "jaxrec_plan_test",
        [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in types],
        has_side_effect=True,
    )
    words = program.encode().view(np.int32)
    options = {
        "lanes": np.int64(lanes),
        "widths": np.array(WIDTHS, np.int64),
        "costs": np.array(COSTS, np.float64),
        "outer_lanes": lanes_of([np.zeros(0)] * len(program.outers)),
        **attrs,
    }
    return jax.jit(lambda roots, outers: call(jnp.asarray(words), *roots, *outers, **options))


@pytest.mark.parametrize("collect", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_ffi_handler_under_jit(case: str, collect: bool) -> None:
    program, names = CASES[case]
    roots, outers = inputs(case, 1)
    model = Model(program, roots, outers, len(roots[0]))
    rows = model.lay_out(WIDTHS, COSTS, collect)
    types = buffer_types(program, rows, collect=collect, slack=5)
    run = ffi_plan(program, types, len(roots[0]), names=names, collect=np.int64(collect))
    want, other = (expected(model, rows, types, collect=collect, item=item) for item in (77, 78))
    # What follows from what was there before is nobody's.
    written = zip(run(roots, outers), want, other, strict=True)
    assert_all_equal([np.where(a == b, x, a) for x, a, b in written], want)


def test_ffi_handler_without_readers() -> None:
    roots, outers = inputs("tree", 2)
    rows = Model(TREE, roots, outers, len(roots[0])).lay_out(WIDTHS, COSTS, collect=False)
    types = buffer_types(TREE, rows, collect=False, readers=False)
    used = [*rows.values, *map(len, rows.reads)]
    capacity = np.array(used, np.int64) + 2 * rows.pad
    run = ffi_plan(TREE, types, len(roots[0]), readers=np.int64(False), capacity=capacity)
    assert run(roots, outers)[1].tolist() == rows.waves
    tight = ffi_plan(TREE, types, len(roots[0]), readers=np.int64(False), capacity=capacity - 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"CapacityError: .* value rows"):
        jax.block_until_ready(tight(roots, outers))


def test_ffi_errors_carry_the_message() -> None:
    roots, outers = inputs("tree", 0)
    rows = Model(TREE, roots, outers, len(roots[0])).lay_out(WIDTHS, COSTS, collect=False)
    types = buffer_types(TREE, rows, collect=False)
    run = ffi_plan(TREE, types, len(roots[0]), names=TREE_NAMES, max_calls=np.int64(2))
    with pytest.raises(jax.errors.JaxRuntimeError, match="CapacityError: tree_lstm made"):
        jax.block_until_ready(run(roots, outers))
    wrong = ffi_plan(TREE, types, len(roots[0]), names=np.int64(3))
    with pytest.raises(jax.errors.JaxRuntimeError, match="attribute 'names' should be a text"):
        jax.block_until_ready(wrong(roots, outers))
    with pytest.raises(jax.errors.JaxRuntimeError, match="expected 17"):
        jax.block_until_ready(ffi_plan(TREE, types[:-1], len(roots[0]))(roots, outers))
