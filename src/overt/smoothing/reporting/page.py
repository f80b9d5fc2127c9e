"""A page of smoothed series in one HTML file: a chart with zoom and readout, next to the report; the page loads nothing."""

import os
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.drawing.html import data_page, escape_text
from overt.drawing.numbers import visible
from overt.errors import InputError
from overt.smoothing.data.series import Floats
from overt.smoothing.reporting.curve import Curve
from overt.smoothing.reporting.limits import limits
from overt.smoothing.reporting.panel import PANELS, Panel, extremes, gap_ends, with_gaps, with_zone

_WEB = "smoothing/reporting/web"
# POINTS: most points on the page; a longer series is reduced to the minimum and the maximum of half as many runs.
POINTS = 1_000_000
# _STEPS: steps of its range in which a column is stored; _DECIMALS: most decimals of a column stored exactly; _EXACT: its largest number.
_STEPS, _DECIMALS, _EXACT = 2.0**16, 6, 2**31
_NAMES = {
    "read": "What was read",
    "noise": "Noise",
    "error": "Error that remains",
    "outliers": "Outliers",
    "season": "Season",
    "changes": "Changes",
    "caution": "Take care",
}


def check_page(path: str | os.PathLike[str], panels: int = 1) -> None:
    """Refuse a page that cannot be written: with another suffix, or of too many series."""
    if os.path.splitext(path)[1].lower() not in (".html", ".htm"):
        raise InputError("a page with a known suffix", got=os.fspath(path), fix="end the name in .html")
    if panels > PANELS:
        fix = "leave out the page, or smooth fewer columns or groups"
        raise InputError(f"at most {PANELS} series in a picture", got=str(panels), fix=fix)


def write_page(
    path: str | os.PathLike[str], panels: Sequence[Panel], *, x: str, title: str, wording: Callable[[str], str] = str
) -> None:
    """Write values, curve, band and report of every series against its times, labelled `x`, as one page that needs no network.

    `wording` is applied to the sentences of reports, for example to name the options of a command.
    """
    panels = [_worded(panel, wording) for panel in panels]
    data = {"title": visible(title), "x": visible(x or "row"), "series": [_series(panel, x) for panel in panels]}
    still = "".join(_still(panel) for panel in panels)
    smaller = "smooth fewer points, columns or groups in one page, or pass --plot"
    page = {"title": title, "data": data, "still": f"<h1>{escape_text(title)}</h1>{still}"}
    data_page("smooth", _WEB, path, smaller=smaller, library="uPlot", **page)


def _worded(panel: Panel, wording: Callable[[str], str]) -> Panel:
    curve = panel.curve
    report = {name: wording(text) for name, text in curve.report.items()}
    return replace(panel, curve=replace(curve, report=report, explanation=wording(curve.explanation)))


def _still(panel: Panel) -> str:
    """The report of a series for a page without scripts."""
    rows = "".join(f"<dt>{name}</dt><dd>{escape_text(text)}</dd>" for name, text in sections(panel.curve.report).items())
    return f"<section><h2>{escape_text(panel.name)}</h2><dl>{rows or escape_text(panel.curve.sentence)}</dl></section>"


def sections(report: Mapping[str, str]) -> dict[str, str]:
    """The sections of a report that have a text, by their names on the page."""
    return {_NAMES[name]: text for name, text in report.items() if text}


def _series(panel: Panel, x: str) -> dict[str, Any]:
    order, curve, dates = np.argsort(panel.times, kind="stable"), panel.curve, panel.times.dtype.kind == "M"
    if order.size > POINTS:
        order = order[extremes(np.nan_to_num(panel.data[order]), POINTS // 2)]
    whole = order.size == panel.times.size
    times, columns = _columns(panel, order, whole=whole)
    seconds = times.astype("datetime64[us]").astype(np.int64) / 1e6 if dates else times.astype(np.float64)
    report = sections(curve.report) or {"What was read": curve.sentence}
    return {
        "name": _shown(panel.name),
        "times": pack_times(seconds),
        "columns": {name: pack(column) for name, column in columns.items()},
        "dates": dates,
        "zone": _zone(panel.zone) if dates else "",
        "x": _shown(with_zone(x, panel.zone)),
        "limits": limits(panel.data, curve.outliers, curve.values, curve.lower, curve.upper),
        "gaps": [[_exact(end) for end in pair] for pair in gap_ends(panel.times[order], panel.data[order])],
        "changes": [_exact(np.sort(panel.times)[position]) for position in curve.facts.get("changes", [])],
        "tables": _tables(curve, dates=dates),
        "noise": curve.facts.get("noise", 0.0),
        "points": int(panel.data.size),
        "thinned": "" if whole else f"{order.size:,} of {panel.data.size:,} points, with all extremes",
        "note": _shown(curve.note),
        "report": {name: _shown(text) for name, text in report.items()},
        "explanation": _shown(curve.explanation),
    }


def _tables(curve: Curve, *, dates: bool) -> dict[str, list[list[Any]]]:
    """Rows of the tables of changes and of stuck values, if known: moments in the form of `_exact`, then the other columns."""

    def moment(time: Any) -> str:
        return _exact(np.datetime64(time)) if dates else str(time)

    changes = [
        [*(moment(change[name]) for name in ("time", "lower", "upper")), change["kind"], change["size"], change["probability"]]
        for change in curve.changes or ()
    ]
    stuck = [
        [moment(anomaly["time"]), moment(anomaly["until"]), anomaly["points"], anomaly["value"]]
        for anomaly in curve.anomalies or ()
        if anomaly["kind"] == "stuck"
    ]
    return {"changes": changes, "stuck": stuck}


def _columns(panel: Panel, order: NDArray[np.intp], *, whole: bool) -> tuple[NDArray[Any], dict[str, Floats]]:
    """Ascending times (m,) and the columns at these times, by name: the points, and `inserted` times inside gaps."""
    curve = panel.curve if whole else replace(panel.curve, between=None)
    times, values, lower, upper = with_gaps(panel.times[order], curve, order)
    rows = np.searchsorted(times, panel.times[order], side="left") + _ties(panel.times[order])

    def placed(column: NDArray[Any], missing: float = np.nan) -> Floats:
        merged = np.full(times.size, missing)
        merged[rows] = column[order]
        return merged

    columns = {"data": placed(panel.data), "curve": values}
    columns |= {} if curve.lower is None else {"lower": lower, "upper": upper}
    columns |= {name: placed(part) for name, part in curve.components().items()}
    columns["outliers"] = placed(np.zeros(panel.data.size) if curve.outliers is None else curve.outliers, 0.0)
    columns["inserted"] = placed(np.zeros(panel.data.size), 1.0)
    return times, columns


def _ties(times: NDArray[Any]) -> NDArray[np.intp]:
    """The number of every point among the points at its time, for ascending times (n,)."""
    first = np.append(True, times[1:] != times[:-1])
    starts = np.flatnonzero(first)
    return np.arange(times.size) - starts[np.cumsum(first) - 1]


def _exact(time: Any) -> str:
    """The text of a time, since numbers on the page have seven digits."""
    return repr(float(time.astype("datetime64[us]").astype(np.int64)) / 1e6 if isinstance(time, np.datetime64) else float(time))


def _shown(text: str) -> str:
    return visible(text) if text else ""


def _zone(zone: tzinfo | None) -> str:
    """The browser's name of a zone; dates without a zone, or with a fixed distance from UTC, are shown as stored."""
    return "Etc/UTC" if zone is None or zone is UTC else getattr(zone, "key", None) or "Etc/UTC"


def pack_times(times: Floats) -> dict[str, Any]:
    """Ascending times (n,) as whole numbers of their largest common unit, so that equal steps take no space."""
    first = float(times[0])
    units = np.rint((times - first) * 1e6)
    unit = float(np.gcd.reduce(units.astype(np.int64))) or 1.0
    return {"start": repr(first), "unit": repr(unit / 1e6), "bytes": _bytes(units / unit)}


def pack(values: Floats) -> dict[str, Any]:
    """A column (n,) as whole numbers, compressed: exact if it has few decimals, else to 1/65,536 of its range, except beyond it.

    A value is start + unit · (the sum of all numbers up to its own); values in `empty` are missing.
    """
    known = np.isfinite(values)
    filled = np.where(known, values, 0.0)
    if known.any():
        filled = filled[np.maximum.accumulate(np.where(known, np.arange(values.size), np.flatnonzero(known)[0]))]
    unit = next((10.0**-digits for digits in range(_DECIMALS + 1) if _is_exact(filled, digits)), 0.0)
    if not unit:
        low, high = np.quantile(filled, [0.001, 0.999])
        unit = float(max((high - low) / _STEPS, np.abs(filled).max() / _EXACT, np.finfo(float).tiny))
    return {
        "start": "0",
        "unit": repr(unit),
        "bytes": _bytes(np.rint(filled / unit)),
        "empty": "" if known.all() else _bytes(~known),
    }


def _is_exact(values: Floats, digits: int) -> bool:
    scaled = values * 10.0**digits
    return bool(np.abs(scaled).max(initial=0.0) < _EXACT) and bool((np.abs(scaled - np.rint(scaled)) < 1e-6).all())


def _bytes(numbers: NDArray[Any]) -> str:
    """Whole numbers as differences, negative ones interleaved with positive ones, byte by byte, compressed."""
    steps = np.diff(numbers.astype(np.int64), prepend=0)
    folded = ((steps << 1) ^ (steps >> 63)).astype("<u8")
    planes = folded.view(np.uint8).reshape(-1, 8).T
    return b64encode(zlib.compress(planes.tobytes(), 6)).decode()
