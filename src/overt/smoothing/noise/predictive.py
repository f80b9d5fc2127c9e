"""Leave-one-out log predictive densities: the score by which hypotheses of noise are compared.

Each value is predicted by the median of its neighbours, without itself, and its density is that of Student's t with four degrees of freedom
about the prediction: outliers and narrow peaks count little. A hypothesis may measure values on another scale; the derivative of the scale
then belongs to the density. Each has the reach of the median that serves it best, so that it is judged by its own first curve.
"""

from collections.abc import Callable

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.data.weights import neighbour_medians

# Neighbours to either side of which the median is taken.
REACHES = (1, 2, 4, 8, 16)
FREEDOM = 4.0  # degrees of freedom of Student's t
# The share of outliers, of any size within the range of the values: no single value says more against a hypothesis.
OUTLIERS = 0.02
_LOG_HEIGHT = np.log(3 / 8)  # of its density at 0
_STEPS = 30  # of the fixed-point iteration for its scale, whose error falls to a half or less in each


def log_predictive_density(values: Floats, shape: Callable[[Floats], Floats] = np.ones_like) -> float:
    """The sum of the log densities of values (n,), each predicted from its neighbours, for noise of a level that follows `shape`.

    `shape` maps predictions (n,) to the level of the noise up to a factor, which is fitted by maximum likelihood.

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
