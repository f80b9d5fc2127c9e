"""Noise in proportion to the values, over decades: the logarithms of the values have noise of one level."""

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.noise.predictive import log_predictive_density, neighbour_medians
from overt.smoothing.noise.scale import Scale

# Fewer values do not show how their noise follows them.
MIN_VALUES = 60
# The curve spans at least this ratio between its 5% and 95% quantiles; below it, laws of the level suffice (`selection.varying`). On the
# development signals the error falls to 0.6 of what it is without logarithms at 10, to 0.12 at 1,000 (benchmarks/cliffs.py).
LEAST_RATIO = 20.0
# Powers of the value that the level may follow instead: 0 constant, ½ as of counts, 1 in proportion.
POWERS = (0.25, 0.5, 0.75, 1.0)
REACH = 4


def are_proportional(values: Floats) -> bool:
    """Whether values (n,), in the order of their times and without NaN, are positive, span decades, and scatter in proportion.

    Their logarithms, with noise of one level, must predict them better than a constant level does, and than a level that is a power of the
    value, which pays ½ log n for its power (Schwarz 1978).

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
    of_logarithms = log_predictive_density(logarithms) - float(logarithms.sum())
    by_powers = [
        log_predictive_density(values, lambda curve, power=power: np.maximum(curve, 1e-3 * high) ** power) for power in POWERS
    ]
    penalty = 0.5 * np.log(values.size)
    return bool(of_logarithms > max(log_predictive_density(values) + penalty, max(by_powers) - penalty))


def logarithmic(variance: float) -> Scale:
    """The scale of natural logarithms with noise of this variance: their mean is y where that of the values is exp(y + variance/2).

    >>> draw = np.random.default_rng(0)
    >>> logarithmic(0.25).mean(np.log(3 * np.exp(0.5 * draw.normal(size=100_000))).mean()).round(1)
    np.float64(3.4)
    """

    def mean(logarithms: Floats) -> Floats:
        return np.exp(np.minimum(logarithms + variance / 2, 709.0))

    return Scale("logarithms", mean, mean)
