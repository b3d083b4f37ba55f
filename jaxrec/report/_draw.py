"""A schedule as an SVG drawing, for Jupyter: its waves from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jaxrec import _svg

if TYPE_CHECKING:
    from jaxrec.report._schedule import Schedule, Wave

MOST_WAVES = 1000
"""Waves that are drawn; a notebook does not show more of them than this."""

_HEIGHT, _MARGIN, _LEGEND = 160.0, 10.0, 18.0
_PLOT_WIDTH, _MOST_BAR, _LEAST_BAR = 900.0, 26.0, 3.0
_COLOURS = ("#3b75af", "#ef8636", "#519e3e", "#8d69b8", "#c53a32", "#84584e", "#d57dbe", "#7f7f7f")


def schedule_svg(schedule: Schedule) -> str:
    """Draws a schedule.

    A bar is a wave. Its full height is the width at which the cell is computed, its solid part the
    calls in it; what is pale above them is padding. The colour says which cell runs.

    Args:
        schedule: as `f.schedule(*args)` returns it.

    Returns:
        An SVG document of at most `MOST_WAVES` waves.
    """
    shown = schedule.waves[:MOST_WAVES]
    cells = list(dict.fromkeys(wave.cell for wave in schedule.waves))
    colours = {cell: _COLOURS[k % len(_COLOURS)] for k, cell in enumerate(cells)}
    step = max(_LEAST_BAR, min(_MOST_BAR, _PLOT_WIDTH / max(len(shown), 1)))
    tallest = max((wave.width for wave in shown), default=1)
    head = _headline(schedule, len(shown))
    bars = [_bar(k, w, step, _HEIGHT / tallest, colours[w.cell]) for k, w in enumerate(shown)]
    legend = [_legend(k, cell, schedule.waves, colours[cell]) for k, cell in enumerate(cells)]
    texts = [head, *(_legend_text(cell, schedule.waves) for cell in cells)]
    width = max(step * len(shown), *map(_svg.text_width, texts)) + 3 * _MARGIN
    height = _top() + _HEIGHT + _MARGIN + _LEGEND * len(cells)
    title = _svg.text(head, _MARGIN, _svg.LINE_HEIGHT + 4)
    return _svg.document(width, height, title + "".join([*bars, *legend]))


def _top() -> float:
    return 2.0 * _svg.LINE_HEIGHT


def _headline(schedule: Schedule, shown: int) -> str:
    waves = f"{len(schedule.waves)} waves"
    if shown < len(schedule.waves):
        waves += f" (the first {shown} are drawn)"
    return f"{schedule.name}: {schedule.num_calls} calls, depth {schedule.depth}, {waves}"


def _bar(number: int, wave: Wave, step: float, scale: float, colour: str) -> str:
    left, bottom = _MARGIN + number * step, _top() + _HEIGHT
    tooltip = (
        f"wave {number}: {wave.cell}, {wave.count} calls at width {wave.width}, "
        f"rows {wave.start}..{wave.start + wave.count - 1}"
    )
    padding = _part("padding", left, bottom, step, wave.width * scale, colour, 0.2)
    calls = _part("calls", left, bottom, step, wave.count * scale, colour, 1.0)
    return _svg.element("g", _svg.title(tooltip) + padding + calls, class_="wave")


def _part(
    kind: str, left: float, bottom: float, step: float, height: float, colour: str, opacity: float
) -> str:
    top, width = bottom - height, step - 1
    look: dict[str, object] = {"fill": colour, "fill_opacity": opacity, "class_": kind}
    return _svg.element("rect", "", x=left, y=top, width=width, height=height, **look)


def _legend(number: int, cell: str, waves: Sequence[Wave], colour: str) -> str:
    y = _top() + _HEIGHT + _MARGIN + number * _LEGEND
    swatch = _svg.element("rect", x=_MARGIN, y=y, width=10, height=10, fill=colour)
    return swatch + _svg.text(_legend_text(cell, waves), _MARGIN + 16, y + 9)


def _legend_text(cell: str, waves: Sequence[Wave]) -> str:
    mine = [wave for wave in waves if wave.cell == cell]
    calls, rows = sum(wave.count for wave in mine), sum(wave.width for wave in mine)
    return f"{cell}: {len(mine)} waves, {calls} calls, {rows} rows computed"
