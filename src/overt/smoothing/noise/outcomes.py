"""Outcomes of 0 and 1, or of any two values: each is drawn with a probability that the curve follows, and its variance is p(1 − p)."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.images import PASSES, unfilled, with_risks
from overt.smoothing.noise.kind import Analyze, Kind

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# Fewer values, or fewer of one of the two, do not show a probability.
MIN_OUTCOMES, MIN_EACH = 40, 4
# Neighbours to either side whose share predicts an outcome; all others, too.
REACHES = (8, 16, 32, 64)
# A probability near 0 or 1 has at least this part of the mean variance: a curve comes nearer to its bounds than the probability does.
LEAST_VARIANCE = 0.05


def are_outcomes(values: Floats) -> bool:
    """Whether values (n,), in the order of their times and without NaN, are outcomes of two kinds, and not a state that switches.

    The share of either kind among the neighbours predicts each outcome; the rival is a chain in which the next value depends on the last
    one, two parameters of ½ log n each. The larger log probability decides.

    >>> probabilities = 1 / (1 + np.exp(-(np.arange(300) - 150) / 20))
    >>> outcomes = (np.random.default_rng(0).random(300) < probabilities).astype(float)
    >>> are_outcomes(outcomes), are_outcomes(np.repeat([0.0, 1.0, 0.0], 100))
    (True, False)
    """
    low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
    if values.size < MIN_OUTCOMES or not np.isin(values, (low, high)).all():
        return False
    outcomes = (values == high).astype(float)
    if min(outcomes.sum(), (1 - outcomes).sum()) < MIN_EACH:
        return False
    by_share = max(_log_probability(outcomes, _shares(outcomes, reach)) for reach in (*REACHES, outcomes.size))
    same, before = outcomes[1:], outcomes[:-1]
    chain_score = sum(
        _log_probability(same[before == state], np.full(int((before == state).sum()), (same[before == state].mean())))
        for state in (0.0, 1.0)
    )
    return bool(by_share > chain_score - np.log(values.size))


def variances_of_outcomes(curve: Floats, low: float, high: float) -> Floats:
    """(y − low)(high − y) for a curve y (n,) between the two values, at least a twentieth of its mean.

    >>> variances_of_outcomes(np.array([0.0, 0.5, 1.0]), 0.0, 1.0).round(3)
    array([0.004, 0.25 , 0.004])
    """
    variances = np.maximum(curve - low, 0.0) * np.maximum(high - curve, 0.0)
    return np.maximum(variances, LEAST_VARIANCE * float(variances.mean()))


class Outcomes(Kind):
    """Outcomes by heads of time, under the variance of their mean, and then under those of the last curve.

    Two values are far from normal noise: heads that compare them follow them, and their estimated risk does not show it.
    """

    names: tuple[str, ...] = ("outcomes",)

    def holds(self, series: Observed) -> bool:
        """See `are_outcomes`."""
        return series.undeclared and are_outcomes(series.known)

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the probability of the larger value, from the one to the other."""
        values, options = series.values, series.options
        if not options.fill:  # each pass needs the whole curve of the last one
            return unfilled(self.smooth(series.under(replace(options, fill=True)), analyze), series)
        bounds = float(np.nanmin(values)), float(np.nanmax(values))
        curve, result = np.full(values.size, float(np.nanmean(values))), None
        for _ in range(1 + PASSES):
            noise = np.sqrt(variances_of_outcomes(curve, *bounds))
            result = series.smoothed(analyze, values, replace(options, noise=noise, robust=False, from_curve="outcomes"))
            clipped = np.clip(result.values, *bounds)
            variances = variances_of_outcomes(clipped, *bounds)
            result = replace(result, values=clipped, kind="outcomes", bounds=bounds, options=options)
            result = with_risks(result, values, variances, variances)
            curve = result.values
        return result  # type: ignore[return-value]  # there is a first pass

    def sentence(self, result: "Smoothing", source: str) -> str:
        """What the two values are."""
        low, high = result.bounds
        return (
            f"The values are outcomes of {low:g} and {high:g} ({source}): their mean p was smoothed, with the variance of each."
        )


def _shares(outcomes: Floats, reach: int) -> Floats:
    """The share of ones among so many neighbours to either side (n,), without the value itself, and half a one and half a zero more."""
    positions = np.arange(outcomes.size)
    start, stop = np.maximum(positions - reach, 0), np.minimum(positions + reach + 1, outcomes.size)
    sums: Floats = np.concatenate([[0.0], np.cumsum(outcomes)])
    return (sums[stop] - sums[start] - outcomes + 0.5) / (stop - start)


def _log_probability(outcomes: Floats, shares: Floats) -> float:
    with np.errstate(divide="ignore"):
        return float(np.sum(np.log(np.where(outcomes == 1, shares, 1 - shares))))
