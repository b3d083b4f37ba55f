"""The graph as an SVG drawing, for Jupyter: rows from arguments to results, no layout program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from jaxrec import _svg
from jaxrec.graph._boxes import Box, Edge, boxes_of
from jaxrec.graph._ir import Graph

_GAP, _ROW_GAP, _PAD = 14.0, 26.0, 12.0

_FRAMES = {"graph": "none", "choice": "none", "function": "#8a94a0", "region": "#b9a3d8"}
_FILLS = {
    "arg": "#e3f1e1",
    "captured": "#e3f1e1",
    "result": "#cfe7cb",
    "prim": "#f4f5f7",
    "call": "#fde3c4",
    "return": "#fbd0a0",
    "switch": "#e6dcf5",
    "merge": "#e6dcf5",
}
_EDGES = {
    "argument": ("#b4c7b0", "none"),
    "data": ("#69737d", "none"),
    "tag": ("#d9822b", "5 3"),
    "choice": ("#9a7fc9", "2 3"),
}


class Rect(NamedTuple):
    """Where a box is, in pixels."""

    x: float
    y: float
    width: float
    height: float


def graph_svg(graph: Graph) -> str:
    """Draws a graph.

    A frame is a function, or a region of a Switch; a box an operation, or several that feed one
    another. Call_i and Return_i are joined by a dashed line: what happens between them is in the
    callee's frame. Arguments that a call passes on under their own name have no line to it.

    Args:
        graph: as `f.graph(*args)` returns it.

    Returns:
        An SVG document. Tooltips have the types and everything the boxes leave out.
    """
    frame, edges = boxes_of(graph)
    sizes: dict[Box, tuple[float, float]] = {}
    _measure(frame, sizes)
    places = dict(_place(frame, 0.0, 0.0, sizes))
    leaves = [_leaf(b, r) for b, r in places.items() if b.kind in _FILLS]
    frames = [_frame(b, r) for b, r in places.items() if _FRAMES.get(b.kind, "none") != "none"]
    lines = [_edge(edge, places) for edge in edges]
    return _svg.document(*sizes[frame], _arrow_head() + "".join([*frames, *lines, *leaves]))


def _measure(box: Box, sizes: dict[Box, tuple[float, float]]) -> tuple[float, float]:
    """Width and height of a box, those inside it first."""
    widest = max((_svg.text_width(line) for line in box.lines), default=0.0) + _PAD
    height = len(box.lines) * _svg.LINE_HEIGHT + _PAD / 2
    if box.kind in _FRAMES:
        rows = [[_measure(inner, sizes) for inner in row] for row in box.rows]
        inside = max((sum(w + _GAP for w, _ in row) - _GAP for row in rows), default=0.0)
        widest = max(widest, inside + 2 * _PAD)
        height += sum(max(h for _, h in row) + _ROW_GAP for row in rows)
    sizes[box] = (widest, height)
    return sizes[box]


def _place(
    box: Box, x: float, y: float, sizes: Mapping[Box, tuple[float, float]]
) -> Iterator[tuple[Box, Rect]]:
    """Places a box at a corner, and in it the rows, each in the middle."""
    width, height = sizes[box]
    yield box, Rect(x, y, width, height)
    top = y + len(box.lines) * _svg.LINE_HEIGHT + _ROW_GAP / 2
    for row in box.rows:
        left = x + (width - sum(sizes[inner][0] + _GAP for inner in row) + _GAP) / 2
        for inner in row:
            yield from _place(inner, left, top, sizes)
            left += sizes[inner][0] + _GAP
        top += max(sizes[inner][1] for inner in row) + _ROW_GAP


def _frame(box: Box, at: Rect) -> str:
    rect = _rect(at, fill="none", stroke=_FRAMES[box.kind], stroke_dasharray="4 3")
    caption = _svg.text(box.lines[0], at.x + 6, at.y + _svg.LINE_HEIGHT, fill="#555555")
    return _group(box, rect + caption)


def _leaf(box: Box, at: Rect) -> str:
    rect = _rect(at, fill=_FILLS[box.kind], stroke="#8a94a0")
    middle, first = at.x + at.width / 2, at.y + _svg.LINE_HEIGHT
    lines = [
        _svg.text(line, middle, first + k * _svg.LINE_HEIGHT, text_anchor="middle")
        for k, line in enumerate(box.lines)
    ]
    return _group(box, rect + "".join(lines))


def _group(box: Box, content: str) -> str:
    return _svg.element("g", _svg.title(box.tooltip) + content, class_=box.kind)


def _rect(at: Rect, **look: str) -> str:
    return _svg.element("rect", x=at.x, y=at.y, width=at.width, height=at.height, rx=4, **look)


def _edge(edge: Edge, places: Mapping[Box, Rect]) -> str:
    colour, dashes = _EDGES[edge.kind]
    source, target = places[edge.source], places[edge.target]
    x1, y1 = source.x + source.width / 2, source.y + source.height
    x2, y2 = target.x + target.width / 2, target.y
    bend = max(10.0, min(60.0, abs(y2 - y1) / 2))
    points = [(x1, y1), (x1, y1 + bend), (x2, y2 - bend), (x2, y2)]
    start, *curve = (f"{x:.1f} {y:.1f}" for x, y in points)
    return _svg.element(
        "path",
        d=f"M{start} C{' '.join(curve)}",
        fill="none",
        stroke=colour,
        stroke_dasharray=dashes,
        marker_end="url(#jaxrec-arrow)",
        class_=edge.kind,
    )


def _arrow_head() -> str:
    shape = _svg.element("path", d="M0 0 L6 3 L0 6 z", fill="#69737d")
    marker = _svg.element(
        "marker", shape, id="jaxrec-arrow", markerWidth=6, markerHeight=6, refX=5, refY=3,
        orient="auto",
    )  # fmt: skip
    return _svg.element("defs", marker)
