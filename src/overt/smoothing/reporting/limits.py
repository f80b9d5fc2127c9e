"""The range of a picture, from the curve and the bulk of the values, without values far out; and gaps in the times."""

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices

# TAIL: share of the values at either end that does not widen the range, outliers not counted; at least the outermost value.
TAIL = 0.01
# BEYOND: how far beyond the range values, outliers and bands are shown, in widths of the range.
BEYOND = 0.5
# GAP: least length of a gap, in long steps; LONGEST_STEPS: quantile of all steps that is a long step.
GAP, LONGEST_STEPS = 3.0, 0.9


def limits(data: Floats, outliers: NDArray[np.bool_] | None, curve: Floats, *bands: Floats | None) -> tuple[float, float]:
    """The lowest and the highest value that is shown; NaN is ignored, and without any value they are 0 and 1.

    >>> values = np.append(np.linspace(0.0, 1.0, 50), -999.0)
    >>> limits(values, None, np.append(values[:50], 1.0))
    (0.0, 1.0)
    """
    known = data[np.isfinite(data) & (True if outliers is None else ~outliers)]
    parts = [curve[np.isfinite(curve)]]
    if known.size:
        parts.append(np.array([np.quantile(known, TAIL, method="higher"), np.quantile(known, 1 - TAIL, method="lower")]))
    inner = np.concatenate(parts)
    if not inner.size:
        return 0.0, 1.0
    low, high = float(inner.min()), float(inner.max())
    margin = BEYOND * (high - low) or np.inf
    shown = np.concatenate([part[np.isfinite(part)] for part in (data, *bands) if part is not None])
    shown = shown[(shown >= low - margin) & (shown <= high + margin)]
    return min(low, float(shown.min(initial=low))), max(high, float(shown.max(initial=high)))


def gaps(moments: Floats) -> Indices:
    """The positions before gaps in ascending times (n,): the point at a position and the next point are far apart.

    >>> gaps(np.array([0.0, 1.0, 2.0, 3.0, 9.0, 10.0, 11.0]))
    array([3])
    """
    steps = np.diff(moments)
    if steps.size < 3:
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(steps > GAP * np.quantile(steps, LONGEST_STEPS, method="lower"))
