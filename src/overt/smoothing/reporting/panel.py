"""The input of a picture of a smoothed series, on paper and in a browser: its panel, the points that are drawn, its gaps."""

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.reporting.curve import Curve
from overt.smoothing.reporting.limits import gaps

# PANELS: most series in one picture; more are not readable.
PANELS = 12
# POINTS, RUNS: most points, and most runs of the curve, that are drawn: about three per column of pixels.
POINTS, RUNS = 30_000, 2_000


@dataclass(frozen=True)
class Panel:
    """One series of a picture."""

    name: str
    times: NDArray[Any]  # (n,) numbers or datetime64, in UTC if there is a time zone
    data: Floats  # (n,)
    curve: Curve
    zone: tzinfo | None = None  # time zone in which dates are written


def components(panel: Panel) -> dict[str, Floats]:
    """Trend, season and remainder of a panel (n,), by name; empty without a season."""
    parts = panel.curve.components()
    return {**parts, "remainder": panel.data - panel.curve.values} if parts else {}


def gap_ends(times: NDArray[Any], data: Floats) -> list[tuple[Any, Any]]:
    """The last time before and the first time after every gap in ascending times (n,); points without a value are in gaps, too."""
    known = np.flatnonzero(~np.isnan(data))
    before = gaps(as_numbers(times[known]))
    return [(times[known[position]], times[known[position + 1]]) for position in before]


def with_gaps(times: NDArray[Any], curve: Curve, order: Indices) -> tuple[NDArray[Any], Floats, Floats, Floats]:
    """Ascending times (n + m,), including m times inside gaps, and the curve and its band there; NaN without a band."""
    nothing = np.full(times.size, np.nan)
    columns = [curve.values[order], *(nothing if end is None else end[order] for end in (curve.lower, curve.upper))]
    if curve.between is None:
        return times, *columns
    times = times.astype("datetime64[us]") if times.dtype.kind == "M" else times.astype(np.float64)
    positions = curve.between[:, 0]
    before, share = positions.astype(np.intp), positions % 1
    steps = times[before + 1] - times[before]
    inside = times[before] + (steps * share).astype(steps.dtype)
    merged = np.argsort(np.concatenate([np.arange(times.size), positions]), kind="stable")
    values, lower, upper = (
        np.concatenate([column, more])[merged] for column, more in zip(columns, curve.between.T[1:], strict=True)
    )
    return np.concatenate([times, inside])[merged], values, lower, upper


def as_numbers(times: NDArray[Any]) -> Floats:
    """Times (n,) from the first one, in seconds if they are dates."""
    since = times - times[:1]
    return since / np.timedelta64(1, "s") if since.dtype.kind == "m" else since.astype(np.float64)


def with_zone(x: str, zone: tzinfo | None) -> str:
    """The label of an axis of times, with their zone if they have one.

    >>> from datetime import UTC
    >>> with_zone("when", UTC), with_zone("when", None)
    ('when (UTC)', 'when')
    """
    return x if zone is None else f"{x} ({zone})".lstrip()


def sample(values: Floats, points: int = POINTS) -> Indices:
    """The points to draw: all, or in a long series a sample with the extremes."""
    if values.size <= points:
        return np.arange(values.size)
    drawn = np.random.default_rng(0).choice(values.size, points - 2 * RUNS, replace=False)
    return np.union1d(drawn, extremes(values, RUNS))


def extremes(values: Floats, runs: int) -> Indices:
    """The indices of the minimum and the maximum of every run, and of both ends; all indices of a short series."""
    if values.size <= 4 * runs:
        return np.arange(values.size)
    length = -(-values.size // runs)
    padded = np.pad(values, (0, length * runs - values.size), constant_values=np.nan).reshape(runs, length)
    starts = length * np.arange(runs)
    lowest = starts + np.argmin(np.where(np.isnan(padded), np.inf, padded), axis=1)
    highest = starts + np.argmax(np.where(np.isnan(padded), -np.inf, padded), axis=1)
    return np.unique(np.concatenate([[0], lowest, highest, [values.size - 1]]).clip(max=values.size - 1))
