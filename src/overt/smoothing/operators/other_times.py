"""A smoothed series at other times than its points: the curve, and its standard error there."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.data.times import read_moments
from overt.smoothing.heads.dispatch import attend_in_time
from overt.smoothing.heads.keys import TimeKeys
from overt.smoothing.operators.beyond import FURTHEST, Beyond, LastLine, beyond
from overt.smoothing.selection.bands import NORMAL_QUANTILE, time_deviations

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# SAMPLES: times at which the error of a straight line is sampled; CELLS: samples of a block of targets.
SAMPLES, CELLS = 256, 2**20
# MOST_SEASONAL: the largest share of the seasons in a curve's variance; their part does not grow beyond the ends.
MOST_SEASONAL = 0.75
EXTRAPOLATES = (
    "{} of {} times are beyond the data: the curve is extrapolated there, and its band widens. "
    "It is no forecast of what has not happened before."
)


class CurveAt(NamedTuple):
    """The curve at other times (m,), and the ends of its pointwise 95% band, None without a band."""

    values: Floats
    lower: Floats | None
    upper: Floats | None


def values_at(result: "Smoothing", times: ArrayLike, *, band: bool) -> CurveAt:
    """The curve at other times (m,) in any order, in the caller's units, with its band if `band` and the result has one."""
    if result.scaled is not None:
        first, scale = result.scaled
        curve, *ends = values_at(first, times, band=band)
        return CurveAt(scale.mean(curve), *(None if end is None else scale.end(curve, end) for end in ends))
    series = result.series
    moments = (read_moments(times, result.times) - series.start) / series.step
    _check_distance(result, moments)
    order = np.argsort(moments, kind="stable")
    back = np.argsort(order)
    values = np.clip(series.center + series.spread * curve_at(result, moments[order])[back], *result.bounds)
    if not band or result.withheld:
        return CurveAt(values, None, None)
    half = NORMAL_QUANTILE * series.spread * deviation_at(result, moments[order])[back]
    return CurveAt(values, np.clip(values - half, *result.bounds), np.clip(values + half, *result.bounds))


def warn_of_extrapolation(result: "Smoothing", times: ArrayLike) -> None:
    """Warn of times beyond the data, at the line of the caller's caller."""
    moments = read_moments(times, result.times)
    if outside := int(np.sum((moments < result.times.moments.min()) | (moments > result.times.moments.max()))):
        warnings.warn(EXTRAPOLATES.format(outside, moments.size), stacklevel=3)


def _check_distance(result: "Smoothing", moments: Floats) -> None:
    """Raise InputError for times too far beyond the data."""
    times = result.series.times[result.series.present]
    reach = FURTHEST * (times[-1] - times[0]) if times.size > 1 else np.inf
    if far := int(np.sum(np.maximum(times[0] - moments, moments - times[-1]) > reach)):
        length = f"{reach * result.series.step:.6g} {result.unit}".rstrip()
        expected = f"times within half the length of the data beyond either end ({length})"
        fix = "ask for nearer times, or forecast with a library for it, such as statsforecast or statsmodels"
        raise InputError(expected, got=f"{far} of {moments.size} times further out", fix=fix)


def curve_at(result: "Smoothing", moments: Floats) -> Floats:
    """The curve (m,) at ascending times, in the series' own units."""
    if result.head is not None and isinstance(result.head.keys, TimeKeys):
        return attend_in_time(result.series, result.head, result.head.keys.bandwidth, targets=moments).values
    times, curve = _points(result)
    values = _between(times, curve, moments, result.options.causal) + _season(result, moments)
    for end in _ends(result, times, curve, moments):
        values[end.out] += end.beyond.at(end.distances)[0]
    return values


def deviation_at(result: "Smoothing", moments: Floats) -> Floats:
    """The standard deviation (m,) of the curve at ascending times, in the series' own units.

    With time keys it is the deviation of the fit there. With other keys the variance is interpolated between the points, and the mean
    squared error of a straight line over the same length is added, which is larger in the middle of a gap. Beyond the ends the mean
    squared error of the local trend in the past is added (`beyond`), and the variance of the end grows like a line's.
    """
    levels = np.interp(moments, result.series.times, result.unit_levels)
    if result.head is not None and isinstance(result.head.keys, TimeKeys):
        return time_deviations(result.series, result.head, levels, selected=result.options.bandwidths is None, targets=moments)
    assert result.deviation is not None  # the caller has looked for a band
    deviation = result.deviation[result.series.order] / result.series.spread
    times, curve = _points(result)
    known = ~np.isnan(deviation)
    variances = _between(result.series.times[known], deviation[known] ** 2, moments, result.options.causal)
    missed = _missed(times, curve, moments, result.options.causal)
    for end in _ends(result, times, curve, moments):
        _, missed[end.out], lasting = end.beyond.at(end.distances)
        variances[end.out] += end.line.grown(lasting * end.distances)
    return np.sqrt(variances + missed)


class _End(NamedTuple):
    """The times beyond one end (k,), by index, their distances from it, the last line, and the forecast."""

    out: Indices
    distances: Floats
    line: LastLine
    beyond: Beyond


def _ends(result: "Smoothing", times: Floats, curve: Floats, moments: Floats) -> Iterator[_End]:
    """Yield the ends beyond which there are times; none with `causal`, which continues the last value."""
    if result.options.causal:
        return
    for sign, out in ((1, np.flatnonzero(moments > times[-1])), (-1, np.flatnonzero(moments < times[0]))):
        if out.size:
            line = _last_line(result, -1 if sign == 1 else 0)
            distances = sign * (moments[out] - times[-1 if sign == 1 else 0])
            yield _End(out, distances, line, beyond(sign * times[::sign], curve[::sign], line.slope_variance))


def _last_line(result: "Smoothing", end: int) -> LastLine:
    """The variance of the trend at the first point (0) or the last (-1), without the seasons' variance, which does not grow."""
    if result.deviation is None:
        return LastLine(0.0, 1.0)
    deviation = result.deviation[result.series.order] / result.series.spread
    row = np.flatnonzero(~np.isnan(deviation))[end]
    variance, noise = float(deviation[row] ** 2), float(result.unit_levels[row] ** 2)
    seasonal = 0.0 if result.seasons is None else noise * float(result.seasons.self_weights().mean())
    return LastLine(variance - min(seasonal, MOST_SEASONAL * variance), noise)


def _points(result: "Smoothing") -> tuple[Floats, Floats]:
    """The times and values of the curve without seasons."""
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
    """The mean squared error (m,) of `_between` at targets as far from their neighbours as these, over the whole curve."""
    after = np.searchsorted(times, moments)
    left = np.where(after > 0, moments - times[np.maximum(after - 1, 0)], np.inf)
    right = np.where(after < times.size, times[np.minimum(after, times.size - 1)] - moments, np.inf)
    if causal:
        left, right = np.where(right == 0, 0.0, left), np.full(moments.size, np.inf)
    one_sided = np.isinf(left + right)
    ahead = np.where(one_sided, np.minimum(left, right), left)  # from a point to the target
    length = np.where(one_sided, ahead, left + right)  # from the first neighbour to the second, or to the target
    missed, span = np.zeros(moments.size), times[-1] - times[0]
    for start in range(0, moments.size, CELLS // SAMPLES):
        part = slice(start, start + CELLS // SAMPLES)
        reach = np.minimum(length[part], span / 2)[:, None]
        starts = times[0] + np.linspace(0.0, 1.0, SAMPLES) * (span - reach)  # (targets, samples)
        begin, there, end = (np.interp(starts + shift, times, curve) for shift in (0.0, ahead[part][:, None], reach))
        share = np.where(one_sided[part], 0.0, ahead[part] / np.maximum(length[part], np.finfo(float).tiny))[:, None]
        missed[part] = np.mean((there - (1 - share) * begin - share * end) ** 2, axis=1)
    return np.where(length > span / 2, np.nan, missed)
