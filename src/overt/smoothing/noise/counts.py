"""Poisson counts: how they are recognized, and the transform that gives their noise one level."""

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.images import PASSES, POSITIVE, brought_back, unfilled, with_risks
from overt.smoothing.noise.kind import Analyze, Kind
from overt.smoothing.noise.scale import Scale
from overt.smoothing.seasons.rest import cycle_length
from overt.smoothing.selection.contrasts import MAX_CONTRASTS, contrasts

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# MIN_COUNTS: fewest values that show that their variance follows their mean.
MIN_COUNTS = 200
# GROUP: points in a group of values of similar size.
GROUP = 128
# BELOW, ABOVE: limits of log(variance/mean) below 0 and above, where a signal raises it; ERRORS: standard errors added to both limits.
BELOW, ABOVE, ERRORS = 0.12, 0.22, 3.0
# ORDERS: orders of differences; the smallest variance counts, because signals raise the variance of some orders, noise of all.
ORDERS = (2, 3, 5)
# NEAR: points of the running mean that estimates the mean.
NEAR = 15
# LARGEST_MEAN: largest tabulated mean; above it the asymptotic form is exact to 1e-4 of the mean.
LARGEST_MEAN = 200.0
# LEAST_MEAN_COUNT: least mean of counts that are smoothed untransformed; counts of a smaller mean look rounded.
LEAST_MEAN_COUNT = 0.5
# SMALLEST_MEAN: least curve in the criterion; counts of this mean are all 0.
SMALLEST_MEAN = 1e-6
# ENOUGH_COUNTS: counts in the points whose mean variance is the unit of the risk.
ENOUGH_COUNTS = 200


def check_counts(values: Floats) -> None:
    """Raise unless all known values (n,) are whole numbers of 0 or more."""
    wrong = np.flatnonzero(~np.isnan(values) & ((values < 0) | (values != np.round(values))))
    if wrong.size:
        got = f"{values[wrong[0]]:g} at [{wrong[0]}]"
        fix = 'pass the counts themselves, not rates, or leave noise="poisson" out'
        raise InputError('whole numbers of 0 or more with noise="poisson"', got=got, fix=fix)


def are_counts(values: Floats, cycle: int = 1) -> bool:
    """Whether values (n,), in the order of their times and without NaN, look like Poisson counts with a season of `cycle` points.

    Counts are whole numbers of 0 or more, and the variance of differences of neighbours equals the mean at every size of the values:
    −0.12 − 3s ≤ log(variance/mean) ≤ 0.22 + 3s, s its standard error, in groups of about 128 points of similar size and over all points.
    Neighbours have the same phase if there is a season.

    >>> draw, times = np.random.default_rng(0), np.arange(1000)
    >>> are_counts(draw.poisson(20 + 15 * np.sin(times / 50)).astype(float))
    True
    >>> are_counts(np.round(20 + 15 * np.sin(times / 50) + draw.normal(size=1000)))
    False
    """
    if (
        values.size < max(MIN_COUNTS, 2 * ORDERS[-1] * cycle)
        or (values < 0).any()
        or (values != np.round(values)).any()
        or values.max() < 2
    ):
        return False
    means = np.convolve(np.pad(values, NEAR // 2, mode="reflect"), np.full(NEAR, 1 / NEAR), "valid")
    if cycle > 1:
        phases = np.arange(values.size) % cycle
        means *= (np.bincount(phases, values) / np.maximum(np.bincount(phases, means), np.finfo(float).tiny))[phases]
    # A longer series has more differences than `contrasts` returns: it takes them at equal distances.
    stride = -(-(values.size - ORDERS[0] * cycle) // MAX_CONTRASTS)
    squares = [contrasts(None, values, np.ones(values.size), range(0, order * cycle + 1, cycle)) ** 2 for order in ORDERS]
    count = min(part.size for part in squares)
    nearby = means[ORDERS[-1] * cycle // 2 :: stride][:count]
    # A jump or a spike counts as at most three standard deviations; 4 more for means near 0, where single counts are rare.
    capped = np.stack([np.minimum(part[:count], 9 * nearby + 4) for part in squares])
    order = np.argsort(nearby, kind="stable")
    groups = [np.arange(count), *np.array_split(order, max(count // GROUP, 1))]
    return all(_follows(capped[:, group].mean(axis=1).min(), nearby[group]) for group in groups)


def _follows(variance: float, means: Floats) -> bool:
    mean = float(means.mean())
    if mean <= 0:
        return variance <= 0
    # Neighbouring squares share points: their mean has a variance of about 4/n; single counts add 1/(n · mean); large means count most.
    count = means.size * mean**2 / float(np.mean(means**2))
    error = np.sqrt((4 + 1 / mean) / count)
    return bool(variance > 0 and -BELOW - ERRORS * error <= np.log(variance / mean) <= ABOVE + ERRORS * error)


def stabilized(counts: Floats) -> Floats:
    """2√(x + 3/8), whose variance is near 1 from a mean of about 2 on (Anscombe 1948); NaN stays."""
    return 2 * np.sqrt(counts + 0.375)


def logarithms(counts: Floats) -> Floats:
    """log(x + ½), whose expectation is log λ, to 1/λ²; NaN stays."""
    return np.log(counts + 0.5)


def mean_of_stabilized(values: Floats) -> Floats:
    """The mean λ of counts whose 2√(x + 3/8) has the expectation `values`: the exact unbiased inverse (Mäkitalo and Foi 2011).

    It is 0 below the expectation at λ = 0. The algebraic inverse, (y/2)² − 3/8, would be too small by 1/4 of a count.

    >>> mean_of_stabilized(stabilized(np.random.default_rng(0).poisson(3.0, 100_000)).mean()).round(2)
    np.float64(3.0)
    """
    means, expectations = _expectations()
    return np.where(values <= expectations[-1], np.interp(values, expectations, means), _asymptotic(values))


def slope_of_mean(values: Floats) -> Floats:
    """The derivative of `mean_of_stabilized`: √λ for large λ."""
    means, expectations = _expectations()
    middle, slopes = (expectations[1:] + expectations[:-1]) / 2, np.diff(means) / np.diff(expectations)
    return np.where(values <= middle[-1], np.interp(values, middle, slopes), values / 2)


SQUARE_ROOTS = Scale("square roots", stabilized, mean_of_stabilized, slope_of_mean)
LOGARITHMS_OF_COUNTS = Scale("logarithms of counts", logarithms, np.exp, np.exp)


def criterion_of_counts(counts: Floats, curve: Floats, degrees_of_freedom: float) -> float:
    """Akaike's criterion of a curve λ (n,) of counts (n,), NaN if missing: 2 Σ (x log(x/λ) − x + λ) + 2 per degree of freedom.

    >>> criterion_of_counts(np.array([4.0, np.nan, 2.0]), np.array([4.0, 1.0, 2.0]), 3.0)
    6.0
    """
    known = ~np.isnan(counts)
    x, means = counts[known], np.maximum(curve[known], SMALLEST_MEAN)
    logs = x * np.log(np.maximum(x, 1.0) / means)
    return float(2 * np.sum(logs - x + means) + 2 * degrees_of_freedom)


def variances_of_counts(means: Floats) -> Floats:
    """The variances of counts with a curve λ̂ (n,): λ̂, at least ½ and at least 3% of its mean.

    The limits are needed because a curve can come so near to 0 that the counts would seem to have no noise.

    >>> variances_of_counts(np.array([0.0, 8.0, 4.0]))
    array([0.5, 8. , 4. ])
    """
    return np.maximum(means, max(0.03 * float(means.mean()), 0.5))


def risk_levels_of_counts(levels: Floats, unit: float) -> Floats:
    """The noise levels (n,) that are the units of the risk of counts: from a running mean of variances over points with 200 counts.

    `levels` (n,) are √λ̂ over `unit`. A risk in units of λ̂_i itself would favour heads that are low where noise made the counts and λ̂
    low, most if counts are few. 50 to 400 counts give the same errors; means over 300 points give 3% more if counts are many (the
    development half of benchmarks/smoothing).

    >>> risk_levels_of_counts(np.array([1.0, 0.0, 1.0]), 1.0).round(2)
    array([0.82, 0.82, 0.82])
    """
    squares = levels**2
    reach = int(min(ENOUGH_COUNTS / (2 * unit**2 * squares.mean()), (levels.size - 1) // 2))
    sums = np.cumsum(np.pad(squares, (reach + 1, reach), mode="symmetric"))
    return np.sqrt((sums[2 * reach + 1 :] - sums[: -2 * reach - 1]) / (2 * reach + 1))


class Counts(Kind):
    """Counts, smoothed by square roots, whose noise has one level, and then untransformed by the bank, with the curve as variance.

    A parabola near 0 is a cusp under the square root, and its root is no polynomial. Untransformed counts have 8% less error on the
    development signals of benchmarks/smoothing, 5% by the first pass and 3% by the second; a quarter less on parabolas. Seasons may be
    in proportion to the trend: with seasons, Akaike's criterion (1973) chooses among three scales.
    """

    names: tuple[str, ...] = ("counts", "square roots", "logarithms of counts")

    def holds(self, series: Observed) -> bool:
        """Whether noise="poisson" was passed, which is checked, or the values look like counts (`are_counts`)."""
        values, weights, options = series.values, series.weights, series.options
        if options.counts:
            check_counts(values)
            if weights is not None and np.ptp(weights[weights > 0]) > 0:
                raise InputError('equal weights with noise="poisson"', got="weights that differ", fix="leave weights out")
            return True
        if not series.undeclared:
            return False
        whole = values.size >= MIN_COUNTS and bool((values >= 0).all() and (values == np.round(values)).all())
        return are_counts(series.known, cycle_length(values, series.times, options) if whole else 1)

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the counts, which is never below 0."""
        values, options = series.values, series.options
        if not options.fill:  # each pass needs the whole curve of the last one
            return unfilled(self.smooth(series.under(replace(options, fill=True)), analyze), series)
        result = series.smoothed(analyze, stabilized(values), replace(options, noise=1.0))
        first = result = _counted(brought_back(result, SQUARE_ROOTS, options, POSITIVE), values)
        if not options.two_sided_bank or not result.values.mean() >= LEAST_MEAN_COUNT:
            return result
        inliers = np.where(first.outliers, np.nan, values)
        for _ in range(PASSES):
            noise = np.sqrt(variances_of_counts(result.values))
            result = series.smoothed(analyze, inliers, replace(options, noise=noise, robust=False, from_curve="counts"))
            curve = np.maximum(result.values, 0.0)
            result = _counted(replace(result, values=curve, kind="counts", bounds=POSITIVE, options=options), values)
        if first.seasons is not None:
            results = [first, result, _smoothed_logarithms(series, inliers, first, analyze)]
            result = min(results, key=lambda one: criterion_of_counts(inliers, one.values, one.degrees_of_freedom))
        return replace(result, outliers=first.outliers, filled=first.filled, observed=values)

    def sentence(self, result: "Smoothing", source: str) -> str:
        """The sentence that names the scale on which the counts were smoothed."""
        if result.kind == "logarithms of counts":
            return (
                f"The values are Poisson counts with a season in proportion to their trend ({source}): log(x + ½) was smoothed."
            )
        if result.kind == "square roots":
            return (
                f"The values are Poisson counts ({source}): 2√(x + 3/8) was smoothed, and the curve is the mean of the counts."
            )
        return f"The values are Poisson counts ({source}): they were smoothed with their mean as variance."


def _counted(result: "Smoothing", counts: Floats) -> "Smoothing":
    return with_risks(result, counts, result.values, counts)


def _smoothed_logarithms(series: Observed, values: Floats, first: "Smoothing", analyze: Analyze) -> "Smoothing":
    """Counts (n,) smoothed by log(x + ½), of mean log λ and variance 1/λ, to 1/λ²: proportional seasons are sums on this scale."""
    drawn = replace(series.options, noise=1.0, robust=False, from_curve="logarithms")
    result, logs = first, logarithms(values)
    for _ in range(PASSES):
        result = analyze(replace(series, values=logs, weights=variances_of_counts(result.values), options=drawn))
        result = _counted(brought_back(result, LOGARITHMS_OF_COUNTS, series.options, POSITIVE), values)
    return result


def _asymptotic(values: Floats) -> Floats:
    safe = np.maximum(values, 1.0)
    root = np.sqrt(1.5)
    return safe**2 / 4 + root / (4 * safe) - 11 / (8 * safe**2) + 5 * root / (8 * safe**3) - 1 / 8


@cache
def _expectations() -> tuple[Floats, Floats]:
    """Means λ (m,), and the expectation of 2√(x + 3/8) at each mean (m,)."""
    means = np.concatenate([[0.0], np.geomspace(1e-4, LARGEST_MEAN, 800)])
    counts: Floats = np.arange(LARGEST_MEAN + 12 * np.sqrt(LARGEST_MEAN))
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    logs = counts * np.log(np.maximum(means, 1e-300))[:, None] - means[:, None] - log_factorials
    return means, (stabilized(counts) * np.exp(logs)).sum(axis=1)
