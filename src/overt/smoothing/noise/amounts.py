"""Skewed amounts, as durations, rain or sales: values of 0 and more whose variance is φμ or φμ², with their mean μ as the curve."""

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.images import PASSES, POSITIVE, with_risks
from overt.smoothing.noise.kind import Analyze, Kind
from overt.smoothing.noise.logarithms import Proportional
from overt.smoothing.noise.predictive import log_predictive_density
from overt.smoothing.selection.contrasts import constant_level

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# MIN_AMOUNTS: fewest values that show the shape of their noise; MOST_AMOUNTS: values compared, the middle ones of a longer series.
MIN_AMOUNTS, MOST_AMOUNTS = 40, 8192
# LEAST_POSITIVE: least share of values above 0.
LEAST_POSITIVE = 0.5
# LEAST_VARIATION: least noise level over the mean. Less noise is hardly skewed: the skewness of a gamma distribution is twice this ratio.
LEAST_VARIATION = 0.3
# REACHES: neighbours on either side whose mean predicts a value; POWERS: the powers p of the variance φ μ^p that are compared.
REACHES = (4, 8, 16, 32)
POWERS = (1, 2)
# FAR_REACH: neighbours on either side, to whose mean values are compared in the search for outliers; FALSE_OUTLIERS: outliers expected by
# chance in one series, at most; NORMAL_QUARTILES: distance between the quartiles of a standard normal distribution.
FAR_REACH, FALSE_OUTLIERS, NORMAL_QUARTILES = 8, 1e-2, 1.349
# WAVE: amounts repeat if noise has such a wave with a smaller probability. A pattern of 4 values, repeated 60 times, is below 1e-100.
WAVE = 1e-3
# SMALLEST: least curve in the variance, as a part of the curve's mean.
SMALLEST = 0.03


class Amounts(NamedTuple):
    """Noise of variance φ μ^p about the mean μ, with a first curve (n,) and the mask of outliers (n,)."""

    dispersion: float
    power: int
    curve: Floats
    outliers: NDArray[np.bool_]

    def variances(self, curve: Floats) -> Floats:
        """The variances φ μ^p for a curve μ (n,), which counts as at least 3% of its mean."""
        return self.dispersion * np.maximum(curve, SMALLEST * float(np.nanmean(curve))) ** self.power

    def unbiased(self, values: Floats) -> Floats:
        """Estimates of the variances from the values x (n,) themselves: E x² = (1 + φ) μ² if p = 2."""
        return self.dispersion * values**self.power / (1.0 if self.power == 1 else 1 + self.dispersion)


def recognize_amounts(values: Floats) -> Amounts | None:
    """The noise of skewed amounts (n,), in the order of their times and without NaN; None if the values are no skewed amounts.

    Positive values must be predicted better by a gamma distribution (mean μ, the mean of neighbours, and variance φμ^p) or by logarithms
    with noise of one level than by symmetric noise, both of a constant level and of a level that is a power of the value. Zeros, such as
    days without rain or overdispersed counts, take no part in the comparison; the mean and the variance contain them.

    >>> draw, curve = np.random.default_rng(0), 2 + np.sin(np.arange(400) / 40)
    >>> recognize_amounts(curve * draw.exponential(size=400)).power
    2
    >>> recognize_amounts(curve + 0.3 * draw.normal(size=400)) is None
    True
    """
    far = far_out(values)
    observed, values = values, values[~far]
    positive = values[values > 0]
    if (values < 0).any() or positive.size < max(MIN_AMOUNTS, LEAST_POSITIVE * values.size) or np.ptp(positive) == 0:
        return None
    if constant_level(None, values, np.ones(values.size)) < LEAST_VARIATION * values.mean():
        return None
    start = max(positive.size - MOST_AMOUNTS, 0) // 2
    part = positive[start : start + MOST_AMOUNTS]
    means = [_neighbour_means(part, reach) for reach in REACHES]
    scores = [(_gamma_density(part, mean, p), p, r) for mean, r in zip(means, REACHES, strict=True) for p in POWERS]
    score, power, reach = max(scores)
    lognormal_score = log_predictive_density(np.log(part)) - float(np.log(part).sum())
    if lognormal_score > score:  # the variance of a lognormal distribution follows the square of its mean
        score, power, reach = lognormal_score, 2, max(one for one in scores if one[1] == 2)[2]
    least = SMALLEST * part.mean()
    rivals = [log_predictive_density(part, lambda curve, p=p: np.maximum(curve, least) ** p) for p in (0.0, 0.5, 1.0)]
    if score <= max(rivals) + 0.5 * np.log(part.size):
        return None
    curve = np.maximum(_neighbour_means(values, reach), SMALLEST * values.mean())
    if _repeats(values / curve - 1, reach):
        return None
    dispersion = float(np.mean((values - curve) ** 2 / curve**power)) / (1 + 1 / (2 * reach))
    points = np.arange(observed.size)
    return Amounts(dispersion, power, np.interp(points, points[~far], curve), far)


def far_out(values: Floats) -> NDArray[np.bool_]:
    """The mask of values (n,) that are improbably large for a gamma or lognormal distribution about the mean of their neighbours.

    The cube root of gamma amounts is nearly normal (Wilson and Hilferty 1931); the logarithm of lognormal amounts is normal. A value is
    far out if its cube root exceeds the median by a number of standard deviations (from the quartiles) beyond which `FALSE_OUTLIERS` are
    expected by chance. Its logarithm must exceed the same limit if a lognormal distribution predicts the other values better.

    >>> amounts = np.random.default_rng(0).gamma(2.0, 5.0, 300)
    >>> far_out(amounts).any(), far_out(np.append(amounts, 200.0)).nonzero()[0]
    (np.False_, array([300]))
    """
    far, nothing = values > 0, np.zeros(values.size, bool)
    if far.sum() < MIN_AMOUNTS or (values < 0).any():
        return nothing
    positive, means = values[far], np.maximum(_neighbour_means(values, FAR_REACH), SMALLEST * values.mean())[far]
    limit, logs = np.sqrt(2 * np.log(values.size / FALSE_OUTLIERS)), np.log(positive / means)
    beyond = _normal_scores(np.exp(logs / 3)) > limit
    if not beyond.any():
        return nothing
    positive, means, others = positive[~beyond], means[~beyond], logs[~beyond]
    lognormal_density = -others.size * (np.log(others.std() * np.sqrt(2 * np.pi)) + 0.5) - float(np.log(positive).sum())
    if lognormal_density > _gamma_density(positive, means, 2):
        beyond &= _normal_scores(logs) > limit
    far[far] = beyond
    return far


def _normal_scores(values: Floats) -> Floats:
    """Distances from the median, in standard deviations from the quartiles; 0 if the quartiles are equal."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return (values - middle) * (NORMAL_QUARTILES / (high - low)) if high > low else np.zeros(values.size)


class SkewedAmounts(Kind):
    """Amounts, smoothed untransformed by heads of time, with variances from the means of neighbours and then from the last curve."""

    names: tuple[str, ...] = ("amounts",)
    sets_repeats_aside: bool = True

    def holds(self, series: Observed) -> bool:
        """See `recognize_amounts`; amounts in proportion to a mean that spans decades are smoothed by their logarithms."""
        amounts = recognize_amounts(series.known) if series.undeclared else None
        return amounts is not None and not (amounts.power == 2 and Proportional().holds(series))

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the amounts, which is never below 0."""
        values, options = series.values, series.options
        known = np.flatnonzero(~np.isnan(values))
        known = known[np.argsort(series.times.moments[known], kind="stable")]
        amounts = recognize_amounts(values[known])
        assert amounts is not None  # since `holds` is true
        curve, result = np.full(values.size, float(amounts.curve.mean())), None
        curve[known] = amounts.curve
        outliers = np.zeros(values.size, bool)
        outliers[known] = amounts.outliers
        others, filling = np.where(outliers, np.nan, values), replace(options, fill=options.fill or bool(outliers.any()))
        for _ in range(1 + PASSES):
            noise = np.sqrt(amounts.variances(curve))
            result = series.smoothed(analyze, others, replace(filling, noise=noise, robust=False, from_curve="amounts"))
            curve = np.maximum(np.where(np.isnan(result.values), curve, result.values), 0.0)
        result = replace(result, values=np.clip(result.values, *POSITIVE), kind="amounts", bounds=POSITIVE, options=options)  # type: ignore[union-attr, type-var]
        result = with_risks(result, values, amounts.variances(curve), amounts.unbiased(values))
        return result.with_outliers(values, outliers, options) if outliers.any() else result

    def sentence(self, result: "Smoothing", source: str) -> str:
        """The sentence that names skewed amounts and their variance."""
        return f"The values are skewed amounts ({source}): they were smoothed with a variance that follows their mean."


def _neighbour_means(values: Floats, reach: int) -> Floats:
    """The mean of `reach` neighbours on either side of each value (n,), without the value itself; the ends are reflected."""
    padded = np.pad(values, reach, mode="reflect")
    sums = np.concatenate([[0.0], np.cumsum(padded)])
    return (sums[2 * reach + 1 :] - sums[: -2 * reach - 1] - values) / (2 * reach)


def _repeats(residuals: Floats, reach: int) -> bool:
    """Whether residuals (n,) from means over `reach` contain a wave, by the largest share of their periodogram (Fisher 1929)."""
    powers = np.abs(np.fft.rfft(residuals)[max(residuals.size // (4 * reach), 1) :]) ** 2  # periods up to four reaches
    share = float(powers.max() / powers.sum())
    return powers.size * (1 - share) ** (powers.size - 1) < WAVE


def _gamma_density(values: Floats, means: Floats, power: int) -> float:
    """The sum of log densities of values (n,) under gamma distributions of means μ (n,) and variances φμ^p, maximized over φ."""
    typical = float(means.mean()) ** (2 - power)
    logs = np.log(values / means)
    best = -np.inf
    for shape in 2.0 ** np.arange(-3.0, 4.5, 0.5):  # shape of the gamma distribution at a typical value: μ^(2 − p)/φ
        shapes = shape * means ** (2 - power) / typical
        densities = shapes * (np.log(shapes) + logs - values / means) - _log_gamma(shapes) - np.log(values)
        best = max(best, float(densities.sum()))
    return best


def _log_gamma(shapes: Floats) -> Floats:
    """log Γ(k) (n,), by Stirling's series at k + 5."""
    above = shapes + 5
    series = (above - 0.5) * np.log(above) - above + 0.5 * np.log(2 * np.pi) + 1 / (12 * above) - 1 / (360 * above**3)
    return series - np.log(shapes * (shapes + 1) * (shapes + 2) * (shapes + 3) * (shapes + 4))
