"""Outcomes of 0 and 1, or of any two values: an outcome has a probability p, which the curve follows, and the variance p(1 − p)."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.images import PASSES, unfilled, with_risks
from overt.smoothing.noise.kind import Analyze, Kind

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# MIN_OUTCOMES, MIN_EACH: fewest values, and fewest of either outcome, that show a probability.
MIN_OUTCOMES, MIN_EACH = 40, 4
# REACHES: neighbours on either side whose share predicts an outcome; the share of all others is tried, too.
REACHES = (8, 16, 32, 64)
# LEAST_VARIANCE: least variance, as a part of the mean variance: a curve comes nearer to 0 and 1 than the probability does.
LEAST_VARIANCE = 0.05


def are_outcomes(values: Floats) -> bool:
    """Whether values (n,), in the order of their times and without NaN, are outcomes of two kinds, and not a state that switches.

    Outcomes are predicted by the share of either kind among their neighbours. The rival is a Markov chain, whose two parameters cost
    ½ log n each. The larger log probability decides.

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
    """The variances (y − low)(high − y) for a curve y (n,) between the two values, at least a twentieth of their mean.

    >>> variances_of_outcomes(np.array([0.0, 0.5, 1.0]), 0.0, 1.0).round(3)
    array([0.004, 0.25 , 0.004])
    """
    variances = np.maximum(curve - low, 0.0) * np.maximum(high - curve, 0.0)
    return np.maximum(variances, LEAST_VARIANCE * float(variances.mean()))


class Outcomes(Kind):
    """Outcomes, smoothed by heads of time, with the variance first from their mean, then from the last curve.

    Two values are far from normal noise: heads that compare values follow them, and the estimated risk does not show it.
    """

    names: tuple[str, ...] = ("outcomes",)

    def holds(self, series: Observed) -> bool:
        """See `are_outcomes`."""
        return series.undeclared and are_outcomes(series.known)

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the probability of the larger value, scaled to run from the smaller value to the larger."""
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
        """The sentence that names the two values."""
        low, high = result.bounds
        return (
            f"The values are outcomes of {low:g} and {high:g} ({source}): their mean p was smoothed, with the variance of each."
        )


def _shares(outcomes: Floats, reach: int) -> Floats:
    """The share of ones among `reach` neighbours on either side (n,), without the value itself, plus half a one and half a zero."""
    positions = np.arange(outcomes.size)
    start, stop = np.maximum(positions - reach, 0), np.minimum(positions + reach + 1, outcomes.size)
    sums: Floats = np.concatenate([[0.0], np.cumsum(outcomes)])
    return (sums[stop] - sums[start] - outcomes + 0.5) / (stop - start)


def _log_probability(outcomes: Floats, shares: Floats) -> float:
    with np.errstate(divide="ignore"):
        return float(np.sum(np.log(np.where(outcomes == 1, shares, 1 - shares))))
