"""Leave-one-out log predictive densities: the score by which hypotheses of noise are compared.

A value is predicted by the median of its neighbours, without itself. Its density about the prediction is Student's t with four degrees of
freedom: outliers and narrow peaks count little. A hypothesis may measure values on another scale; its density then contains the derivative
of the scale. A hypothesis uses the reach of the median that suits it best, so that it is judged by its own first curve.
"""

from collections.abc import Callable

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.data.weights import neighbour_medians

# REACHES: neighbours on either side in the median.
REACHES = (1, 2, 4, 8, 16)
FREEDOM = 4.0  # degrees of freedom of Student's t
# OUTLIERS: share of outliers of any size within the range of the values: it limits the evidence of one value against a hypothesis.
OUTLIERS = 0.02
_LOG_HEIGHT = np.log(3 / 8)  # log density of Student's t at 0
_STEPS = 30  # steps of the fixed-point iteration for the scale of Student's t; a step at least halves its error


def log_predictive_density(values: Floats, shape: Callable[[Floats], Floats] = np.ones_like) -> float:
    """The sum of the log densities of values (n,), predicted from their neighbours, for noise whose level follows `shape`.

    `shape` maps predictions (n,) to the noise level up to a factor, which is fitted by maximum likelihood.

    >>> draw = np.random.default_rng(0)
    >>> level = np.linspace(1, 100, 500)
    >>> values = level * (1 + 0.1 * draw.normal(size=500))
    >>> log_predictive_density(values) < log_predictive_density(values, np.abs)
    True
    """
    return max(_density(values, neighbour_medians(values, reach), shape) for reach in REACHES)


def _density(values: Floats, predictions: Floats, shape: Callable[[Floats], Floats]) -> float:
    levels = np.maximum(shape(predictions), np.finfo(float).tiny)
    squares = ((values - predictions) / levels) ** 2
    variance = float(np.median(squares)) or float(squares.mean())
    for _ in range(_STEPS):
        if variance <= 0:
            return np.inf  # values that are predicted exactly
        variance = float(np.mean((FREEDOM + 1) * squares / (FREEDOM + squares / variance)))
    logs = _LOG_HEIGHT - (FREEDOM + 1) / 2 * np.log1p(squares / (FREEDOM * variance)) - np.log(levels)
    logs -= np.log(variance) / 2
    return float(np.maximum(logs, np.log(OUTLIERS / np.ptp(values))).sum())
