"""Values that are no measurements: error codes, which repeat exactly and far away from all others, and enormous values."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.kind import Analyze, Kind

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# Codes are at most this share of the values, and the others have at least this many different values.
MOST, LEAST_DISTINCT = 0.25, 5
# A code is farther from the range of the others than that range is wide; a single value, so many times as far.
APART, ENORMOUS = 1.0, 1000.0
_CHANGES = 2  # from range to codes and back: parameters of the hypothesis, of ½ log n each


def find_codes(values: Floats) -> NDArray[np.bool_]:
    """Which values (n,) are error codes or enormous; NaN is none.

    From the outermost inwards, values beyond a gap that is wider than the range of all values inside it, if they are enormous, or if they
    repeat exactly more often than chance allows: k values that agree to the resolution δ of the others have the log probability
    −(k − 1) log(range/δ) under noise of any kind, and must pay ½ log n for each parameter of the hypothesis (Schwarz 1978).

    >>> draw = np.random.default_rng(0)
    >>> values = 20 + draw.normal(size=200)
    >>> values[[30, 31, 32, 120]] = -127.0
    >>> values[77] = 1e20
    >>> np.flatnonzero(find_codes(values))
    array([ 30,  31,  32,  77, 120])
    >>> find_codes(np.append(values[:30], 45.0)).any()
    np.False_
    """
    codes = np.zeros(values.size, dtype=bool)
    levels, counts = np.unique(values[~np.isnan(values)], return_counts=True)
    low, high, most = 0, levels.size - 1, MOST * counts.sum()
    penalty = _CHANGES * 0.5 * np.log(max(int(counts.sum()), 2))
    recognized = []
    while high - low >= LEAST_DISTINCT:
        outer, inner = max(((low, low + 1), (high, high - 1)), key=lambda pair: abs(levels[pair[0]] / 2 - levels[pair[1]] / 2))
        low, high = (low + 1, high) if outer == low else (low, high - 1)
        inside = levels[low : high + 1]
        width, gap = inside[-1] - inside[0], abs(levels[outer] / 2 - levels[inner] / 2) * 2
        most -= counts[outer]
        if most < 0 or not gap > APART * width:
            break
        evidence = (counts[outer] - 1) * np.log(max(gap / np.diff(inside).min(), 1.0))
        if gap > ENORMOUS * width or evidence > penalty:
            recognized.append(levels[outer])
    codes[np.isin(values, recognized)] = True
    return codes


class ErrorCodes(Kind):
    """Codes are missing, and named among the outliers; what they leave is asked again."""

    within_bounds: bool = True

    def holds(self, series: Observed) -> bool:
        """See `find_codes`."""
        return series.options.cleans and bool(find_codes(series.values).any())

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the other values."""
        codes = find_codes(series.values)
        others = series.smoothed(analyze, np.where(codes, np.nan, series.values), replace(series.options, fill=True))
        return replace(others.with_outliers(series.values, codes, series.options), codes=codes)
