"""Conversion of smoothings on another scale to the caller's values: curve, bounds, noise and risk."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.scale import Scale, Transform
from overt.smoothing.noise.unbiased import fit_noise
from overt.smoothing.selection.risk import combined_risk, risk_error

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

Bounds = tuple[float, float]
POSITIVE = (0.0, np.inf)
# PASSES: how often counts, outcomes and amounts are smoothed untransformed, with the variances from the last curve.
PASSES = 2
# LEAST_LEFT: least part of the noise's variance that residuals are assumed to contain.
LEAST_LEFT = 0.5


def transformed(smoothing: "Smoothing", values: Floats, transform: Transform, options: Options, bounds: Bounds) -> "Smoothing":
    """The smoothing of values x (n,), converted from a smoothing of g(x) to their mean; the risk grows with the square of the slope."""
    known = smoothing.series.unsort(np.isin(np.arange(values.size), smoothing.series.present))
    counted = known & ~smoothing.outliers
    # The residuals lack the part of the noise that the curve follows.
    left = max(1 - smoothing.degrees_of_freedom / max(int(counted.sum()), 1), LEAST_LEFT)
    residuals = (smoothing.observed - smoothing.values)[counted] / np.sqrt(left)
    if smoothing.series.weights is not None:
        residuals *= np.sqrt(smoothing.series.unsort(smoothing.series.weights)[counted] * smoothing.series.weight)
    curve = smoothing.values[counted]
    scale = fit_noise(transform, curve, smoothing.levels[counted], residuals).scale
    result = brought_back(smoothing, scale, options, bounds)
    weights = np.ones(values.size) if smoothing.curve_variances is None else smoothing.series.unsort(smoothing.curve_variances)
    slopes = scale.slope(smoothing.values)
    square = float(np.average(slopes[known] ** 2, weights=weights[known] + np.finfo(float).tiny))
    missed = np.abs(transform.inverse(curve + residuals) - result.values[counted])
    noise = float(missed.max() * np.sqrt(np.mean((missed / (missed.max() or 1.0)) ** 2)))  # squares may overflow
    return replace(result, noise=noise, risk=smoothing.risk * square, risk_error=smoothing.risk_error * square, observed=values)


def brought_back(smoothing: "Smoothing", scale: Scale, options: Options, bounds: Bounds) -> "Smoothing":
    """A smoothing on another scale with its curve and seasons converted to the caller's units."""
    # A season is the difference that it makes to the trend plus the seasons of shorter periods.
    upward = smoothing.trend[:, None] + np.cumsum(np.pad(smoothing.components, ((0, 0), (1, 0))), axis=1)
    return replace(
        smoothing,
        values=scale.mean(smoothing.values),
        components=np.diff(scale.mean(upward), axis=1),
        options=options,
        leave_one_out=None,
        kind=scale.name,
        bounds=bounds,
        scaled=(smoothing, scale),
    )


def unfilled(smoothing: "Smoothing", series: Observed) -> "Smoothing":
    """The smoothing of a filled series without the values at its missing points."""
    missing = np.isnan(series.values) if series.weights is None else np.isnan(series.values) | (series.weights == 0)
    return replace(smoothing, values=np.where(missing, np.nan, smoothing.values), filled=0, options=series.options)


def with_risks(smoothing: "Smoothing", observed: Floats, variances: Floats, unbiased: Floats) -> "Smoothing":
    """The smoothing with the risk and noise of values whose `variances` (n,) follow the curve; `unbiased` (n,) estimates them.

    A count is its own unbiased estimate: E λ f(x) = E x f(x − 1) replaces Stein's identity (Hudson 1978, section 4).
    """
    known = smoothing.series.unsort(np.isin(np.arange(observed.size), smoothing.series.present))
    leverage = smoothing.degrees_of_freedom / max(int(known.sum()), 1)
    risks = (observed - smoothing.values) ** 2 - unbiased + 2 * variances * leverage
    noise = np.sqrt(variances[known])
    risk, error = float(risks[known].mean()), risk_error(noise)
    if smoothing.curve_variances is not None and smoothing.head is None:
        slopes = 1.0 if smoothing.scaled is None else smoothing.scaled[1].slope(smoothing.scaled[0].values)
        curve_variances = smoothing.series.unsort(smoothing.curve_variances) * (smoothing.series.spread * slopes) ** 2
        risk, error = combined_risk(risk, error, float(curve_variances[known].mean()), int(known.sum()))
    return replace(smoothing, noise=float(np.sqrt(np.mean(noise**2))), risk=risk, risk_error=error, observed=observed)
