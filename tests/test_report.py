"""Drawings, schedules for people, and profiles agree with what they are drawn from."""

import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxrec as jr
from jaxrec.graph._boxes import Box, boxes_of
from jaxrec.graph._draw import graph_svg
from jaxrec.graph._ir import Call, Prim, Switch, walk
from jaxrec.report._draw import MOST_WAVES, schedule_svg
from jaxrec.report._profile import Profile
from jaxrec.report._schedule import Schedule

SVG = "{http://www.w3.org/2000/svg}"

TREE = {
    "left": jnp.array([1, 3, -1, -1, -1]),
    "right": jnp.array([2, 4, -1, -1, -1]),
    "value": jnp.array([0.0, 0.0, 0.3, 0.1, 0.2]),
}


@jr.rec_fn
def fold(weight: Any, tree: Any, i: Any) -> Any:
    def node() -> Any:
        left = fold(weight, tree, tree["left"][i])
        right = fold(weight, tree, tree["right"][i])
        return jnp.tanh(weight @ (left + right))

    return jr.cond(tree["left"][i] < 0, lambda: tree["value"][i] * jnp.ones(3), node)


@jr.rec_fn
def is_even(n: Any) -> Any:
    return jr.cond(n == 0, lambda: jnp.array(True), lambda: is_odd(n - 1))


@jr.rec_fn
def is_odd(n: Any) -> Any:
    return jr.cond(n == 0, lambda: jnp.array(False), lambda: is_even(n - 1))


@jr.rec_fn
def count(x: Any, n: Any) -> Any:
    return jr.cond(n == 0, lambda: x, lambda: 1.0 + count(x, n - 1))


ARGS = (0.5 * jnp.eye(3), TREE, 0)


def classes(svg: str) -> Counter[str]:
    return Counter(e.get("class", "") for e in ET.fromstring(svg).iter())


def inside(box: Box) -> list[Box]:
    return [box, *(b for row in box.rows for inner in row for b in inside(inner))]


# Graphs.


def test_drawing_of_a_graph_has_every_construct() -> None:
    graph = fold.graph(*ARGS)
    ops = [op for f in graph.functions for op in walk(f.body)]
    found = classes(graph_svg(graph))
    calls = sum(isinstance(op, Call) for op in ops)
    switches = [op for op in ops if isinstance(op, Switch)]
    assert calls == 2
    assert found["call"] == found["return"] == found["tag"] == calls
    assert found["switch"] == found["merge"] == len(switches) == 1
    assert found["region"] == found["choice"] == sum(len(op.regions) for op in switches)
    assert found["arg"] == sum(len(f.params) for f in graph.functions)
    assert found["function"] == found["result"] == 1


def test_tooltips_of_a_graph_list_every_operation_once() -> None:
    graph = fold.graph(*ARGS)
    root = ET.fromstring(graph_svg(graph))
    shown = [
        line
        for group in root.iter(f"{SVG}g")
        if group.get("class") == "prim"
        for line in (group.findtext(f"{SVG}title") or "").splitlines()
    ]
    ops = [op for f in graph.functions for op in walk(f.body) if isinstance(op, Prim)]
    made = {f"{', '.join(map(repr, op.outputs))} = {op.name}" for op in ops}
    assert len(shown) == len(ops)
    assert {line.partition("(")[0] for line in shown} == made


def test_boxes_of_a_graph_do_not_overlap() -> None:
    drawn = []
    for group in ET.fromstring(graph_svg(fold.graph(*ARGS))).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        if rect is not None and group.get("class") not in {"function", "region"}:
            drawn.append([float(rect.get(k, "nan")) for k in ("x", "y", "width", "height")])
    for k, (x, y, w, h) in enumerate(drawn):
        for ox, oy, ow, oh in drawn[:k]:
            assert x >= ox + ow or ox >= x + w or y >= oy + oh or oy >= y + h


def test_a_box_is_below_what_it_reads() -> None:
    frame, edges = boxes_of(fold.graph(*ARGS))
    order = {box: k for k, box in enumerate(inside(frame))}
    assert edges
    assert all(order[edge.source] < order[edge.target] for edge in edges)


def test_index_arithmetic_is_one_line() -> None:
    frame, _ = boxes_of(fold.graph(*ARGS))
    lines = {line for box in inside(frame) if box.kind == "prim" for line in box.lines}
    assert "tree['left'][...]" in lines
    assert "tanh" in lines
    assert "select_n" not in lines


def test_mutual_recursion_has_a_frame_a_function() -> None:
    found = classes(graph_svg(is_even.graph(3)))
    assert found["function"] == 2
    assert found["call"] == 2


def test_captured_values_are_drawn() -> None:
    scale = jnp.arange(3.0)

    @jr.rec_fn
    def scaled(n: Any) -> Any:
        return jr.cond(n == 0, lambda: scale, lambda: scale * scaled(n - 1))

    found = classes(graph_svg(scaled.graph(3)))
    assert found["captured"] == len(scaled.graph(3).captured) == 1


def test_names_are_escaped() -> None:
    @jr.rec_fn
    def f(table: Any, n: Any) -> Any:
        return jr.cond(n == 0, lambda: table['<&">'], lambda: f(table, n - 1))

    graph = f.graph({'<&">': 1.0}, 3)
    texts = [e.text for e in ET.fromstring(graph_svg(graph)).iter(f"{SVG}text")]
    assert "table['<&\">']" in texts
    assert "table['<&\\\">']" in graph.dot()


def test_dot_has_every_node_that_its_edges_name() -> None:
    dot = is_even.graph(3).dot()
    nodes = set(re.findall(r"^\s+(\w+) \[label=", dot, flags=re.M))
    ends = {name for pair in re.findall(r"(\w+) -> (\w+)", dot) for name in pair}
    assert ends <= nodes
    assert dot.count("{") == dot.count("}")


def test_jupyter_gets_the_drawings() -> None:
    assert fold.graph(*ARGS)._repr_svg_() == graph_svg(fold.graph(*ARGS))
    schedule = fold.schedule(*ARGS)
    assert schedule._repr_svg_() == schedule_svg(schedule)


# Schedules.


def test_a_schedule_counts_calls_and_rows() -> None:
    schedule = fold.schedule(*ARGS)
    assert (schedule.num_calls, schedule.depth) == (5, 3)
    assert schedule.rows == sum(wave.count for wave in schedule.waves) == 5
    assert schedule.padded_rows == sum(wave.width for wave in schedule.waves)
    by_cell: dict[str, int] = {}
    for wave in schedule.waves:
        assert wave.start == by_cell.get(wave.cell, 0)
        by_cell[wave.cell] = wave.start + wave.count
        assert 0 < wave.count <= wave.width


def test_a_wave_starts_with_cell_start_and_count() -> None:
    cell, start, count, *_ = fold.schedule(*ARGS).waves[0]
    assert (cell.split(".")[0], start, count) == ("fold", 0, 3)


def test_call_paths_follow_the_tree() -> None:
    schedule = fold.schedule(*ARGS)
    assert schedule.call_path(0) == "fold"
    assert schedule.call_path(3) == "fold -> fold[0] -> fold[1]"
    with pytest.raises(IndexError, match="call 5 of a schedule of 5 calls"):
        schedule.call_path(5)


def test_call_paths_tell_calls_apart() -> None:
    @jr.rec_fn
    def full(n: Any) -> Any:
        return jr.cond(n == 0, lambda: 1, lambda: full(n - 1) + full(n - 1))

    schedule = full.schedule(6)
    assert len({schedule.call_path(row) for row in range(schedule.num_calls)}) == 127


UNKNOWN = [
    lambda: fold.schedule(ARGS[0], TREE, jax.ShapeDtypeStruct((), jnp.int32)),
    lambda: fold.profile(jax.ShapeDtypeStruct((3, 3), jnp.float32), TREE, 0),
    lambda: jax.jit(lambda i: fold.schedule(ARGS[0], TREE, i).num_calls)(0),
    lambda: jax.jit(lambda i: fold.profile(ARGS[0], TREE, i))(0),
    lambda: jax.vmap(lambda i: fold.schedule(ARGS[0], TREE, i).num_calls)(jnp.arange(2)),
]


@pytest.mark.parametrize("look", UNKNOWN)
def test_values_have_to_be_known(look: Any) -> None:
    with pytest.raises(jr.UnsupportedError, match=r"the value of argument \w+ is not known"):
        look()


@pytest.mark.parametrize("how", ["schedule", "profile"])
def test_values_that_are_closed_over_have_to_be_known(how: str) -> None:
    def outside(scale: Any) -> Any:
        @jr.rec_fn
        def scaled(n: Any) -> Any:
            return jr.cond(n == 0, lambda: scale, lambda: scaled(n - 1) * scale)

        getattr(scaled, how)(3)
        return scale

    message = rf"scaled\.{how}: a value that it closes over is not known"
    with pytest.raises(jr.UnsupportedError, match=message):
        jax.jit(outside)(1.0)


@pytest.mark.parametrize("how", ["graph", "schedule", "profile"])
def test_not_inside_a_body(how: str) -> None:
    @jr.rec_fn
    def inside(n: Any) -> Any:
        getattr(inside, how)(n)
        return jr.cond(n == 0, lambda: n, lambda: inside(n - 1))

    with pytest.raises(jr.UnsupportedError, match=rf"{how}\(inside\) inside the body of inside"):
        inside(3)


def test_text_of_a_schedule_has_a_line_a_wave_and_an_end() -> None:
    short = fold.schedule(*ARGS)
    assert len(str(short).splitlines()) == 1 + len(short.waves)
    long = str(count.schedule(1.0, 200))
    assert long.startswith("count: 201 calls, depth 201, 20")
    assert re.search(r"\.\.\. \d+ more waves$", long)
    assert len(long.splitlines()) < 50


def bars(svg: str) -> list[dict[str, float]]:
    found = []
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        if group.get("class") == "wave":
            rects = group.findall(f"{SVG}rect")
            found.append({r.get("class", ""): float(r.get("height", "nan")) for r in rects})
    return found


def test_drawing_of_a_schedule_is_to_scale() -> None:
    schedule = fold.schedule(*ARGS)
    drawn = bars(schedule_svg(schedule))
    assert len(drawn) == len(schedule.waves)
    scale = 160 / max(wave.width for wave in schedule.waves)
    for bar, wave in zip(drawn, schedule.waves, strict=True):
        assert bar["calls"] == pytest.approx(scale * wave.count, abs=0.1)
        assert bar["padding"] == pytest.approx(scale * wave.width, abs=0.1)


def test_tooltips_of_a_schedule_say_what_a_wave_is() -> None:
    schedule = fold.schedule(*ARGS)
    titles = [e.text or "" for e in ET.fromstring(schedule_svg(schedule)).iter(f"{SVG}title")]
    for title, wave in zip(titles, schedule.waves, strict=True):
        assert f"{wave.cell}, {wave.count} calls at width {wave.width}" in title


def test_a_long_schedule_is_drawn_up_to_a_limit() -> None:
    schedule = count.schedule(1.0, 2000)
    assert len(schedule.waves) > MOST_WAVES
    svg = schedule_svg(schedule)
    assert len(bars(svg)) == MOST_WAVES
    assert f"the first {MOST_WAVES} are drawn" in svg


# Profiles.


@pytest.fixture(scope="module")
def profile() -> Profile:
    return fold.profile(*ARGS)


def same(a: Schedule, b: Schedule) -> bool:
    return a.waves == b.waves and a.num_calls == b.num_calls and a.depth == b.depth


def test_a_profile_agrees_with_the_schedule(profile: Profile) -> None:
    schedule = fold.schedule(*ARGS)
    assert same(profile.schedule, schedule)
    waves = Counter((wave.cell, wave.width) for wave in schedule.waves)
    assert {(c.cell, c.width): c.waves for c in profile.cells} == waves
    assert sum(cell.calls for cell in profile.cells) == schedule.rows
    assert sum(cell.padding for cell in profile.cells) == schedule.padded_rows - schedule.rows
    assert profile.padding == pytest.approx(1 - schedule.rows / schedule.padded_rows)


def test_a_profile_has_times(profile: Profile) -> None:
    assert len(profile.stages) == 4
    assert all(
        cell.seconds > 0 and cell.total == cell.waves * cell.seconds for cell in profile.cells
    )
    call = next(s for label, s in profile.stages.items() if label.startswith("whole call"))
    assert call > 0


def test_a_second_profile_compiles_nothing(profile: Profile) -> None:
    assert profile.compilations <= 1
    again = fold.profile(*ARGS)
    assert again.compilations == 0
    assert next(s for label, s in again.stages.items() if label.startswith("compilation")) == 0.0


def test_bytes_of_a_profile_are_those_of_the_tapes(profile: Profile) -> None:
    row = 3 * 4
    assert profile.value_bytes % row == 0
    assert profile.value_bytes >= row * profile.schedule.rows
    # The default policy keeps the product of each node: three numbers a row.
    assert profile.residual_bytes % row == 0
    assert profile.residual_bytes > 0
    keeps_nothing = fold.with_options(policy=jax.checkpoint_policies.nothing_saveable)
    assert keeps_nothing.profile(*ARGS).residual_bytes < profile.residual_bytes


def test_text_of_a_profile_has_its_numbers(profile: Profile) -> None:
    text = str(profile)
    schedule = profile.schedule
    assert text.startswith(f'fold on executor "graph": {schedule.num_calls} calls')
    assert "cell, measured alone" in text
    unused = schedule.padded_rows - schedule.rows
    assert f"padding: {unused} of {schedule.padded_rows} rows" in text
    for cell in profile.cells:
        assert re.search(
            rf"{re.escape(cell.cell)} +{cell.width} +{cell.waves} +{cell.calls} ", text
        )


def test_a_trace_has_the_waves_in_order(profile: Profile, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    profile.save_trace(path)
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    lane = next(e for e in events if e["name"] == "thread_name")
    assert "estimated" in lane["args"]["name"]
    waves = [e for e in events if e["ph"] == "X"]
    assert [(e["name"], e["args"]["calls"]) for e in waves] == [
        (wave.cell, wave.count) for wave in profile.schedule.waves
    ]
    for before, after in itertools.pairwise(waves):
        assert after["ts"] == pytest.approx(before["ts"] + before["dur"])
    total = sum(cell.total for cell in profile.cells)
    assert sum(e["dur"] for e in waves) == pytest.approx(1e6 * total)


def test_the_reference_executor_is_profiled_as_such() -> None:
    with jr.executor("reference"):
        profile = fold.profile(*ARGS)
    assert profile.executor == "reference"
    assert profile.compilations == 0
    assert {wave.width for wave in profile.schedule.waves} == {1}
    assert profile.value_bytes == profile.residual_bytes == 0
    assert not any("one program" in label for label in profile.stages)


def test_a_cell_that_draws_random_numbers_is_profiled() -> None:
    @jr.rec_fn
    def walk_randomly(key: Any, n: Any) -> Any:
        first, rest = jax.random.split(key)
        step = jax.random.normal(first, (2,))
        return jr.cond(n == 0, lambda: jnp.zeros(2), lambda: step + walk_randomly(rest, n - 1))

    profile = walk_randomly.profile(jax.random.key(0), 3)
    assert profile.schedule.num_calls == 4
    assert all(cell.seconds > 0 for cell in profile.cells)


class TestMinibatch:
    """What `vmap` makes of a call: its lanes share waves."""

    def test_roots(self) -> None:
        roots = jnp.array([0, 1, 0])
        batch = fold.schedule(*ARGS[:2], roots, in_axes=(None, None, 0))
        alone = [fold.schedule(*ARGS[:2], root) for root in roots]
        assert batch.num_calls == sum(x.num_calls for x in alone)
        assert batch.depth == max(x.depth for x in alone)
        assert len(batch.waves) == max(len(x.waves) for x in alone)

    def test_examples_that_share_a_tree(self) -> None:
        weights = jnp.stack([ARGS[0]] * 4)
        batch = fold.schedule(weights, *ARGS[1:], in_axes=(0, None, None))
        assert batch.num_calls == fold.schedule(*ARGS).num_calls

    def test_an_axis_that_counts_from_the_end(self) -> None:
        batch = count.schedule(jnp.ones((70, 2)), jnp.array([3, 5]), in_axes=(-1, -1))
        assert batch.num_calls == 10

    @pytest.mark.parametrize("executor", ["graph", "host"])
    def test_profile(self, executor: str) -> None:
        with jr.executor(executor):
            profile = count.profile(jnp.ones((2, 70)), jnp.array([3, 5]), in_axes=0)
        assert profile.schedule.num_calls == 10
        assert sum(cell.calls for cell in profile.cells) == profile.schedule.rows

    def test_computed_control_and_hidden_arguments(self) -> None:
        @jr.rec_fn
        def halved(x: Any, key: Any) -> Any:
            noise = jax.random.uniform(jr.call_key(key)) / 100
            return jr.cond(jnp.sum(x) < 1, lambda: x, lambda: halved(x / 2 + noise, key))

        xs, key = jnp.array([[0.1], [2.0], [9.0]]), jax.random.key(0)
        batch = halved.schedule(xs, key, in_axes=(0, None))
        assert batch.num_calls == sum(halved.schedule(x, key).num_calls for x in xs)

    def test_axes_that_do_not_fit(self) -> None:
        with pytest.raises(jr.SignatureError, match=r"profile of count: in_axes maps axes of diff"):
            count.profile(jnp.ones(2), jnp.arange(3), in_axes=0)
        with pytest.raises(jr.UnsupportedError, match=r"those of several examples with in_axes="):
            jax.vmap(count.schedule)(jnp.ones(2), jnp.arange(2))


def test_factorizations_are_kept_and_not_computed_again() -> None:
    @jr.rec_fn
    def whitened(x: Any, n: Any) -> Any:
        def more() -> Any:
            inner = whitened(x, n - 1)
            return jnp.linalg.cholesky(jnp.eye(3) + jnp.outer(inner[0], inner[0]))

        return jr.cond(n == 0, lambda: x, more)

    kept = whitened.profile(jnp.eye(3), 4).residual_bytes
    products = whitened.with_options(policy=jax.checkpoint_policies.dots_saveable)
    assert kept - products.profile(jnp.eye(3), 4).residual_bytes >= 4 * jnp.eye(3).nbytes
