"""Values that are not measurements: error codes, which repeat exactly and far from all other values, and enormous values."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.observed import Observed
from overt.smoothing.data.series import Floats
from overt.smoothing.noise.kind import Analyze, Kind

if TYPE_CHECKING:
    from overt.smoothing.result import Smoothing

# MOST: largest share of codes; LEAST_DISTINCT: fewest different values among the others.
MOST, LEAST_DISTINCT = 0.25, 5
# APART, ENORMOUS: least distance of a code from the range of the other values, in widths of that range, if it repeats and if it does not.
APART, ENORMOUS = 1.0, 1000.0
_CHANGES = 2  # parameters of the hypothesis, from the range to codes and back; each costs ½ log n


def find_codes(values: Floats) -> NDArray[np.bool_]:
    """The mask of values (n,) that are error codes or enormous; NaN is neither.

    The search runs from the outermost values inwards. A value counts if a gap separates it that is wider than the range of all values
    inside, and if it is enormous or repeats exactly more often than by chance: k values that agree to the resolution δ of the others have
    the log probability −(k − 1) log(range/δ) under any noise, and pay ½ log n for each parameter of the hypothesis (Schwarz 1978).

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
    """Error codes count as missing and are listed as outliers; the other values are tested for the next kinds of noise."""

    within_bounds: bool = True

    def holds(self, series: Observed) -> bool:
        """See `find_codes`."""
        return series.options.cleans and bool(find_codes(series.values).any())

    def smooth(self, series: Observed, analyze: Analyze) -> "Smoothing":
        """The smoothing of the other values."""
        codes = find_codes(series.values)
        others = series.smoothed(analyze, np.where(codes, np.nan, series.values), replace(series.options, fill=True))
        return replace(others.with_outliers(series.values, codes, series.options), codes=codes)
