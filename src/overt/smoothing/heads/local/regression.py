"""Time keys of degree 0 to 2: around each target, a polynomial fitted with the weights of attention.

Degree 0 is plain attention, a weighted mean. A line or a parabola with the same weights corrects the bias of the mean
at the ends of a series, next to gaps and on top of peaks.
"""

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.local.compiled import attend_compiled
from overt.smoothing.heads.local.direct_sums import WeightedPoints, attend_directly, find_targets
from overt.smoothing.heads.local.grid import attend_even_grid
from overt.smoothing.heads.local.polynomial import Local, Side

# WIDE, NEAR_ENDS: on a grid, boxes are faster for bandwidths of WIDE steps or more and series of NEAR_ENDS bandwidths or fewer.
WIDE, NEAR_ENDS = 24, 600


def attend_time(
    times: Floats,
    values: Floats,
    weights: Floats | None,
    bandwidth: float,
    *,
    degree: int = 1,
    targets: Floats | None = None,
    self_index: Indices | None = None,
    window: float = np.inf,
    side: Side = "both",
) -> Local:
    """Local polynomial regression, for degree 0 attention by time: y_i = Σ_j l_ij x_j is the β_0 of the β that minimizes

    Σ_j w_j exp(−(t_j − t_i)²/2h²) (x_j − Σ_p β_p (t_j − t_i)^p)², p = 0 … degree (Fan and Gijbels 1996, section 3.1).

    Times (n,) and targets (m,) are ascending; times may be equal. Weights w (n,), None for 1. Without targets, the times are the
    targets. `self_index` (m,) is the index of the key at the target's own point, −1 without such a key. The leverage is
    l_i,self = ∂y_i/∂x_self, since no weight depends on a value; NaN without a key at the target. Unit variances are Σ_j l_ij²/w_j: the
    variance of y_i if x_j has the variance 1/w_j.

    A target attends to keys within `window`, both ends included, and on `side`: the past is t_j ≤ t_i. A target without a key there
    is NaN. Without a window, a target far from all keys uses the nearest keys.

    Each target has the largest degree that its keys determine without a large variance: see `polynomial.fit`.

    >>> times = np.array([0.0, 1.0, 2.0, 7.0])
    >>> attend_time(times, 3 * times + 1, None, 1.5).values.round(9)
    array([ 1.,  4.,  7., 22.])
    """
    if targets is None and weights is None and on_grid(times) and not _favors_boxes(times, bandwidth, window, side):
        step = (times[-1] - times[0]) / (times.size - 1)
        columns = attend_even_grid(values, bandwidth / step, degree, window / step, side)
        return Local(*columns)
    if targets is None:
        targets, self_index = times, np.arange(times.size)
    self_index = np.full(targets.size, -1) if self_index is None else self_index
    if native.available():
        center = values.mean()
        columns = attend_compiled(times, values - center, weights, targets, bandwidth, degree, window=window, side=side)
        columns[0] += center
    else:
        points = WeightedPoints(times, values, weights)
        columns = attend_directly(points, find_targets(times, targets, bandwidth, window, side), bandwidth, degree)
    leverages = np.where(self_index < 0, np.nan, columns[1] if weights is None else columns[1] * weights[self_index])
    return Local(columns[0], leverages, columns[2])


def on_grid(times: Floats) -> bool:
    """Whether all steps are equal, to a billionth of one step, from the first time to the last."""
    if times.size < 2 or times[0] == times[-1]:
        return False
    grid = np.linspace(times[0], times[-1], times.size)
    return bool(np.abs(np.subtract(times, grid, out=grid), out=grid).max() <= 1e-9 * (times[-1] - times[0]) / (times.size - 1))


def _favors_boxes(times: Floats, bandwidth: float, window: float, side: Side) -> bool:
    """Whether boxes are faster than a convolution, since much of the grid is near its ends, where every row differs."""
    scale = bandwidth * (times.size - 1) / (times[-1] - times[0])
    return native.available() and side == "both" and np.isinf(window) and scale >= WIDE and times.size <= NEAR_ENDS * scale
