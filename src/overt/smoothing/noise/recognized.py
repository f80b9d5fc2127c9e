"""Which hypothesis of noise the values support, and the smoothing under it, beyond noise that the bank itself models."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import Times
from overt.smoothing.noise.amounts import recognize_amounts
from overt.smoothing.noise.codes import find_codes
from overt.smoothing.noise.counts import (
    LOGARITHMS_OF_COUNTS,
    MIN_COUNTS,
    SQUARE_ROOTS,
    are_counts,
    check_counts,
    criterion_of_counts,
    stabilized,
    variances_of_counts,
)
from overt.smoothing.noise.images import drawn_amounts, drawn_counts, drawn_outcomes, stabilized_counts, transformed, turned
from overt.smoothing.noise.logarithms import are_proportional, bounds_of_rates
from overt.smoothing.noise.outcomes import are_outcomes, variances_of_outcomes
from overt.smoothing.noise.scale import check_on_scale, transform_named, wrapped
from overt.smoothing.seasons.rest import cycle_of

# How often counts and outcomes are smoothed as they are, each time under the variances of the last curve.
PASSES = 2
# Counts of a smaller mean look rounded as they are.
LEAST_MEAN_COUNT = 0.5

# One series (values, times, weights, options, column) to its smoothing, `analysis.analyze_series`.
Analyze = Callable[[Floats, Times, Floats | None, Options, int], Any]


def hypothesis(values: Floats, times: Times, weights: Floats | None, options: Options) -> str:
    """The name of the hypothesis: "codes", "angles", "scale", "counts", "outcomes", "rates", "logarithms", "amounts", or "" for none.

    Codes come first: what they leave is asked again. Then comes what was passed.
    """
    if options.counts:
        check_counts(values)
        if weights is not None and np.ptp(weights[weights > 0]) > 0:
            raise InputError('equal weights with noise="poisson"', got="weights that differ", fix="leave weights out")
        return "counts"
    if options.cleans and find_codes(values).any():
        return "codes"
    if options.circular is not None or options.transform:
        return "angles" if options.circular is not None else "scale"
    if options.counts is not None or weights is not None:
        return ""
    known = ~np.isnan(values)
    ordered = values[known][np.argsort(times.moments[known], kind="stable")]
    if are_outcomes(ordered):
        return "outcomes"
    whole = values.size >= MIN_COUNTS and known.all() and values.min() >= 0 and (values == np.round(values)).all()
    if are_counts(ordered, cycle_of(values, times, options) if whole else 1):
        return "counts"
    if options.scale == "auto" and bounds_of_rates(ordered, options.limits):
        return "rates"
    amounts, proportional = recognize_amounts(ordered), options.scale == "auto" and are_proportional(ordered)
    return "amounts" if amounts and not (proportional and amounts.power == 2) else "logarithms" if proportional else ""


def of_codes(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """The smoothing of the other values; codes are missing, and named among the outliers."""
    codes = find_codes(values)
    others = analyze(np.where(codes, np.nan, values), times, weights, replace(options, fill=True), column)
    return others.with_codes(values, codes, options)


def of_counts(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """Counts under the transform that gives their noise one level; then, by the bank, as they are, under the variances of that curve.

    A parabola that comes near 0 is a cusp under the square root, and its root is no polynomial. As they are, counts have 8% less error on
    the development signals of benchmarks/smoothing, 5% by the first pass and 3% by the second; on parabolas a quarter less. With seasons,
    which may be in proportion to the trend, that scale is taken of three that has the least criterion of Akaike (1973).
    """
    smoothing = analyze(stabilized(values), times, weights, replace(options, noise=1.0), column)
    smoothing = stabilized_counts(smoothing, values, options, SQUARE_ROOTS)
    if options.keys != "auto" or options.causal or not smoothing.values.mean() >= LEAST_MEAN_COUNT:
        return smoothing
    first, without_outliers = smoothing, np.where(smoothing.outliers, np.nan, values)
    for _ in range(PASSES):
        noise = np.sqrt(variances_of_counts(smoothing.values))
        drawn = replace(options, noise=noise, robust=False, from_curve="counts")
        smoothing = drawn_counts(analyze(without_outliers, times, weights, drawn, column), values, options)
    if first.seasons is not None:
        smoothings = [first, smoothing, _of_logarithms_of_counts(without_outliers, first, options, column, analyze)]
        smoothing = min(smoothings, key=lambda one: criterion_of_counts(without_outliers, one.values, one.degrees_of_freedom))
    return replace(smoothing, outliers=first.outliers, filled=first.filled, observed=values)


def _of_logarithms_of_counts(values: Floats, first: Any, options: Options, column: int, analyze: Analyze) -> Any:
    """Counts (n,) by log(x + ½), whose expectation is log λ and whose variance 1/λ, to 1/λ²: a season in proportion is a sum there."""
    smoothing = first
    for _ in range(PASSES):
        means = variances_of_counts(smoothing.values)
        drawn = replace(options, noise=1.0, robust=False, from_curve="logarithms")
        smoothing = analyze(LOGARITHMS_OF_COUNTS.forward(values), first.times, means, drawn, column)
        smoothing = stabilized_counts(smoothing, values, options, LOGARITHMS_OF_COUNTS)
    return smoothing


def of_outcomes(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """Outcomes by heads of time, under the variance of their mean, and then under those of the last curve.

    Two values are far from normal noise: heads that compare them follow them, and their estimated risk does not show it.
    """
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    curve, smoothing = np.full(values.size, float(np.nanmean(values))), None
    for _ in range(1 + PASSES):
        noise = np.sqrt(variances_of_outcomes(curve, low, high))
        drawn = replace(options, noise=noise, robust=False, from_curve="outcomes")
        smoothing = drawn_outcomes(analyze(values, times, weights, drawn, column), values, (low, high), options)
        curve = np.where(np.isnan(smoothing.values), curve, smoothing.values)
    return smoothing


def of_logarithms(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """The smoothing of the values' logarithms, whose noise is estimated like that of any series."""
    smoothing = of_scale(values, times, weights, replace(options, scale="log", bounds=None), column, analyze)
    return replace(smoothing, options=options)


def of_scale(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """The smoothing of the values on a scale; a noise that was passed is of one level there."""
    name, bounds = options.transform, options.limits_of_scale
    check_on_scale(values, name, bounds)
    transform = transform_named(name, bounds)
    smoothing = analyze(transform.forward(values), times, weights, options.on_its_scale, column)
    return transformed(smoothing, values, transform, options, bounds)


def of_rates(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """The smoothing of the logits of rates between their bounds."""
    known = np.flatnonzero(~np.isnan(values))
    bounds = bounds_of_rates(values[known][np.argsort(times.moments[known], kind="stable")], options.limits)
    smoothing = of_scale(values, times, weights, replace(options, scale="logit", bounds=bounds), column, analyze)
    return replace(smoothing, options=options)


def of_angles(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """Angles without their jumps over a full turn: each as near as it can be to the direction of its smoothed sine and cosine."""
    turn, plain = float(options.circular or 1.0), options.on_its_scale
    known = ~np.isnan(values)
    outside = np.flatnonzero(known & ~((values >= -turn) & (values <= turn)))
    if outside.size:
        got, fix = f"{values[outside[0]]:g} at [{outside[0]}]", "pass the size of a full turn, as circular=360 for degrees"
        raise InputError(f"values from {-turn:g} to {turn:g} with circular={turn:g}", got=got, fix=fix)
    first = replace(plain, period=None, robust=False, noise="gaussian", fill=True)
    cosine, sine = (analyze(part(2 * np.pi * values / turn), times, weights, first, column).values for part in (np.cos, np.sin))
    order = np.argsort(times.moments, kind="stable")
    direction = np.full(values.size, np.nan)
    direction[order] = np.unwrap(np.arctan2(sine, cosine)[order]) * turn / (2 * np.pi)
    smoothing = analyze(direction + wrapped(values - direction, turn), times, weights, plain, column)
    return turned(smoothing, values, turn, options)


def of_amounts(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """Amounts as they are, by heads of time, under the variances of their neighbours' means, and then under those of the last curve."""
    known = np.flatnonzero(~np.isnan(values))
    known = known[np.argsort(times.moments[known], kind="stable")]
    amounts = recognize_amounts(values[known])
    assert amounts is not None  # `hypothesis` asked before
    curve = np.full(values.size, np.nan)
    curve[known] = amounts.curve
    curve = np.where(np.isnan(curve), amounts.curve.mean(), curve)

    def smoothed(curve: Floats) -> tuple[Any, Floats]:
        drawn = replace(options, noise=np.sqrt(amounts.variances(curve)), robust=False, from_curve="amounts")
        smoothing = analyze(values, times, weights, drawn, column)
        return smoothing, np.maximum(np.where(np.isnan(smoothing.values), curve, smoothing.values), 0.0)

    smoothing, curve = smoothed(curve)
    for _ in range(PASSES):
        smoothing, curve = smoothed(curve)
    return drawn_amounts(smoothing, amounts.variances(curve), amounts.unbiased(values), options)


SMOOTHED = {
    "codes": of_codes, "angles": of_angles, "scale": of_scale, "counts": of_counts, "outcomes": of_outcomes,
    "rates": of_rates, "logarithms": of_logarithms, "amounts": of_amounts,
}  # fmt: skip
