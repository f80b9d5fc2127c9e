"""Smoothings under hypotheses of noise, brought back to the caller's values: their curve, bounds, noise and risk."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.outcomes import variances_of_outcomes
from overt.smoothing.noise.scale import Scale, Transform, angular
from overt.smoothing.selection.risk import combined_risk, risk_error

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

Bounds = tuple[float, float]
POSITIVE = (0.0, np.inf)


def stabilized_counts(smoothing: "Smoothing", counts: Floats, options: Options, scale: Scale) -> "Smoothing":
    """A smoothing of 2√(x + 3/8), or of log(x + ½), brought back to the counts x (n,) without bias."""
    counted = brought_back(smoothing, scale, options, POSITIVE)
    return _with_risks(counted, counts, counted.values, counts)


def drawn_counts(smoothing: "Smoothing", counts: Floats, options: Options) -> "Smoothing":
    """A smoothing of counts (n,), without outliers, under the variances of an earlier curve: never below 0."""
    curve = np.maximum(smoothing.values, 0.0)
    counted = replace(smoothing, values=curve, kind="counts", bounds=POSITIVE, options=options)
    return _with_risks(counted, counts, curve, counts)


def drawn_outcomes(smoothing: "Smoothing", outcomes: Floats, bounds: Bounds, options: Options) -> "Smoothing":
    """A smoothing of outcomes (n,), each one of two values, under the variances of an earlier curve: between the two."""
    curve = np.clip(smoothing.values, *bounds)
    variances = variances_of_outcomes(curve, *bounds)
    result = replace(smoothing, values=curve, kind="outcomes", bounds=bounds, options=options)
    return _with_risks(result, outcomes, variances, variances)


def drawn_amounts(smoothing: "Smoothing", variances: Floats, unbiased: Floats, options: Options) -> "Smoothing":
    """A smoothing of amounts under the `variances` (n,) of an earlier curve, whose `unbiased` estimates are (n,)."""
    curve = np.clip(smoothing.values, *POSITIVE)
    result = replace(smoothing, values=curve, kind="amounts", bounds=POSITIVE, options=options)
    return _with_risks(result, smoothing.observed, variances, unbiased)


def transformed(smoothing: "Smoothing", values: Floats, transform: Transform, options: Options, bounds: Bounds) -> "Smoothing":
    """A smoothing of g(x), brought back to the values x (n,) as their mean; the risk grows with the square of the slope."""
    scale = transform.with_noise(smoothing.noise**2)
    assert scale.variance is not None  # of transforms it is known
    result = brought_back(smoothing, scale, options, bounds)
    known = smoothing.series.unsort(np.isin(np.arange(values.size), smoothing.series.present))
    weights = np.ones(values.size) if smoothing.curve_variances is None else smoothing.series.unsort(smoothing.curve_variances)
    slopes = scale.slope(smoothing.values)
    square = float(np.average(slopes[known] ** 2, weights=weights[known] + np.finfo(float).tiny))
    noise = float(np.sqrt(np.mean(scale.variance(smoothing.values[known]))))
    return replace(result, noise=noise, risk=smoothing.risk * square, risk_error=smoothing.risk_error * square, observed=values)


def turned(smoothing: "Smoothing", angles: Floats, turn: float, options: Options) -> "Smoothing":
    """A smoothing of angles without their jumps over a full turn, brought back to 0 to `turn`; those passed are (n,)."""
    turns = np.rint((smoothing.observed - angles) / turn)
    result = brought_back(smoothing, angular(turn, turns), options, (-np.inf, np.inf))
    return replace(result, components=smoothing.components, observed=angles)


def brought_back(smoothing: "Smoothing", scale: Scale, options: Options, bounds: Bounds) -> "Smoothing":
    """The curve and the seasons of a smoothing on another scale in the caller's units."""
    # Each season is what it adds to the trend and the seasons of shorter periods.
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


def _with_risks(smoothing: "Smoothing", observed: Floats, variances: Floats, unbiased: Floats) -> "Smoothing":
    """With the risk and noise of values whose `variances` (n,) follow the curve; `unbiased` (n,) estimates of these.

    Of counts the count itself is one, as E λ f(x) = E x f(x − 1) takes the place of Stein's identity (Hudson 1978, section 4).
    """
    known = smoothing.series.unsort(np.isin(np.arange(observed.size), smoothing.series.present))
    leverage = smoothing.degrees_of_freedom / max(int(known.sum()), 1)
    risks = (observed - smoothing.values) ** 2 - unbiased + 2 * variances * leverage
    noise = np.sqrt(variances[known])
    risk, error = float(risks[known].mean()), risk_error(noise)
    if smoothing.curve_variances is not None and smoothing.head is None:
        slopes = 1.0 if smoothing.scaled is None else smoothing.scaled[1].slope(smoothing.scaled[0].values)
        of_curve = smoothing.series.unsort(smoothing.curve_variances) * (smoothing.series.spread * slopes) ** 2
        risk, error = combined_risk(risk, error, float(of_curve[known].mean()), int(known.sum()))
    return replace(smoothing, noise=float(np.sqrt(np.mean(noise**2))), risk=risk, risk_error=error, observed=observed)
