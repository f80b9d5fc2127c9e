"""Time keys of degree 0 to 2: around each target, a polynomial fitted with the weights that attention gives.

Degree 0 is plain attention, a weighted mean. A line or a parabola through the same weights mends what the mean gets
wrong at the ends of a series, beside gaps and on top of peaks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt import native
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.grid import attend_grid
from overt.smoothing.heads.local.native import natively
from overt.smoothing.heads.local.polynomial import Local, Side, Sums, fit

# Weights held at a time: 2 MB of float64.
CELLS = 2**18
# What the distance to a key may be off by, in units of the time and of the distance itself.
ROOM = 1e-15
# Bandwidths, in steps, from which boxes serve a grid of few bandwidths better than its own way.
WIDE, NEAR_ENDS = 24, 600


class Points(NamedTuple):
    """What is attended to: times (n,) ascending, values and weights."""

    times: Floats
    values: Floats
    weights: Floats


class Rows(NamedTuple):
    """What attends: times (m,) ascending, the keys start ≤ j < stop of each, and its distance to the nearest of them."""

    times: Floats
    start: Indices
    stop: Indices
    nearest: Floats


def attend_time(
    times: Floats,
    values: Floats,
    weights: Floats | None,
    bandwidth: float,
    *,
    degree: int = 1,
    targets: Floats | None = None,
    own: Indices | None = None,
    window: float = np.inf,
    side: Side = "both",
) -> Local:
    """Local polynomial regression, for degree 0 attention by time: y_i = Σ_j l_ij x_j is the β_0 of the β that minimizes

    Σ_j w_j exp(−(t_j − t_i)²/2h²) (x_j − Σ_p β_p (t_j − t_i)^p)², p = 0 … degree (Fan and Gijbels 1996, section 3.1).

    Times (n,) and targets (m,) are ascending; keys at one time share everything. Weights w (n,) are 1 where None. Without targets,
    the times are the targets. `own` (m,) says which key is the target's own point, −1 where none is: l_i,own is then
    ∂y_i/∂x_own, since no weight depends on a value, else NaN. Squares are Σ_j l_ij²/w_j, the variance of y_i where that of x_j
    is 1/w_j.

    Keys within `window` of a target count, both ends included, and on one `side` only: the past is t_j ≤ t_i. A target
    with no such key is NaN. Without a window, one far from all keys takes the nearest ones.

    Each target has the largest degree that its keys determine, and that does not extrapolate wildly: `fit.fit` has the rule.

    >>> times = np.array([0.0, 1.0, 2.0, 7.0])
    >>> attend_time(times, 3 * times + 1, None, 1.5).values.round(9)
    array([ 1.,  4.,  7., 22.])
    """
    if targets is None and weights is None and on_grid(times) and not _wide(times, bandwidth, window, side):
        step = (times[-1] - times[0]) / (times.size - 1)
        found = attend_grid(values, bandwidth / step, degree, window / step, side)
        return Local(found[0], found[1], found[2])
    if targets is None:
        targets, own = times, np.arange(times.size)
    own = np.full(targets.size, -1) if own is None else own
    if native.available():
        center = values.mean()
        found = natively(times, values - center, weights, targets, bandwidth, degree, window=window, side=side)
        found[0] += center
    else:
        points = Points(times, values, np.ones(times.size) if weights is None else weights)
        found = attend_directly(points, reach(times, targets, bandwidth, window, side), bandwidth, degree)
    of_own = np.where(own < 0, np.nan, found[1] if weights is None else found[1] * weights[own])
    return Local(found[0], of_own, found[2])


def on_grid(times: Floats) -> bool:
    """Whether all steps are equal, to a billionth of one step, from the first time to the last."""
    if times.size < 2 or times[0] == times[-1]:
        return False
    grid = np.linspace(times[0], times[-1], times.size)
    return bool(np.abs(np.subtract(times, grid, out=grid), out=grid).max() <= 1e-9 * (times[-1] - times[0]) / (times.size - 1))


def _wide(times: Floats, bandwidth: float, window: float, side: Side) -> bool:
    """Whether so much of a grid is near its ends, where every row is another, that boxes are quicker than a slid row."""
    scale = bandwidth * (times.size - 1) / (times[-1] - times[0])
    return native.available() and side == "both" and np.isinf(window) and scale >= WIDE and times.size <= NEAR_ENDS * scale


def reach(times: Floats, targets: Floats, bandwidth: float, window: float, side: Side) -> Rows:
    """The keys that each target attends to.

    Relative to the nearest key's, at distance d_0, a weight is exp(−(d² − d_0²)/2h²): negligible where d² > d_0² + (9h)².
    """
    before = np.searchsorted(times, targets, side="right") - 1  # the last key that is not later
    after = np.searchsorted(times, targets, side="left")  # the first that is not earlier
    to_past = np.where(before < 0, np.inf, targets - times[before])
    to_future = np.where(after == times.size, np.inf, times[np.minimum(after, times.size - 1)] - targets)
    nearest = {"past": to_past, "future": to_future, "both": np.minimum(to_past, to_future)}[side]
    # With room for rounding: far away, the nearest key itself would be lost by a last digit.
    distance = np.hypot(nearest, NEGLIGIBLE * bandwidth) + ROOM * (np.abs(targets) + nearest)
    distance = np.minimum(window * (1 + 1e-9), distance)
    start = after if side == "future" else np.searchsorted(times, targets - distance, side="left")
    stop = before + 1 if side == "past" else np.searchsorted(times, targets + distance, side="right")
    return Rows(targets, start, np.maximum(start, stop), nearest)


def attend_directly(points: Points, rows: Rows, bandwidth: float, degree: int) -> Floats:
    """Values, c_0 and squares of the fits (3, m), their sums by definition, in blocks of rows."""
    found = np.empty((3, rows.times.size))
    for block in _blocks(rows):
        keys = slice(int(rows.start[block].min()), int(rows.stop[block].max()))
        near = Points(points.times[keys], points.values[keys], points.weights[keys])
        # Around their own mean, values keep the digits that a far offset would take.
        center = near.values.mean() if near.values.size else 0.0
        some = Rows(rows.times[block], rows.start[block], rows.stop[block], rows.nearest[block])
        sums = _sums(near._replace(values=near.values - center), some, keys.start, bandwidth, degree)
        found[:, block] = fit(sums).results(sums)
        found[0, block] += center
    return found


def _sums(near: Points, rows: Rows, first: int, bandwidth: float, degree: int) -> Sums:
    """Sums of a block of rows over its keys, the first of which has the index `first`."""
    u = (near.times - rows.times[:, None]) / bandwidth  # (rows, keys)
    column = np.arange(first, first + near.times.size)
    within = (rows.start[:, None] <= column) & (column < rows.stop[:, None])
    nearest = np.where(np.isfinite(rows.nearest), rows.nearest / bandwidth, 0.0)[:, None]
    kernel = np.exp(-0.5 * np.where(within, u * u - nearest * nearest, np.inf))
    bare = kernel.sum(axis=1)
    power, weights, sums = kernel, [], []
    squares = []
    for p in range(2 * degree + 1):
        weights.append(power @ near.weights)
        squares.append((power * kernel) @ near.weights)
        if p <= degree:
            sums.append(power @ (near.weights * near.values))
        power = power * u
    return Sums(np.stack(weights), np.stack(sums), np.stack(squares), bare)


def _blocks(rows: Rows) -> Iterator[slice]:
    """Runs of rows whose weights together fit into CELLS."""
    first = 0
    while first < rows.times.size:
        count = min(max(64, int(rows.stop[first] - rows.start[first])), rows.times.size - first)
        while (
            count > 1 and count * int(rows.stop[first : first + count].max() - rows.start[first : first + count].min()) > CELLS
        ):
            count = (count + 1) // 2
        yield slice(first, first + count)
        first += count
