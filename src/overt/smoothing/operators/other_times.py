"""A smoothed series at other times than its points: the curve, and how far it is likely to be from the truth there."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.dispatch import attend_in_time
from overt.smoothing.heads.keys import TimeKeys
from overt.smoothing.selection.bands import time_deviations

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# Times at which the error of a straight line is sampled, and cells of a block of them.
SAMPLES, CELLS = 256, 2**20
TOO_FAR = (
    "{} of {} times are further beyond the data than half of its length: the curve there is the last level with its seasons. "
    "For forecasts use a library for them, such as statsforecast, or statsmodels."
)


class CurveAt(NamedTuple):
    """The curve at other times (m,), and the ends of its pointwise 95% band, None where there is no band."""

    values: Floats
    lower: Floats | None
    upper: Floats | None


def curve_at(result: "Smoothing", moments: Floats) -> Floats:
    """The curve (m,) at ascending times, in the series' own units."""
    if result.head is not None and isinstance(result.head.keys, TimeKeys):
        return attend_in_time(result.series, result.head, result.head.keys.bandwidth, targets=moments).values
    times, curve = _points(result)
    return _between(times, curve, moments, result.options.causal) + _season(result, moments)


def deviation_at(result: "Smoothing", moments: Floats) -> Floats:
    """The standard deviation (m,) of the curve at ascending times, in the series' own units.

    Time keys have that of their fit there. Of other keys the variance is interpolated between the points, and the mean square by
    which a straight line over the same length, from the same ends, misses the curve is added: more in the middle of a gap, and more
    and more beyond the ends, where the curve goes on as a constant. NaN beyond half the length of the series.
    """
    levels = np.interp(moments, result.series.times, result.unit_levels)
    if result.head is not None and isinstance(result.head.keys, TimeKeys):
        return time_deviations(result.series, result.head, levels, selected=result.options.bandwidths is None, targets=moments)
    assert result.deviation is not None  # the caller has looked for a band
    deviation = result.deviation[result.series.order] / result.series.spread
    times, curve = _points(result)
    known = ~np.isnan(deviation)
    at_points = _between(result.series.times[known], deviation[known] ** 2, moments, result.options.causal)
    return np.sqrt(at_points + _missed(times, curve, moments, result.options.causal))


def _points(result: "Smoothing") -> tuple[Floats, Floats]:
    """The times of the curve without seasons, and its values."""
    curve = (result.values[result.series.order] - result.series.center) / result.series.spread
    curve = curve - _season(result, result.series.times)
    known = ~np.isnan(curve)
    return result.series.times[known], curve[known]


def _season(result: "Smoothing", moments: Floats) -> Floats:
    return np.zeros(moments.size) if result.seasons is None else result.seasons.at(moments).sum(axis=0)


def _between(times: Floats, column: Floats, moments: Floats, causal: bool) -> Floats:
    """A column at ascending times, interpolated linearly, or with `causal` the last value."""
    if not causal:
        return np.interp(moments, times, column)
    before = np.searchsorted(times, moments, side="right") - 1
    return np.where(before < 0, np.nan, column[np.maximum(before, 0)])


def _missed(times: Floats, curve: Floats, moments: Floats, causal: bool) -> Floats:
    """The mean square by which `_between` misses the curve at these distances from its neighbours (m,), over the whole curve."""
    after = np.searchsorted(times, moments)
    left = np.where(after > 0, moments - times[np.maximum(after - 1, 0)], np.inf)
    right = np.where(after < times.size, times[np.minimum(after, times.size - 1)] - moments, np.inf)
    if causal:
        left, right = np.where(right == 0, 0.0, left), np.full(moments.size, np.inf)
    one_sided = np.isinf(left + right)
    ahead = np.where(one_sided, np.minimum(left, right), left)  # from a point to the target
    length = np.where(one_sided, ahead, left + right)  # to the far end of what is needed
    missed, span = np.zeros(moments.size), times[-1] - times[0]
    for start in range(0, moments.size, CELLS // SAMPLES):
        part = slice(start, start + CELLS // SAMPLES)
        reach = np.minimum(length[part], span / 2)[:, None]
        starts = times[0] + np.linspace(0.0, 1.0, SAMPLES) * (span - reach)  # (targets, samples)
        begin, there, end = (np.interp(starts + shift, times, curve) for shift in (0.0, ahead[part][:, None], reach))
        share = np.where(one_sided[part], 0.0, ahead[part] / np.maximum(length[part], np.finfo(float).tiny))[:, None]
        missed[part] = np.mean((there - (1 - share) * begin - share * end) ** 2, axis=1)
    return np.where(length > span / 2, np.nan, missed)
