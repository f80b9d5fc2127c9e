"""Anomalies of a smoothed series: single outliers and runs of outliers, stuck values and missing values."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.selection.bands import NORMAL_QUANTILE

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing


class Anomaly(NamedTuple):
    """A point, or consecutive points, that are not part of the curve and its noise."""

    time: Any  # time of its first point, as passed
    until: Any  # time of its last point
    kind: str  # "point", "run" of outliers, "stuck" or "missing"
    points: int
    value: float  # value farthest from the curve; NaN if missing
    expected: float  # the curve at that value
    score: float  # their distance, in standard deviations of noise and curve together; NaN if missing or stuck


def find_anomalies(result: "Smoothing") -> list[Anomaly]:
    """All anomalies, by time; consecutive points of one kind are one anomaly."""
    order = result.series.order
    missing = np.isnan(result.observed)
    kinds = {
        "outliers": result.outliers & ~missing,
        "stuck": result.repeats.flat & ~missing & ~result.outliers,
        "missing": missing,
    }
    spread = _spread(result)
    hits = []
    for kind, marked in kinds.items():
        for run in runs_of_marks(marked[order]):
            rows = order[run]
            name = ("point" if rows.size == 1 else "run") if kind == "outliers" else kind
            hits.append((int(run[0]), _anomaly(result, rows, name, spread)))
    return [anomaly for _, anomaly in sorted(hits, key=lambda pair: pair[0])]


def _anomaly(result: "Smoothing", rows: Indices, kind: str, spread: Floats) -> Anomaly:
    times = result.times.as_passed[rows]
    furthest, score = int(rows[0]), np.nan
    if kind in ("point", "run"):
        scores = np.abs(result.residuals[rows]) / spread[rows]
        furthest, score = int(rows[scores.argmax()]), float(scores.max())
    value, expected = float(result.observed[furthest]), float(result.values[furthest])
    return Anomaly(times[0], times[-1], kind, rows.size, value, expected, score)


def _spread(result: "Smoothing") -> Floats:
    """The standard deviation of a value about the curve (n,): of the noise, combined with the curve's if there is a band."""
    levels = np.where(np.isnan(result.levels), result.noise, result.levels)
    curve_deviation = np.zeros(levels.size) if result.upper is None else (result.upper - result.values) / NORMAL_QUANTILE
    return np.maximum(np.hypot(levels, np.nan_to_num(curve_deviation)), np.finfo(float).tiny)


def runs_of_marks(marked: NDArray[np.bool_]) -> list[Indices]:
    """The positions of marked points (n,), one array per run of consecutive points."""
    positions = np.flatnonzero(marked)
    return np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1) if positions.size else []
