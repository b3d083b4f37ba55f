"""SVG as text: what the drawings of graphs and schedules are written with."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

LINE_HEIGHT = 14
"""Height of a line of text, in pixels."""

_CHAR_WIDTH = 6.7
_FONT = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:11px"


def text_width(text: str) -> float:
    """The width of a line of text, in pixels; an estimate, since fonts differ."""
    return _CHAR_WIDTH * len(text)


def element(tag: str, content: str = "", **attributes: object) -> str:
    """Writes an element; `content` is SVG, and an attribute `stroke_width` is `stroke-width`."""
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    written = "".join(f" {names[k]}={quoteattr(_show(v))}" for k, v in attributes.items())
    return f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>"


def text(line: str, x: float, y: float, **attributes: object) -> str:
    """Writes a line of text."""
    return element("text", escape(line), x=x, y=y, **attributes)


def title(tooltip: str) -> str:
    """What a browser shows when the mouse rests on the element around it."""
    return element("title", escape(tooltip))


def document(width: float, height: float, content: str) -> str:
    """A whole drawing on a white ground, so that it can be read on a dark page too."""
    ground = element("rect", width="100%", height="100%", fill="white")
    return element(
        "svg",
        ground + content,
        xmlns="http://www.w3.org/2000/svg",
        width=width,
        height=height,
        viewBox=f"0 0 {_show(width)} {_show(height)}",
        style=_FONT,
    )


def _show(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
