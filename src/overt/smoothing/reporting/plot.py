"""A picture of smoothed series for a report: data, curve, band, and the mixture of heads."""

import io
import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError, MissingExtra
from overt.files import whole
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.reporting.curve import Curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's blue and a grey of another lightness, which also differ for colour-blind readers and in black and white.
_CURVE, _DATA, _FRAME = "#0072B2", "#8A8F94", "#B8BDC2"
# Each family of heads has a fixed colour; families not listed here take one of `_SPARE`.
_HEADS = {
    "parabolas": "#9DB8CC",
    "lines": "#E3B778",
    "means": "#D9D3BE",
    "one side": "#C79FB8",
    "patches": "#8FBFA5",
    "guided": "#A9A9C8",
    "waves": "#EFDC98",
    "segments": "#DBA6AE",
    "the point itself": "#C98F7A",
    "others": "#DADDE0",
}
_SPARE = ("#B5C7B0", "#C9B49A", "#8FA9A9", "#BFA5A5")

# More series in one picture are not readable.
PANELS = 12
# Points and runs of the curve drawn at most: about three per column of pixels.
_POINTS, _RUNS = 30_000, 2_000
# A curve of more points than this, whose ups and downs come to so many times its range, is drawn with an excerpt beside it.
_LONG, _DENSE, _EXCERPT = 2_000, 80, 200


@dataclass(frozen=True)
class Panel:
    """One series of a picture."""

    name: str
    times: NDArray[Any]  # (n,) numbers or datetime64, in UTC where there is a time zone
    data: Floats  # (n,)
    curve: Curve
    zone: tzinfo | None = None  # in which dates are written


def check_picture(path: str | os.PathLike[str], panels: int = 1) -> None:
    """Refuse a picture that cannot be drawn: without matplotlib, in an unknown format, or of too many series."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ModuleNotFoundError as error:
        raise MissingExtra("a picture", needs="matplotlib", extra="plot") from error
    known = sorted(FigureCanvasAgg.get_supported_filetypes())
    ending = os.path.splitext(path)[1].lstrip(".").lower()
    if ending not in known:
        fix = "end the name in .png, .svg or .pdf"
        raise InputError("a picture file with a known suffix", got=os.fspath(path), fix=fix)
    if panels > PANELS:
        fix = "leave out the picture, or smooth fewer columns or groups"
        raise InputError(f"at most {PANELS} series in a picture", got=str(panels), fix=fix)


def draw(path: str | os.PathLike[str], panels: Sequence[Panel], *, x: str) -> None:
    """Draw each series in a panel against its times, labelled `x`; the file's suffix is the format."""
    check_picture(path, len(panels))
    with whole(path) as temporary:
        # In memory first, since the PDF writer does not close its file if the disk is full.
        buffer = io.BytesIO()
        figure_of(panels, x=x).savefig(buffer, format=temporary.suffix.lstrip(".").lower())
        temporary.write_bytes(buffer.getbuffer())


def figure_of(panels: Sequence[Panel], *, x: str) -> "Figure":
    """The picture as a matplotlib Figure, which has no window and need not be closed."""
    from matplotlib.figure import Figure

    panel_height = 3.6 if len(panels) == 1 else 2.3
    dense = [_dense(panel) for panel in panels]
    figure = Figure(figsize=(11.0 if any(dense) else 8.5, panel_height * len(panels) + 0.4), dpi=200, layout="constrained")
    strip = 1.0 if len(panels) == 1 else 1.4
    heights = [height for panel in panels for height in ([16, strip] if _mixed(panel) else [16])]
    widths = [5, 2] if any(dense) else [1]
    grid = figure.add_gridspec(len(heights), len(widths), height_ratios=heights, width_ratios=widths, hspace=0.0)
    rows = iter(range(len(heights)))
    colours = _colours({family for panel in panels for family in panel.curve.families})
    for panel, is_dense in zip(panels, dense, strict=True):
        row = next(rows)
        axes = figure.add_subplot(grid[row, 0])
        bottom_axes = figure.add_subplot(grid[next(rows), 0], sharex=axes) if _mixed(panel) else axes
        _panel(axes, bottom_axes, panel, colours)
        _time_axis(bottom_axes, panels, with_zone(x, panel.zone) if panel is panels[-1] else "")
        if is_dense:
            _excerpt(figure.add_subplot(grid[row : row + 1 + _mixed(panel), 1]), axes, panel)
    _legends(figure, colours)
    return figure


def _dense(panel: Panel) -> bool:
    """Whether a long curve goes up and down so often that its line fills an area."""
    values = panel.curve.values[np.argsort(panel.times, kind="stable")]
    values = values[~np.isnan(values)]
    return values.size > _LONG and bool(np.abs(np.diff(values)).sum() > _DENSE * np.ptp(values))


def _excerpt(axes: "Axes", whole: "Axes", panel: Panel) -> None:
    """The middle of a long series beside the whole, where it is shaded."""
    order = np.argsort(panel.times, kind="stable")
    length = max(_EXCERPT, order.size // 50)
    part = order[(order.size - length) // 2 :][:length]
    times, curve = panel.times[part], panel.curve
    axes.scatter(times, panel.data[part], s=float(np.clip(1500.0 / length, 1.2, 10.0)), color=_DATA, alpha=0.8, linewidths=0)
    if curve.lower is not None and curve.upper is not None:
        axes.fill_between(times, curve.lower[part], curve.upper[part], color=_CURVE, alpha=0.22, linewidth=0)
    axes.plot(times, curve.values[part], color=_CURVE, linewidth=1.3)
    whole.axvspan(times[0], times[-1], color="#ECEEF0", zorder=0)
    axes.set_title(f"{length:,} of {order.size:,} points", fontsize=9)
    axes.grid(axis="y", color="#ECEEF0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FRAME)
    axes.tick_params(color=_FRAME, labelsize=8)
    _dates(axes, times, panel.zone, ticks=3)


def _colours(families: set[str]) -> dict[str, str]:
    """The colour of each family, in the order of the legend."""
    known = {family: colour for family, colour in _HEADS.items() if family in families}
    return known | dict(zip(sorted(families - known.keys()), itertools.cycle(_SPARE), strict=False))


def _mixed(panel: Panel) -> bool:
    return panel.curve.shares is not None and len(panel.curve.families) > 1


def _panel(axes: "Axes", strip: "Axes", panel: Panel, colours: dict[str, str]) -> None:
    order = np.argsort(panel.times, kind="stable")
    times = panel.times[order]
    _data(axes, times, panel.data[order])
    _curve(axes, times, panel.curve, order, dense=_dense(panel))
    axes.set_ylabel(panel.name)
    axes.grid(axis="y", color="#ECEEF0", linewidth=0.8)
    axes.set_axisbelow(True)
    if strip is not axes:
        _strip(strip, times, panel.curve, colours)
        axes.tick_params(bottom=False, labelbottom=False)
    for part in (axes, strip):
        part.spines[["top", "right"]].set_visible(False)
        part.spines[["left", "bottom"]].set_color(_FRAME)
        part.tick_params(color=_FRAME, labelsize=9)


def _data(axes: "Axes", times: NDArray[Any], data: Floats) -> None:
    shown = sample(data)
    # In a short series every point is a dot; in a long one the points are a cloud.
    size, alpha = float(np.clip(2500.0 / data.size, 1.2, 14.0)), float(np.clip(4000.0 / data.size, 0.3, 0.9))
    axes.scatter(times[shown], data[shown], s=size, alpha=alpha, color=_DATA, linewidths=0, rasterized=data.size > 5_000)


def _curve(axes: "Axes", times: NDArray[Any], curve: Curve, order: Indices, *, dense: bool) -> None:
    values = curve.values[order]
    runs = extremes(values, _RUNS)
    if curve.lower is not None and curve.upper is not None:
        lower, upper = curve.lower[order][runs], curve.upper[order][runs]
        axes.fill_between(times[runs], lower, upper, color=_CURVE, alpha=0.22, linewidth=0, label="95% band of the mean")
    width = 0.5 if dense else 1.5
    axes.plot(times[runs], values[runs], color=_CURVE, linewidth=width, solid_joinstyle="round", label="smoothed")
    if curve.note:
        axes.text(0.01, 0.99, curve.note, transform=axes.transAxes, va="top", fontsize=8, color="#5A6067")


def _strip(axes: "Axes", times: NDArray[Any], curve: Curve, colours: dict[str, str]) -> None:
    """The mixture of heads below the curve: the share of each family at each point."""
    assert curve.shares is not None
    cells = curve.shares.shape[1]
    edges = times[np.minimum(np.linspace(0, times.size, cells + 1).astype(int), times.size - 1)]
    tops = np.vstack([np.zeros(cells), np.cumsum(curve.shares, axis=0)])  # (families + 1, cells)
    for index, family in enumerate(curve.families):
        bottom, top = (np.append(row, row[-1]) for row in tops[index : index + 2])
        axes.fill_between(edges, bottom, top, step="post", color=colours[family], linewidth=0)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_ylabel("heads", rotation=0, ha="right", va="center", fontsize=9)


def _time_axis(axes: "Axes", panels: Sequence[Panel], x: str) -> None:
    """The same range of times for all panels."""
    first, last = min(panel.times.min() for panel in panels), max(panel.times.max() for panel in panels)
    if first < last:
        axes.set_xlim(first - (last - first) / 100, last + (last - first) / 100)
    _dates(axes, np.asarray(first), panels[0].zone, ticks=9)
    if x:
        axes.set_xlabel(x)


def with_zone(x: str, zone: tzinfo | None) -> str:
    """The label of an axis of times with their zone, where they have one.

    >>> from datetime import UTC
    >>> with_zone("when", UTC), with_zone("when", None)
    ('when (UTC)', 'when')
    """
    return x if zone is None else f"{x} ({zone})".lstrip()


def _dates(axes: "Axes", times: NDArray[Any], zone: tzinfo | None, *, ticks: int) -> None:
    if times.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

        class Dates(ConciseDateFormatter):
            """Names the month or the year of the first tick too where the last is in another."""

            def format_ticks(self, values: Any) -> list[str]:
                labels = super().format_ticks(values)
                if len(labels) > 1:
                    labels[0] = _first_label(labels[0], *num2date([values[0], values[-1]], tz=zone))
                return labels

        locator = AutoDateLocator(minticks=min(ticks, 4), maxticks=ticks, tz=zone)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(Dates(locator, tz=zone))


def _first_label(label: str, first: datetime, last: datetime) -> str:
    """The label of the first tick, with its month or year where the last tick has another, which alone is named beside the axis."""
    if label == f"{first:%b}" and first.year != last.year:
        return f"{first:%Y-%b}"
    if label == f"{first:%d}" and (first.year, first.month) != (last.year, last.month):
        return f"{first:%b-%d}"
    return f"{first:%b-%d %H:%M}" if label == f"{first:%H:%M}" and first.date() != last.date() else label


def _legends(figure: "Figure", colours: dict[str, str]) -> None:
    """The legend of the curve above, that of the strip below, neither over the data."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    parts = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    # A separate dot, since those of a long series are too faint.
    dot = Line2D([], [], marker="o", markersize=3.5, color=_DATA, linestyle="", label="data")
    figure.legend(handles=[dot, *parts.values()], loc="outside upper right", ncols=3, frameon=False, fontsize=9)
    if len(colours) > 1:
        heads = [Patch(color=colour, label=family) for family, colour in colours.items()]
        figure.legend(
            handles=heads,
            loc="outside lower right",
            ncols=len(heads),
            frameon=False,
            fontsize=8,
            handlelength=1.0,
            handleheight=0.9,
        )


def sample(values: Floats, points: int = _POINTS) -> Indices:
    """The points to draw: all, or in a long series a sample with the extremes."""
    if values.size <= points:
        return np.arange(values.size)
    drawn = np.random.default_rng(0).choice(values.size, points - 2 * _RUNS, replace=False)
    return np.union1d(drawn, extremes(values, _RUNS))


def extremes(values: Floats, runs: int) -> Indices:
    """The indices of the minimum and maximum of each run and of both ends; all indices of a short series."""
    if values.size <= 4 * runs:
        return np.arange(values.size)
    length = -(-values.size // runs)
    padded = np.pad(values, (0, length * runs - values.size), constant_values=np.nan).reshape(runs, length)
    starts = length * np.arange(runs)
    lowest = starts + np.argmin(np.where(np.isnan(padded), np.inf, padded), axis=1)
    highest = starts + np.argmax(np.where(np.isnan(padded), -np.inf, padded), axis=1)
    return np.unique(np.concatenate([[0], lowest, highest, [values.size - 1]]).clip(max=values.size - 1))
