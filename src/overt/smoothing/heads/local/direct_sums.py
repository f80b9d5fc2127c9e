"""Local polynomials by definition, in NumPy: their rows of weights, from sums over the keys of each target, in blocks of targets."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from overt.smoothing.data.series import Floats
from overt.smoothing.heads.blocks import KeyRange, row_blocks
from overt.smoothing.heads.keys import NEGLIGIBLE
from overt.smoothing.heads.local.polynomial import PowerSums, Side, fit

# ROUNDING: the rounding error of the distance to a key, relative to the time and to the distance.
ROUNDING = 1e-15


class WeightedPoints(NamedTuple):
    """The keys: times (n,) ascending, values and weights."""

    times: Floats
    values: Floats
    weights: Floats | None  # None: all 1


class Targets(NamedTuple):
    """The queries: times (m,) ascending, their ranges of keys, and their distances to the nearest key."""

    times: Floats
    keys: KeyRange
    nearest: Floats

    def part(self, rows: slice) -> "Targets":
        """Some consecutive targets."""
        return Targets(self.times[rows], self.keys.part(rows), self.nearest[rows])


def find_targets(times: Floats, targets: Floats, bandwidth: float | Floats, window: float, side: Side) -> Targets:
    """The targets with the keys that they attend to; one bandwidth, or one for each target (m,).

    Relative to the weight of the nearest key, at distance d_0, a weight is exp(−(d² − d_0²)/2h²): negligible if d² > d_0² + (9h)².
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


class LocalRows(NamedTuple):
    """Rows l of the fits of a block of targets: y_i = Σ_j l_ij x_j for any values x of the keys; NaN without a key."""

    targets: slice
    keys: slice
    weights: Floats  # l_ij (m, keys)
    self_coefficients: Floats  # c_0 (m,): of a key at the target itself, l_ij = w_j c_0
    unit_variances: Floats  # Σ_j l_ij²/w_j (m,)


def local_rows(times: Floats, weights: Floats | None, targets: Targets, bandwidth: float, degree: int) -> Iterator[LocalRows]:
    """The rows of all fits, block by block; times (n,), weights (n,), None for 1."""
    for part in row_blocks(targets.keys):
        yield rows_of_block(times, weights, targets.part(part), np.array([bandwidth]), degree)._replace(targets=part)


def rows_of_block(times: Floats, weights: Floats | None, block: Targets, bandwidths: Floats, degree: int) -> LocalRows:
    """The rows of the fits at some targets (m,), with one bandwidth or one for each."""
    keys, bandwidths = block.keys.span, bandwidths[:, None]
    column = np.arange(keys.start, keys.stop)
    u = (times[keys] - block.times[:, None]) / bandwidths  # (m, keys)
    within = (block.keys.start[:, None] <= column) & (column < block.keys.stop[:, None])
    nearest = np.where(np.isfinite(block.nearest), block.nearest, 0.0)[:, None] / bandwidths
    kernel = np.exp(-0.5 * np.where(within, (u - nearest) * (u + nearest), np.inf))
    weighted = kernel if weights is None else kernel * weights[keys]
    fitted = fit(_sums(u, kernel, weighted, degree))
    polynomials = fitted.coefficients[degree][:, None]
    for coefficients in fitted.coefficients[:degree][::-1]:
        polynomials = polynomials * u + coefficients[:, None]
    return LocalRows(slice(0, len(u)), keys, weighted * polynomials, fitted.coefficients[0], fitted.unit_variances)


def _sums(u: Floats, kernel: Floats, weighted: Floats, degree: int) -> PowerSums:
    """The sums that determine the fits, without the sums of the values."""
    power, weights, squares = weighted, [], []
    for _ in range(2 * degree + 1):
        weights.append(power.sum(axis=1))
        squares.append(np.einsum("mk,mk->m", power, kernel))
        power = power * u
    return PowerSums(np.stack(weights), np.zeros((degree + 1, len(u))), np.stack(squares), kernel.sum(axis=1))


def attend_directly(points: WeightedPoints, targets: Targets, bandwidth: float, degree: int) -> Floats:
    """Values, c_0 and unit variances of the fits (3, m), by their rows."""
    columns = np.empty((3, targets.times.size))
    for rows in local_rows(points.times, points.weights, targets, bandwidth, degree):
        near = points.values[rows.keys]
        # Around their own mean, values keep the digits that a large offset would take.
        center = near.mean() if near.size else 0.0
        values = np.where(np.isnan(rows.self_coefficients), np.nan, rows.weights @ (near - center) + center)
        columns[:, rows.targets] = values, rows.self_coefficients, rows.unit_variances
    return columns
