"""A picture of a smoothed series, data and curve, made to be put into a report."""

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError, MissingExtra
from overt.files import whole
from overt.smoothing.series import Floats

# Okabe and Ito's blue, and a grey of another lightness: told apart by every eye and in black and white.
_CURVE, _DATA = "#0072B2", "#8A8A8A"


def check_picture(path: str | os.PathLike[str]) -> None:
    """Refuse a picture that could not be written: without matplotlib, or in a format that it does not know."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ModuleNotFoundError as error:
        raise MissingExtra("a picture", needs="matplotlib", extra="plot") from error
    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    ending = os.path.splitext(path)[1].lstrip(".").lower()
    if ending not in known:
        cure = "end its name in .png, .svg or .pdf"
        raise InputError("a picture's format is its file's ending", got=os.fspath(path), cure=cure)


def draw(path: str | os.PathLike[str], times: NDArray[Any], given: Floats, smoothed: Floats, *, x: str, y: str) -> None:
    """Draw the points and the curve against their times, labelled `x` and `y`; the file's ending is the format."""
    check_picture(path)
    from matplotlib.figure import Figure

    order = np.argsort(times, kind="stable")
    figure = Figure(figsize=(8.0, 4.0), dpi=200, layout="constrained")
    axes = figure.subplots()
    # A short series shows every point; in a long one they would be a smear.
    size = float(np.clip(1500.0 / given.size, 0.3, 16.0))
    axes.scatter(times[order], given[order], s=size, color=_DATA, linewidths=0, label="data", rasterized=given.size > 10_000)
    axes.plot(times[order], smoothed[order], color=_CURVE, linewidth=1.8, label="smoothed")
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(x=0.01)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    with whole(path) as temporary:
        figure.savefig(temporary)
