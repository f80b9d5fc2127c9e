"""Whether outliers are peaks of the signal, by their shoulders: an error leaves its neighbours as they are, a peak raises them."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats

# The neighbours of an outlier, and those further away whose median they are compared with, on both sides.
NEAR, FAR = 2, 9
# Neighbours are so many levels of the noise to the side of their outlier, and so many standard errors, from so many neighbours on. Outliers
# of seven kinds of noise on the development signals come to 1.1 and 5.5 at most, runs of up to 8 to 0.6, peaks to 1.9 and 7.0 at least.
LEVELS, ERRORS, LEAST = 1.5, 6.0, 8
# No neighbour counts more, in levels, and their standard deviation is at least so much.
MOST, LEAST_DEVIATION = 4.0, 0.5


def have_shoulders(values: Floats, outliers: NDArray[np.bool_], level: float) -> bool:
    """Whether the neighbours of outliers (n,) that are none themselves are to the same side as these, in noise of this level.

    >>> noise, times = 0.05 * np.random.default_rng(0).normal(size=600), np.arange(600)
    >>> peaks = np.exp(-0.5 * ((times % 50 - 25) / 1.2) ** 2)
    >>> have_shoulders(peaks + noise, peaks > 0.6, 0.05), have_shoulders((peaks > 0.9) + noise, peaks > 0.9, 0.05)
    (True, False)
    """
    marked = np.flatnonzero(outliers)
    if not marked.size or not level > 0:
        return False
    padded = np.pad(np.where(outliers, np.nan, values), FAR, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * FAR + 1)[marked]
    away = np.abs(np.arange(-FAR, FAR + 1))
    far = windows[:, away > NEAR]
    there = ~np.isnan(far).all(axis=1)
    middle = np.nanmedian(far[there], axis=1)
    above = np.sign(values[marked[there]] - middle)[:, None] * (windows[there][:, away <= NEAR] - middle[:, None]) / level
    above = np.clip(above[~np.isnan(above)], -MOST, MOST)
    if above.size < LEAST:
        return False
    mean, error = float(above.mean()), max(float(above.std()), LEAST_DEVIATION) / above.size**0.5
    return mean > LEVELS and mean > ERRORS * error
