"""What stands out of a smoothed series: outliers alone and in runs, values that are stuck, and values that are missing."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.selection.bands import NORMAL_QUANTILE

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing


class Anomaly(NamedTuple):
    """A point, or points that follow each other, that are no part of the curve and its noise."""

    time: Any  # of its first point, as the times were passed
    until: Any  # of its last one
    kind: str  # "point", "run" of outliers, "stuck" or "missing"
    points: int
    value: float  # the one furthest from what is expected; NaN where it is missing
    expected: float  # the curve there
    score: float  # that distance, in standard deviations of the noise and the curve together; NaN where it is missing or stuck


def find_anomalies(result: "Smoothing") -> list[Anomaly]:
    """All anomalies, by time; points that follow each other in time and are of one kind are one."""
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
    """The standard deviation of a value about the curve (n,): of the noise and, where there is a band, of the curve."""
    levels = np.where(np.isnan(result.levels), result.noise, result.levels)
    curve_deviation = np.zeros(levels.size) if result.upper is None else (result.upper - result.values) / NORMAL_QUANTILE
    return np.maximum(np.hypot(levels, np.nan_to_num(curve_deviation)), np.finfo(float).tiny)


def runs_of_marks(marked: NDArray[np.bool_]) -> list[Indices]:
    """The positions of points that are marked (n,), those that follow each other together."""
    positions = np.flatnonzero(marked)
    return np.split(positions, np.flatnonzero(np.diff(positions) > 1) + 1) if positions.size else []
