"""Which hypothesis of noise the values support, and the smoothing under it, beyond noise that the bank itself models."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.options import Options
from overt.smoothing.data.series import Floats
from overt.smoothing.data.times import Times
from overt.smoothing.noise.codes import find_codes
from overt.smoothing.noise.counts import are_counts, check_counts, stabilized, variances_of_counts
from overt.smoothing.noise.logarithms import are_proportional
from overt.smoothing.noise.outcomes import are_outcomes, variances_of_outcomes

# How often counts and outcomes are smoothed as they are, each time under the variances of the last curve.
PASSES = 2
# Counts of a smaller mean look rounded as they are.
LEAST_MEAN_COUNT = 0.5

# One series (values, times, weights, options, column) to its smoothing, `analysis.analyze_series`.
Analyze = Callable[[Floats, Times, Floats | None, Options, int], Any]


def hypothesis(values: Floats, times: Times, weights: Floats | None, options: Options) -> str:
    """The name of the hypothesis: "codes", "counts", "outcomes", "logarithms", or "" for none of these.

    Codes come first: what they leave is asked again.
    """
    if options.counts:
        check_counts(values)
        if weights is not None and np.ptp(weights[weights > 0]) > 0:
            raise InputError('equal weights with noise="poisson"', got="weights that differ", fix="leave weights out")
        return "counts"
    if options.cleans and find_codes(values).any():
        return "codes"
    if options.counts is not None or weights is not None:
        return ""
    known = ~np.isnan(values)
    ordered = values[known][np.argsort(times.moments[known], kind="stable")]
    tests = {"outcomes": are_outcomes, "counts": are_counts, "logarithms": are_proportional}
    return next((name for name, holds in tests.items() if holds(ordered)), "")


def of_codes(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """The smoothing of the other values; codes are missing, and named among the outliers."""
    codes = find_codes(values)
    others = analyze(np.where(codes, np.nan, values), times, weights, replace(options, fill=True), column)
    return others.with_codes(values, codes, options)


def of_counts(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """Counts under the transform that gives their noise one level; then, by the bank, as they are, under the variances of that curve.

    A parabola that comes near 0 is a cusp under the square root, and its root is no polynomial. As they are, counts have 8% less error on
    the development signals of benchmarks/smoothing, 5% by the first pass and 3% by the second; on parabolas a quarter less.
    """
    smoothing = analyze(stabilized(values), times, weights, replace(options, noise=1.0), column)
    smoothing = smoothing.of_stabilized_counts(values, options)
    if options.keys != "auto" or options.causal or not smoothing.values.mean() >= LEAST_MEAN_COUNT:
        return smoothing
    first, without_outliers = smoothing, np.where(smoothing.outliers, np.nan, values)
    for _ in range(PASSES):
        noise = np.sqrt(variances_of_counts(smoothing.values))
        drawn = replace(options, noise=noise, robust=False, from_curve="counts")
        smoothing = analyze(without_outliers, times, weights, drawn, column).of_counts(values, options)
    return replace(smoothing, outliers=first.outliers, filled=first.filled)


def of_outcomes(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """Outcomes by heads of time, under the variance of their mean, and then under those of the last curve.

    Two values are far from normal noise: heads that compare them follow them, and their estimated risk does not show it.
    """
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    curve, smoothing = np.full(values.size, float(np.nanmean(values))), None
    for _ in range(1 + PASSES):
        noise = np.sqrt(variances_of_outcomes(curve, low, high))
        drawn = replace(options, noise=noise, robust=False, from_curve="outcomes")
        smoothing = analyze(values, times, weights, drawn, column).of_outcomes(values, low, high, options)
        curve = np.where(np.isnan(smoothing.values), curve, smoothing.values)
    return smoothing


def of_logarithms(values: Floats, times: Times, weights: Floats | None, options: Options, column: int, analyze: Analyze) -> Any:
    """The smoothing of the values' logarithms, whose noise is estimated like that of any series."""
    logarithms = analyze(np.log(values), times, weights, replace(options, noise="gaussian"), column)
    return logarithms.of_logarithms(values, options)


SMOOTHED = {"codes": of_codes, "counts": of_counts, "outcomes": of_outcomes, "logarithms": of_logarithms}
