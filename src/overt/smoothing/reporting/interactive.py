"""An interactive picture of smoothed series in one HTML file, by plotly: zoom, and read off values; nothing is fetched."""

import html
import os
from collections.abc import Sequence
from datetime import UTC
from typing import TYPE_CHECKING, Any

import numpy as np

from overt.errors import InputError, MissingExtra
from overt.files import whole
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.reporting.plot import PANELS, Panel, extremes, sample, with_zone

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_CURVE, _BAND, _DATA = "#0072B2", "rgba(0, 114, 178, 0.2)", "#8A8F94"
_CONFIG = {"displaylogo": False, "responsive": True}
# Of longer series a sample with all extremes is drawn, and of their curves the least and largest values of half as many runs.
POINTS = 20_000


def check_page(path: str | os.PathLike[str], panels: int = 1) -> None:
    """Refuse a page that cannot be written: without plotly, under another suffix, or of too many series."""
    try:
        import plotly  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtra("an interactive picture", needs="plotly", extra="plot") from error
    if os.path.splitext(path)[1].lower() not in (".html", ".htm"):
        raise InputError("a page with a known suffix", got=os.fspath(path), fix="end the name in .html")
    if panels > PANELS:
        raise InputError(
            f"at most {PANELS} series in a picture",
            got=str(panels),
            fix="leave out the page, or smooth fewer columns or groups",
        )


def write_page(path: str | os.PathLike[str], panels: Sequence[Panel], *, x: str, title: str) -> None:
    """Write data, curve and band of each series against its times, labelled `x`, as one page that needs no network.

    plotly knows no time zones: dates that have one are in UTC, and the label says so.
    """
    figure = _figure(panels, x=x, title=title)
    page = figure.to_html(include_plotlyjs=True, full_html=True, default_height="96vh", config=_CONFIG)
    head = f'<title>{html.escape(title)}</title><meta name="viewport" content="width=device-width, initial-scale=1">'
    with whole(path) as temporary:
        temporary.write_text(page.replace("<head>", f"<head>{head}", 1), encoding="utf-8")


def _figure(panels: Sequence[Panel], *, x: str, title: str) -> "Figure":
    from plotly.subplots import make_subplots

    names = [html.escape(_title(panel, alone=len(panels) == 1)) for panel in panels]
    figure = make_subplots(
        rows=len(panels), cols=1, shared_xaxes=True, subplot_titles=names, vertical_spacing=0.12 / len(panels)
    )
    for row, panel in enumerate(panels, start=1):
        for trace in _traces(panel, legend=row == 1):
            figure.add_trace(trace, row=row, col=1)
    label = with_zone(x, UTC if any(panel.zone for panel in panels) else None)
    figure.update_xaxes(title_text=html.escape(label), row=len(panels), col=1)
    figure.update_layout(
        title=html.escape(title),
        template="plotly_white",
        hovermode="x",
        height=300 * len(panels) if len(panels) > 2 else None,
        margin={"l": 56, "r": 16, "t": 80, "b": 56},
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0.01, "xanchor": "right", "x": 1.0},
    )
    figure.update_annotations(font_size=12, x=0.0, xanchor="left")
    return figure


def _title(panel: Panel, *, alone: bool) -> str:
    """The name of a series, with what is not to be seen: a band that is withheld, points that are not drawn."""
    parts = ["" if alone else panel.name, panel.curve.note]
    parts.append(f"{POINTS:,} of {panel.data.size:,} points, with all extremes" if panel.data.size > POINTS else "")
    return " · ".join(part for part in parts if part)


def _traces(panel: Panel, *, legend: bool) -> list[Any]:
    from plotly.graph_objects import Scatter

    order = np.argsort(panel.times, kind="stable")
    curve = panel.curve

    def line(values: Floats, shown: Indices, name: str, **style: Any) -> Any:
        return Scatter(
            x=panel.times[order][shown], y=values[order][shown], name=name, showlegend=legend, legendgroup=name, **style
        )

    dots = {"size": float(np.clip(2500 / panel.data.size, 2, 6)), "color": _DATA, "opacity": 0.6}
    traces = [line(panel.data, sample(panel.data[order], POINTS), "data", mode="markers", marker=dots)]
    values = curve.values[order]
    shown = np.arange(values.size) if values.size <= POINTS else extremes(values, POINTS // 2)
    if curve.lower is not None and curve.upper is not None:
        times = panel.times[order][shown]
        ends = (
            np.concatenate([times, times[::-1]]),
            np.concatenate([curve.upper[order][shown], curve.lower[order][shown][::-1]]),
        )
        band = {"fill": "toself", "fillcolor": _BAND, "line": {"width": 0}, "hoverinfo": "skip"}
        name = "95% band of the mean"
        traces.append(Scatter(x=ends[0], y=ends[1], name=name, showlegend=legend, legendgroup=name, mode="lines", **band))
    traces.append(line(curve.values, shown, "smoothed", mode="lines", line={"color": _CURVE, "width": 1.6}))
    return traces
