"""Plot the training curve: loss and validation measure by update, from the run's log."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from overt.errors import InputError, needed_by
from overt.files import whole
from overt.learn.run.log import read_log

# _LOSS, _MEASURE: blue and vermillion of Okabe and Ito, which colour-blind readers can distinguish.
_LOSS, _MEASURE, _FRAME = "#0072B2", "#D55E00", "#B8BDC2"


def draw_curve(log: Path, picture: Path, measure: str) -> None:
    """Draw the loss of each update, faintly, its mean over intervals of updates, and `measure` at each evaluation.

    Raises MissingExtra without matplotlib, and InputError for a log without updates.
    """
    with needed_by("the training curve", "plot"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    entries = read_log(log)
    updates = [(entry["update"], entry["loss"]) for entry in entries if "loss" in entry]
    if not updates:
        raise InputError("a log with updates", got=f"{log} without one", fix="start the run")
    figure = Figure(figsize=(8, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot(*zip(*updates, strict=True), color=_LOSS, alpha=0.2, linewidth=0.8)
    axes.plot(*zip(*bin_means(updates), strict=True), color=_LOSS, linewidth=1.6)
    axes.set_xlabel("update")
    axes.set_ylabel("training loss, nats", color=_LOSS)
    _plot_measure(
        axes, [(entry["update"], entry["validation"][measure]) for entry in entries if "validation" in entry], measure
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FRAME)
    axes.grid(axis="y", color="#ECEEF0", linewidth=0.8)
    with whole(picture) as temporary:
        figure.savefig(temporary)


def bin_means(points: Sequence[tuple[float, float]], parts: int = 200) -> list[tuple[float, float]]:
    """The mean position and the mean value of points in bins of equal size; few points are returned unchanged.

    >>> bin_means([(1, 4.0), (2, 2.0), (3, 1.0), (4, 2.0)], parts=2)
    [(1.5, 3.0), (3.5, 1.5)]
    """
    bins = np.array_split(np.asarray(points, dtype=float), min(parts, len(points)))
    return [tuple(points_of_bin.mean(0).tolist()) for points_of_bin in bins]


def _plot_measure(axes: Any, points: list[tuple[int, float]], measure: str) -> None:
    if not points:
        return
    right = axes.twinx()
    right.plot(*zip(*points, strict=True), color=_MEASURE, marker="o", markersize=3, linewidth=1.2)
    right.set_ylabel(f"{measure}, validation", color=_MEASURE)
    right.spines[["top", "left"]].set_visible(False)
    right.spines[["right", "bottom"]].set_color(_FRAME)
