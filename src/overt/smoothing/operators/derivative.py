"""The derivative of a smoothed series, with a band: models of derivatives, mixed by how well they predict each value from all others."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.periods import is_length, length_in_seconds
from overt.smoothing.data.series import Floats, key_noise
from overt.smoothing.heads.state_space import smoothed_states
from overt.smoothing.operators.slope_models import Models, squared_exponentials
from overt.smoothing.selection.bands import NORMAL_QUANTILE

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

LEAST_POINTS = 5
# ORDERS: orders of the models; RATIO: ratio of neighbouring bandwidths, from one step to WIDEST spans, where the models are polynomials.
ORDERS, RATIO, WIDEST = (2, 3, 4), 2**0.5, 4
# WINDOWS: standard deviations, in points, of the windows whose densities choose the models of a point. With only 64 the error of 80 series
# of 150 points is 7% larger, of 45 series of 600 points 1% smaller.
WINDOWS = (16, 64)
# MOST: longer series are averaged to this many points first.
MOST = 2048
# COARSER: points of a mean of the next wider models, over those of the narrower models; LEAST_MEANS: the least number of means.
COARSER, LEAST_MEANS = 8, 12
# PREMIUM: decrease of a model's log prior for a degree of freedom, since errors of slopes grow faster with it than errors of values; 0.4
# has up to 15% more error (245 series). PREMIUM_OF_BANDS: the same for bands, which hold 0.95 to 0.98 of the truth.
PREMIUM, PREMIUM_OF_BANDS = 1.0, 0.8
# LEAST_LEVEL: the least noise, in parts of the values' spread: below it the arithmetic of the models fails.
LEAST_LEVEL = 1e-4
# NEAR: half the distance of the differences for a season's slope, in steps.
NEAR = 0.01
_UNITS = (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0), ("second", 1.0))


@dataclass(frozen=True, eq=False)
class Derivative:
    """A derivative at each point, in the caller's order: values (n,), the ends of its pointwise 95% band or None, and its unit."""

    values: Floats
    lower: Floats | None
    upper: Floats | None
    order: int
    unit: str  # "per day", "per step", or "" if the times are plain numbers

    @property
    def error(self) -> float | None:
        """The estimated root mean square error; None without a band."""
        if self.upper is None:
            return None
        return float(np.sqrt(np.nanmean(((self.upper - self.values) / NORMAL_QUANTILE) ** 2)))


def estimate_derivative(result: "Smoothing", order: int, per: object) -> Derivative:
    """The first or second derivative of a smoothing, per length of time `per`."""
    if order not in (1, 2):
        raise InputError("derivative of order 1 or 2", got=repr(order), fix="pass 1 for the slope, 2 for the curvature")
    if result.scaled is not None:
        return _brought_back(result, order, per)
    series = result.series
    if series.present.size < LEAST_POINTS:
        fix = "pass a longer series"
        raise InputError(f"{LEAST_POINTS} values or more for a derivative", got=str(series.present.size), fix=fix)
    size, unit = unit_of_slope(result, per)
    times, values, variances = _averaged(
        series.key_times, series.key_values, _variances(result), -(-series.present.size // MOST)
    )
    step = max(1.0, float(np.median(np.diff(times)))) if times.size > 1 else 1.0
    slopes, slope_variances = _mixed(times / step, values, variances, order)
    at_points = np.interp(series.times, times, slopes / step**order) + _season_derivative(result, order)
    deviation = np.sqrt(np.interp(series.times, times, slope_variances)) / step**order
    factor = series.spread * (size / series.step) ** order
    known = series.unsort(factor * at_points)
    half = None if result.withheld else NORMAL_QUANTILE * series.unsort(factor * deviation)
    power = "" if order == 1 or not unit else "²"
    lower, upper = (None, None) if half is None else (known - half, known + half)
    return Derivative(known, lower, upper, order, f"{unit}{power}")


def _brought_back(result: "Smoothing", order: int, per: object) -> Derivative:
    """The derivative of a smoothing on another scale, by the chain rule."""
    assert result.scaled is not None
    first, scale = result.scaled
    if order != 1 and not scale.turn:
        fix = "pass order=1"
        raise InputError(f"the first derivative of a curve of {result.kind}", got=f"order={order}", fix=fix)
    derivative, slope = estimate_derivative(first, order, per), scale.slope(first.values)
    lower, upper = (None if end is None or result.withheld else slope * end for end in (derivative.lower, derivative.upper))
    return Derivative(slope * derivative.values, lower, upper, order, derivative.unit)


def unit_of_slope(result: "Smoothing", per: object) -> tuple[float, str]:
    """The length of `per` in the unit of the times, and its name; without `per` the largest unit within a step."""
    if result.times.unit != "seconds":
        if is_length(per):
            raise InputError(
                "dates as times with `per` as a length of time", got=repr(per), fix="pass a number, or leave it out"
            )
        size = 1.0 if per is None else float(per)  # type: ignore[arg-type]
        steps = "" if result.times.unit == "" else "step" if size == 1 else f"{size:g} steps"
        return size, f"per {steps}" if steps else ""
    if per is not None:
        return length_in_seconds(per), f"per {per}"
    name, size = next(((name, size) for name, size in _UNITS if result.series.step >= size), _UNITS[-1])
    return size, f"per {name}"


def _variances(result: "Smoothing") -> Floats:
    """The noise variances of the present points (m,); for correlated noise, of slow changes."""
    rho = result.estimate.correlation
    return np.maximum(key_noise(result.series, result.unit_levels), LEAST_LEVEL) ** 2 * (1 + rho) / (1 - rho)


def _averaged(times: Floats, values: Floats, variances: Floats, size: int) -> tuple[Floats, Floats, Floats]:
    """Means of `size` consecutive points, and of all points at one time, weighted by 1/variance."""
    starts = np.unique(np.searchsorted(times, times[np.arange(0, times.size, size)]))
    precisions = 1 / variances
    totals = np.add.reduceat(precisions, starts)
    return (*(np.add.reduceat(precisions * column, starts) / totals for column in (times, values)), 1 / totals)  # type: ignore[return-value]


def _mixed(times: Floats, values: Floats, variances: Floats, order: int) -> tuple[Floats, Floats]:
    """The mean and the variance of a derivative (n,) over all models, with the variance between them.

    Wide splines are fitted to means of points: their bandwidths are 8 to 64 of the means' steps, without means 1 to 64 steps.
    """
    longest, size, splines = max(WIDEST * (times[-1] - times[0]), 2.0), 1, []
    while size == 1 or (COARSER * size <= longest and LEAST_MEANS * size <= times.size):
        low, high = (1 if size == 1 else COARSER) * size, min(COARSER**2 * size, longest)
        bandwidths = np.exp(np.arange(np.log(low), np.log(high) - 1e-9, np.log(RATIO)))
        part = _averaged(times, values, variances, size)
        splines += [smoothed_states(*part, bandwidths, model).at(part[0], times) for model in ORDERS if model > order]
        size *= COARSER
    smooth = squared_exponentials(times, values, variances, order)
    models = Models.joined(
        [Models.from_states(states, values, variances, order) for states in splines] + ([] if smooth is None else [smooth])
    )
    weights, in_bands = (model_weights(models.log_densities - part * models.freedom) for part in (PREMIUM, PREMIUM_OF_BANDS))
    mean = (weights * models.means).sum(axis=0)
    return mean, (in_bands * (models.variances + (models.means - mean) ** 2)).sum(axis=0)


def model_weights(log_densities: Floats) -> Floats:
    """The weights of models (models, n) from the log densities of the values, each predicted from all others.

    At a point models are weighted by the densities of its neighbours in a window, or of all points, without its own. The windows are
    weighted by the density of all values under their mixtures (stacking: Yao, Vehtari, Simpson and Gelman 2018).
    """
    sums = [log_densities.sum(axis=1, keepdims=True) - log_densities]
    for window in WINDOWS:
        reach = 4 * window
        if log_densities.shape[1] > reach:
            kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / window) ** 2)
            kernel[reach] = 0
            padded = np.pad(log_densities, [(0, 0), (reach, reach)], mode="symmetric")
            sums.append(np.stack([np.convolve(row, kernel, "valid") for row in padded]))
    mixtures = [np.exp(one - one.max(axis=0)) for one in sums]
    mixtures = [mixture / mixture.sum(axis=0) for mixture in mixtures]
    scores = np.array([np.log(np.maximum((mixture * np.exp(log_densities)).sum(axis=0), 1e-300)).sum() for mixture in mixtures])
    shares = np.exp(scores - scores.max())
    return sum(share * mixture for share, mixture in zip(shares / shares.sum(), mixtures, strict=True))  # type: ignore[return-value]


def _season_derivative(result: "Smoothing", order: int) -> Floats:
    """The derivative of the seasons (n,), by differences."""
    if result.seasons is None:
        return np.zeros(result.series.times.size)
    near = NEAR if order == 1 else 1.0
    before, here, after = (result.seasons.at(result.series.times + shift).sum(axis=0) for shift in (-near, 0.0, near))
    return (after - before) / (2 * near) if order == 1 else (after - 2 * here + before) / near**2
