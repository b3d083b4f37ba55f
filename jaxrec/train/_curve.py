"""The learning curve as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


def save_curve(path: Path, history: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws training loss and dev accuracies over epochs into a PNG file.

    The figure is made without pyplot, so that no display is needed and no global state is left.

    Args:
        path: The file to write.
        history: One entry an epoch with ``epoch``, ``loss`` and ``dev`` (name to accuracy).
        title: Written above the picture.
    """
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    figure.suptitle(title, parse_math=False)
    epochs = [entry["epoch"] for entry in history]
    left.plot(epochs, [entry["loss"] for entry in history], marker="o", color="tab:red")
    _label(left, "training loss (nats a tree)")
    for name in history[0]["dev"]:
        right.plot(epochs, [entry["dev"][name] for entry in history], marker="o", label=name)
    right.set_ylim(0.0, 1.0)
    right.legend()
    _label(right, "dev accuracy")
    figure.savefig(path, dpi=120)


def _label(axes: Axes, name: str) -> None:
    axes.set_xlabel("epoch")
    axes.set_ylabel(name)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
