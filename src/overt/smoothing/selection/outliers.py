"""Weights that outliers lose: how far each value lies from the median of its neighbours."""

import numpy as np

from overt.smoothing.data.series import Floats

# Neighbours to either side.
BESIDE = 4
# Median absolute deviations beyond which a value counts for nothing (Cleveland 1979, section 2.2).
FAR = 6.0


def less_outliers(values: Floats, times: Floats, weights: Floats | None) -> Floats:
    """Weights (n,), 1 where None, of which outliers have lost theirs; values in any order of their times, NaN where missing."""
    known = np.flatnonzero(~np.isnan(values))
    known = known[np.argsort(times[known], kind="stable")]
    less = np.ones(values.size) if weights is None else weights.copy()
    less[known] *= outlier_weights(values[known])
    return less


def outlier_weights(values: Floats) -> Floats:
    """Bisquare weights (1 − (r/6s)²)² of values (n,) in the order of their times; 0 where |r| ≥ 6s.

    r is the distance from the median of four neighbours to either side, s the median of all |r|: the weights of Cleveland's
    robust regression (1979, section 2.2), of residuals that no outlier has pulled towards itself. Values of which more than half
    lie on their neighbours' median (s = 0) keep weight 1, but for those that do not.

    >>> outlier_weights(np.array([1.0, 2.0, 1.0, 2.0, 90.0, 2.0, 1.0, 2.0, 1.0])).round(1)
    array([0.9, 1. , 0.9, 1. , 0. , 1. , 0.9, 1. , 0.9])
    """
    count = values.size
    if count < 3:
        return np.ones(count)
    beside = min(BESIDE, (count - 1) // 2)
    padded = np.pad(values, beside, mode="reflect")
    around = np.lib.stride_tricks.sliding_window_view(padded, 2 * beside + 1)  # (n, 2·beside + 1)
    off = np.abs(values - np.median(np.delete(around, beside, axis=1), axis=1))
    scale = FAR * np.median(off)
    if scale == 0:
        return (off == 0).astype(np.float64)
    return np.maximum(1 - (off / scale) ** 2, 0.0) ** 2
