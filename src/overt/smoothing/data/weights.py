"""Robust weights from the distances between values and the medians of their neighbours."""

import numpy as np

from overt.smoothing.data.series import Floats

# NEIGHBOURS: neighbours on either side in the median.
NEIGHBOURS = 4
# CUTOFF: median absolute deviations beyond which the weight is 0 (Cleveland 1979, section 2.2).
CUTOFF = 6.0


def neighbour_medians(values: Floats, reach: int) -> Floats:
    """The median of `reach` neighbours on either side of values (n,), without the value itself; the ends are reflected.

    >>> neighbour_medians(np.array([1.0, 2.0, 9.0, 4.0, 5.0]), 1)
    array([2., 5., 3., 7., 4.])
    """
    reach = min(reach, (values.size - 1) // 2)
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(values, reach, mode="reflect"), 2 * reach + 1)
    return np.median(np.delete(windows, reach, axis=1), axis=1)


def downweight_outliers(values: Floats, times: Floats, weights: Floats | None) -> Floats:
    """The weights (n,) (1 if None), reduced for outliers; values in any order of their times, NaN if missing."""
    known = np.flatnonzero(~np.isnan(values))
    known = known[np.argsort(times[known], kind="stable")]
    reduced = np.ones(values.size) if weights is None else weights.copy()
    reduced[known] *= outlier_weights(values[known])
    return reduced


def outlier_weights(values: Floats) -> Floats:
    """Bisquare weights (1 − (r/6s)²)² of values (n,) in the order of their times; 0 if |r| ≥ 6s.

    The residual r is the distance from the median of four neighbours on either side, s the median of all |r|: the weights of
    Cleveland's robust regression (1979, section 2.2), with residuals that outliers do not influence. If more than half of the
    values equal the median of their neighbours (s = 0), these values have weight 1 and the others 0.

    >>> outlier_weights(np.array([1.0, 2.0, 1.0, 2.0, 90.0, 2.0, 1.0, 2.0, 1.0])).round(1)
    array([0.9, 1. , 0.9, 1. , 0. , 1. , 0.9, 1. , 0.9])
    """
    if values.size < 3:
        return np.ones(values.size)
    residuals = np.abs(values - neighbour_medians(values, NEIGHBOURS))
    scale = CUTOFF * np.median(residuals)
    if scale == 0:
        return (residuals == 0).astype(np.float64)
    return np.maximum(1 - (residuals / scale) ** 2, 0.0) ** 2
