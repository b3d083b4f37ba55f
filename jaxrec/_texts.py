"""Texts of errors, which stay readable however large what they speak of is."""

from __future__ import annotations

from collections.abc import Sequence

_MOST_LINES, _MOST_CHARACTERS = 8, 300


def listed(parts: Sequence[str], between: str) -> str:
    """Some parts of a text, and how many more there are."""
    if len(parts) <= _MOST_LINES + 1:
        return between.join(parts)
    return between.join([*parts[:_MOST_LINES], f"... and {len(parts) - _MOST_LINES} more"])


def cut(text: str, most: int = _MOST_CHARACTERS) -> str:
    """A text without its middle if it is long."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... {text[-most // 2 :]}"
