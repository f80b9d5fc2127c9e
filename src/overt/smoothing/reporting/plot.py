"""A picture of smoothed series for a report: data, curve, band, and the mixture of heads."""

import io
import itertools
import os
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError, MissingExtra
from overt.files import whole
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.reporting.curve import Curve
from overt.smoothing.reporting.limits import gaps, limits
from overt.smoothing.reporting.panel import (
    PANELS,
    RUNS,
    Panel,
    as_numbers,
    components,
    extremes,
    gap_ends,
    sample,
    with_gaps,
    with_zone,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's blue, and a grey of another lightness: they also differ for colour-blind readers and in black and white.
_CURVE, _DATA, _FRAME, _OUTLIER, _GAP = "#0072B2", "#8A8F94", "#B8BDC2", "#D55E00", "#F3EFE4"
# _HEADS: fixed colours of families of heads; other families take one of `_SPARE`.
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

# _LONG, _DENSE: a curve of more points, whose ups and downs exceed this many ranges, is drawn with an excerpt of _EXCERPT points or more.
_LONG, _DENSE, _EXCERPT = 2_000, 80, 200


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
    """Draw one panel per series against its times, labelled `x`; the file's suffix is the format."""
    check_picture(path, len(panels))
    with whole(path) as temporary:
        # In memory first, since the PDF writer does not close its file if the disk is full.
        buffer = io.BytesIO()
        draw_figure(panels, x=x).savefig(buffer, format=temporary.suffix.lstrip(".").lower())
        temporary.write_bytes(buffer.getbuffer())


def draw_figure(panels: Sequence[Panel], *, x: str) -> "Figure":
    """The picture as a matplotlib Figure, which has no window and need not be closed."""
    from matplotlib.figure import Figure

    panel_height = 3.6 if len(panels) == 1 else 2.3
    dense = [_dense(panel) for panel in panels]
    parts = components(panels[0]) if len(panels) == 1 else {}
    height = panel_height * len(panels) + 1.3 * len(parts) + 0.4
    figure = Figure(figsize=(11.0 if any(dense) else 8.5, height), dpi=200, layout="constrained")
    strip = 1.0 if len(panels) == 1 else 1.4
    heights = [height for panel in panels for height in ([16, strip] if _mixed(panel) else [16])] + [6] * len(parts)
    widths = [5, 2] if any(dense) else [1]
    grid = figure.add_gridspec(len(heights), len(widths), height_ratios=heights, width_ratios=widths, hspace=0.0)
    rows = iter(range(len(heights)))
    colours = _colours({family for panel in panels for family in panel.curve.families})
    for panel, is_dense in zip(panels, dense, strict=True):
        row = next(rows)
        axes = figure.add_subplot(grid[row, 0])
        bottom_axes = figure.add_subplot(grid[next(rows), 0], sharex=axes) if _mixed(panel) else axes
        _panel(axes, bottom_axes, panel, colours)
        bottom_axes = _components(figure, [grid[next(rows), 0] for _ in parts], panel, bottom_axes)
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
    """Draw the middle of a long series next to the whole series, in which it is shaded."""
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
    _frame(axes, labelsize=8)
    _dates(axes, times, panel.zone, ticks=3)


def _colours(families: set[str]) -> dict[str, str]:
    """The colours of families, in the order of the legend."""
    known = {family: colour for family, colour in _HEADS.items() if family in families}
    return known | dict(zip(sorted(families - known.keys()), itertools.cycle(_SPARE), strict=False))


def _mixed(panel: Panel) -> bool:
    return panel.curve.shares is not None and len(panel.curve.families) > 1


def _components(figure: "Figure", cells: Sequence[Any], panel: Panel, above: "Axes") -> "Axes":
    """Draw trend, season and remainder, one below the other, and return the last axes."""
    order, axes = np.argsort(panel.times, kind="stable"), above
    for cell, (name, values) in zip(cells, components(panel).items(), strict=True):
        axes.tick_params(bottom=False, labelbottom=False)
        axes = figure.add_subplot(cell, sharex=above)
        runs = extremes(values[order], RUNS)
        style = {"color": _DATA, "linewidth": 0.5} if name == "remainder" else {"color": _CURVE, "linewidth": 1.0}
        axes.plot(*_broken(panel.times[order], values[order], runs), **style)
        _fit(axes, limits(values, panel.curve.outliers, np.zeros(0) if name == "remainder" else values))
        axes.set_ylabel(name, fontsize=9)
        _frame(axes)
    return axes


def _broken(times: NDArray[Any], values: Floats, runs: Indices) -> tuple[NDArray[Any], Floats]:
    """Some points of a line (n,), which is broken inside gaps of the times."""
    breaks = np.searchsorted(runs, gaps(as_numbers(times)), side="right")
    return np.insert(times[runs], breaks, times[0]), np.insert(values[runs], breaks, np.nan)


def _panel(axes: "Axes", strip: "Axes", panel: Panel, colours: dict[str, str]) -> None:
    order = np.argsort(panel.times, kind="stable")
    times, curve = panel.times[order], panel.curve
    low, high = limits(panel.data, curve.outliers, curve.values, curve.lower, curve.upper)
    _gaps(axes, times, panel.data[order])
    _data(axes, times, panel.data[order], None if curve.outliers is None else curve.outliers[order], (low, high))
    _curve(axes, times, panel.curve, order, dense=_dense(panel))
    for index, position in enumerate(curve.facts.get("changes", [])):
        moment: Any = times[position]
        axes.axvline(moment, color=_OUTLIER, linewidth=0.9, linestyle="--", label="" if index else "change")
    _fit(axes, (low, high))
    axes.set_ylabel(panel.name)
    _frame(axes)
    if strip is not axes:
        _strip(strip, times, panel.curve, colours)
        axes.tick_params(bottom=False, labelbottom=False)
        _frame(strip)


def _fit(axes: "Axes", ends: tuple[float, float]) -> None:
    margin = 0.05 * (ends[1] - ends[0]) or 0.5
    axes.set_ylim(ends[0] - margin, ends[1] + margin)


def _frame(axes: "Axes", labelsize: int = 9) -> None:
    axes.grid(axis="y", color="#ECEEF0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_FRAME)
    axes.tick_params(color=_FRAME, labelsize=labelsize)


def _gaps(axes: "Axes", times: NDArray[Any], data: Floats) -> None:
    """Shade the times without values: the curve there comes only from the model."""
    for index, (start, end) in enumerate(gap_ends(times, data)):
        axes.axvspan(start, end, color=_GAP, linewidth=0, zorder=0, label="" if index else "gap: drawn by the model")


def _data(
    axes: "Axes", times: NDArray[Any], data: Floats, outliers: NDArray[np.bool_] | None, ends: tuple[float, float]
) -> None:
    marked = np.zeros(data.size, dtype=bool) if outliers is None else outliers
    beyond = (data < ends[0]) | (data > ends[1])
    usual = np.flatnonzero(~(marked | beyond))
    shown = usual[sample(data[usual])]
    # In a short series every point is a dot; in a long one the points are a cloud.
    size, alpha = float(np.clip(2500.0 / data.size, 1.2, 14.0)), float(np.clip(4000.0 / data.size, 0.3, 0.9))
    axes.scatter(times[shown], data[shown], s=size, alpha=alpha, color=_DATA, linewidths=0, rasterized=data.size > 5_000)
    within = np.flatnonzero(marked & ~beyond & ~np.isnan(data))
    if within.size:
        axes.plot(times[within], data[within], "x", color=_OUTLIER, markersize=5, linestyle="", label="outlier")
    label = "value beyond the picture"
    for far, end, arrow in ((data < ends[0], ends[0], "v"), (data > ends[1], ends[1], "^")):
        if far.any():
            style = {"color": _OUTLIER, "markersize": 6, "linestyle": "", "clip_on": False, "label": label}
            axes.plot(times[far], np.full(int(far.sum()), end), arrow, **style)
            label = ""


def _curve(axes: "Axes", times: NDArray[Any], curve: Curve, order: Indices, *, dense: bool) -> None:
    times, values, lower, upper = with_gaps(times, curve, order)
    runs = extremes(values, RUNS)
    if curve.lower is not None:
        band = times[runs], lower[runs], upper[runs]
        axes.fill_between(*band, color=_CURVE, alpha=0.22, linewidth=0, label="95% band of the mean")
    width = 0.5 if dense else 1.5
    axes.plot(times[runs], values[runs], color=_CURVE, linewidth=width, solid_joinstyle="round", label="smoothed")
    if curve.note:
        axes.text(0.01, 0.99, curve.note, transform=axes.transAxes, va="top", fontsize=8, color="#5A6067")


def _strip(axes: "Axes", times: NDArray[Any], curve: Curve, colours: dict[str, str]) -> None:
    """Draw the mixture of heads below the curve: the share of every family at every point."""
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
    """Set the same range of times for all panels."""
    first, last = min(panel.times.min() for panel in panels), max(panel.times.max() for panel in panels)
    if first < last:
        axes.set_xlim(first - (last - first) / 100, last + (last - first) / 100)
    _dates(axes, np.asarray(first), panels[0].zone, ticks=9)
    if x:
        axes.set_xlabel(x)


def _dates(axes: "Axes", times: NDArray[Any], zone: tzinfo | None, *, ticks: int) -> None:
    if times.dtype.kind == "M":
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date

        class Dates(ConciseDateFormatter):
            """Also names the month or year of the first tick if the last tick is in another one."""

            def format_ticks(self, values: Any) -> list[str]:
                labels = super().format_ticks(values)
                if len(labels) > 1:
                    labels[0] = _first_label(labels[0], *num2date([values[0], values[-1]], tz=zone))
                return labels

        locator = AutoDateLocator(minticks=min(ticks, 4), maxticks=ticks, tz=zone)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(Dates(locator, tz=zone))


def _first_label(label: str, first: datetime, last: datetime) -> str:
    """The label of the first tick, with its month or year if the last tick has another one: the axis names only the last one."""
    if label == f"{first:%b}" and first.year != last.year:
        return f"{first:%Y-%b}"
    if label == f"{first:%d}" and (first.year, first.month) != (last.year, last.month):
        return f"{first:%b-%d}"
    return f"{first:%b-%d %H:%M}" if label == f"{first:%H:%M}" and first.date() != last.date() else label


def _legends(figure: "Figure", colours: dict[str, str]) -> None:
    """Draw the legend of the curve above the data and the legend of the strip below."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    parts = {label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    # A separate dot, since the dots of a long series are too faint.
    dot = Line2D([], [], marker="o", markersize=3.5, color=_DATA, linestyle="", label="data")
    figure.legend(handles=[dot, *parts.values()], loc="outside upper right", ncols=6, frameon=False, fontsize=9)
    if len(colours) > 1:
        heads = [Patch(color=colour, label=family) for family, colour in colours.items()]
        style = {"frameon": False, "fontsize": 8, "handlelength": 1.0, "handleheight": 0.9}
        figure.legend(handles=heads, loc="outside lower right", ncols=len(heads), **style)
