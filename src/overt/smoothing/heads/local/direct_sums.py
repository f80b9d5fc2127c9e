"""Local polynomials by definition, in NumPy: the sums over the keys of each target, in blocks of rows."""

from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.blocks import KeyRange, row_blocks
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.polynomial import PowerSums, Side, fit

# The rounding error of the distance to a key, in units of the time and of the distance itself.
ROUNDING = 1e-15


class WeightedPoints(NamedTuple):
    """The keys: times (n,) ascending, values and weights."""

    times: Floats
    values: Floats
    weights: Floats


class Targets(NamedTuple):
    """The queries: times (m,) ascending, the range of keys of each, and its distance to the nearest key."""

    times: Floats
    keys: KeyRange
    nearest: Floats

    def part(self, rows: slice) -> "Targets":
        """Some consecutive targets."""
        return Targets(self.times[rows], self.keys.part(rows), self.nearest[rows])


def find_targets(times: Floats, targets: Floats, bandwidth: float, window: float, side: Side) -> Targets:
    """The targets with the keys that each attends to.

    Relative to the nearest key's, at distance d_0, a weight is exp(−(d² − d_0²)/2h²): negligible where d² > d_0² + (9h)².
    """
    before = np.searchsorted(times, targets, side="right") - 1  # the last key that is not later
    after = np.searchsorted(times, targets, side="left")  # the first that is not earlier
    to_past = np.where(before < 0, np.inf, targets - times[before])
    to_future = np.where(after == times.size, np.inf, times[np.minimum(after, times.size - 1)] - targets)
    nearest = {"past": to_past, "future": to_future, "both": np.minimum(to_past, to_future)}[side]
    # Enlarged for rounding: far away, the nearest key itself would be excluded by a last digit.
    distance = np.hypot(nearest, NEGLIGIBLE * bandwidth) + ROUNDING * (np.abs(targets) + nearest)
    distance = np.minimum(window * (1 + 1e-9), distance)
    start = after if side == "future" else np.searchsorted(times, targets - distance, side="left")
    stop = before + 1 if side == "past" else np.searchsorted(times, targets + distance, side="right")
    return Targets(targets, KeyRange(start, np.maximum(start, stop)), nearest)


def attend_directly(points: WeightedPoints, targets: Targets, bandwidth: float, degree: int) -> Floats:
    """Values, c_0 and unit variances of the fits (3, m), with sums by definition, in blocks of rows."""
    columns = np.empty((3, targets.times.size))
    for rows in row_blocks(targets.keys):
        block = targets.part(rows)
        keys = block.keys.span
        near = WeightedPoints(points.times[keys], points.values[keys], points.weights[keys])
        # Around their own mean, values keep the digits that a large offset would take.
        center = near.values.mean() if near.values.size else 0.0
        sums = _sums(near._replace(values=near.values - center), block, keys.start, bandwidth, degree)
        columns[:, rows] = fit(sums).results(sums)
        columns[0, rows] += center
    return columns


def _sums(near: WeightedPoints, targets: Targets, first: int, bandwidth: float, degree: int) -> PowerSums:
    """Sums of a block of targets over its keys, the first of which has the index `first`."""
    u = (near.times - targets.times[:, None]) / bandwidth  # (rows, keys)
    column = np.arange(first, first + near.times.size)
    within = (targets.keys.start[:, None] <= column) & (column < targets.keys.stop[:, None])
    nearest = np.where(np.isfinite(targets.nearest), targets.nearest / bandwidth, 0.0)[:, None]
    kernel = np.exp(-0.5 * np.where(within, u * u - nearest * nearest, np.inf))
    total = kernel.sum(axis=1)
    power, weights, sums, squares = kernel, [], [], []
    for p in range(2 * degree + 1):
        weights.append(power @ near.weights)
        squares.append((power * kernel) @ near.weights)
        if p <= degree:
            sums.append(power @ (near.weights * near.values))
        power = power * u
    return PowerSums(np.stack(weights), np.stack(sums), np.stack(squares), total)
