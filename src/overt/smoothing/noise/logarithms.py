"""Noise that follows the values: the logarithms of values, or the logits of rates near a bound, have noise of one level."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.data.weights import neighbour_medians
from overt.smoothing.noise.kind import Analyze
from overt.smoothing.noise.passed import OnScale
from overt.smoothing.noise.predictive import log_predictive_density

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# MIN_VALUES: fewest values that show how their noise follows them.
MIN_VALUES = 60
# LEAST_RATIO: least ratio of the curve's 95% to its 5% quantile; below it, laws of the level suffice (`selection.varying`). Logarithms
# reduce the error on the development signals to 0.6 at a ratio of 10, to 0.12 at 1,000 (benchmarks/smoothing/cliffs.py).
LEAST_RATIO = 20.0
# POWERS: powers of the value that the level may follow instead: 0 constant, ½ as of counts, 1 in proportion.
POWERS = (0.25, 0.5, 0.75, 1.0)
# NEAR_A_BOUND: largest distance of rates from a bound, over the range; REACH: neighbours on either side whose median is the curve.
NEAR_A_BOUND = 0.1
REACH = 4


def are_proportional(values: Floats) -> bool:
    """Whether values (n,), in the order of their times and without NaN, are positive, span decades, and have noise in proportion.

    Logarithms with noise of one level must predict the values better than a constant level, and better than a level that is a power of
    the value, which pays ½ log n for its power (Schwarz 1978).

    >>> draw, curve = np.random.default_rng(0), 10 ** (2 + 2 * np.sin(np.arange(300) / 30))
    >>> are_proportional(curve * np.exp(0.2 * draw.normal(size=300))), are_proportional(curve + 9 + draw.normal(size=300))
    (True, False)
    """
    if values.size < MIN_VALUES or values.min() <= 0:
        return False
    low, high = np.quantile(neighbour_medians(values, REACH), [0.05, 0.95])
    if high < LEAST_RATIO * low:
        return False
    logarithms = np.log(values)
    return _explained(values, logarithms, -float(logarithms.sum()), 1e-3 * high)


def bounds_of_rates(values: Floats, bounds: tuple[float, float]) -> tuple[float, float] | None:
    """The bounds of rates (n,), in the order of their times and without NaN, that come near a bound; None if the values are no rates.

    The bounds are the passed ones, if both are finite, or else 0 and 1 or 0 and 100, if all values are between these and come near the
    upper one. Logits must predict the rates better than noise of one level, or of a level that is a power of the distance to the bound.

    >>> draw, logits = np.random.default_rng(0), 3 + np.sin(np.arange(300) / 30)
    >>> bounds_of_rates(1 / (1 + np.exp(-logits - 0.6 * draw.normal(size=300))), (-np.inf, np.inf))
    (0.0, 1.0)
    >>> bounds_of_rates(0.5 + 0.1 * draw.normal(size=300), (0.0, 1.0)) is None
    True
    """
    if values.size < MIN_VALUES:
        return None
    passed = bool(np.isfinite(bounds).all())
    low, high = bounds if passed else (0.0, 1.0 if values.max() < 1 else 100.0)
    if not (low < values.min() and values.max() < high):
        return None
    near = np.quantile(neighbour_medians(values, REACH), [0.05, 0.95])
    closest = min(near[0] - low, high - near[1]) / (high - low) if passed else (high - near[1]) / (high - low)
    if closest > NEAR_A_BOUND:
        return None
    logits = np.log((values - low) / (high - values))
    jacobian = float(np.log((high - low) / ((values - low) * (high - values))).sum())
    distances = np.minimum(values - low, high - values)
    return (low, high) if _explained(values, logits, jacobian, 1e-3 * float(np.median(distances)), (low, high)) else None


class Rates(OnScale):
    """Rates between their bounds, smoothed by their logits, whose noise is estimated as in any series."""

    names: tuple[str, ...] = ("logits",)
    sets_repeats_aside: bool = True

    def holds(self, series: Observed) -> bool:
        """See `bounds_of_rates`."""
        recognizable = series.undeclared and series.options.scale == "auto"
        return recognizable and bounds_of_rates(series.known, series.options.limits) is not None

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the logits."""
        bounds = bounds_of_rates(series.known, series.options.limits)
        result = super().smooth(series.under(replace(series.options, scale="logit", bounds=bounds)), analyze)
        return replace(result, options=series.options)


class Proportional(OnScale):
    """Positive values over decades, smoothed by their logarithms, whose noise is estimated as in any series."""

    names: tuple[str, ...] = ("logarithms",)
    sets_repeats_aside: bool = True
    within_bounds: bool = False

    def holds(self, series: Observed) -> bool:
        """See `are_proportional`."""
        return series.undeclared and series.options.scale == "auto" and are_proportional(series.known)

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the logarithms."""
        result = super().smooth(series.under(replace(series.options, scale="log", bounds=None)), analyze)
        return replace(result, options=series.options)

    def sentence(self, result: "Smoothing", source: str) -> str:
        """The sentence on the recognized noise, or on the scale that was passed."""
        if result.options.transform:
            return super().sentence(result, source)
        return (
            f"The values span decades, and their noise is in proportion to them ({source}): their logarithms were smoothed, "
            "and the curve is the mean of the values."
        )


def _explained(
    values: Floats, transformed: Floats, jacobian: float, least: float, bounds: tuple[float, float] = (0.0, np.inf)
) -> bool:
    """Whether one noise level on another scale predicts values better than one level, or a power of the distance to a bound."""
    low, high = bounds

    def distances(curve: Floats) -> Floats:
        return np.maximum(np.minimum(curve - low, high - curve), least)

    by_powers = [log_predictive_density(values, lambda curve, power=power: distances(curve) ** power) for power in POWERS]
    penalty = 0.5 * np.log(values.size)
    score = log_predictive_density(transformed) + jacobian
    return bool(score > max(log_predictive_density(values) + penalty, max(by_powers) - penalty))
