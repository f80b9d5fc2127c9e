"""Linear operators: how each value of a curve depends on the series, if all choices made from the values are constants.

A curve is y = A x. An operator is defined by its transposed application, pull(v)_j = Σ_i v_i A_ij: row i is the pull of the unit
vector i, and a composition pulls through its parts, the last one first. No matrix is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.series import Floats, Indices


@dataclass(frozen=True)
class Operator:
    """A linear map from a series (n,) to a curve (m,), closed under composition, sums, differences and weights of its rows.

    >>> mean, middle = gather(np.array([[0, 1], [1, 2]]), np.full((2, 2), 0.5), 3), gather(np.array([[0, 1]]), np.full((1, 2), 0.5), 2)
    >>> (middle @ mean).row(0), (identity(3) - identity(3).times(np.array([1.0, 0.25, 0.0]))).row(1)
    (array([0.25, 0.5 , 0.25]), array([0.  , 0.75, 0.  ]))
    """

    shape: tuple[int, int]  # points of the curve, and of the series
    pull: Callable[[Floats], Floats]  # from (m,) to (n,)

    def row(self, point: int) -> Floats:
        """The weights of one point of the curve (n,)."""
        return self.pull(np.eye(1, self.shape[0], point)[0])

    def apply(self, values: Floats) -> Floats:
        """The curve (m,) of values (n,), NaN counted as 0, row by row: O(mn) time, for inspection."""
        known = np.nan_to_num(values)
        return np.array([self.row(point) @ known for point in range(self.shape[0])])

    def __matmul__(self, other: Self) -> "Operator":
        return Operator((self.shape[0], other.shape[1]), lambda v: other.pull(self.pull(v)))

    def __add__(self, other: Self) -> "Operator":
        return Operator(self.shape, lambda v: self.pull(v) + other.pull(v))

    def __sub__(self, other: Self) -> "Operator":
        return Operator(self.shape, lambda v: self.pull(v) - other.pull(v))

    def times(self, factors: Floats) -> "Operator":
        """Each row times its factor (m,)."""
        return Operator(self.shape, lambda v: self.pull(factors * v))


def row_operator(shape: tuple[int, int], row: Callable[[int], Floats]) -> Operator:
    """The operator with these rows, computed on demand."""

    def pull(v: Floats) -> Floats:
        total = np.zeros(shape[1])
        for point in np.flatnonzero(v).tolist():
            total += v[point] * row(point)
        return total

    return Operator(shape, pull)


def gather(indices: Indices, shares: Floats, points: int) -> Operator:
    """The sums Σ_k shares_ik x_{indices_ik} of few points; indices and shares (m, few)."""
    return Operator(
        (len(indices), points),
        lambda v: np.bincount(indices.ravel(), (v[:, None] * shares).ravel(), points).astype(np.float64),
    )


def identity(points: int) -> Operator:
    """The operator that leaves every point as it is."""
    return Operator((points, points), lambda v: v)


def nothing(points: int) -> Operator:
    """The operator that is zero at every point."""
    return Operator((points, points), np.zeros_like)


def restriction(rows: Indices, points: int) -> Operator:
    """The operator that selects some of the points."""
    return gather(rows[:, None], np.ones((rows.size, 1)), points)


def extension(rows: Indices, points: int) -> Operator:
    """The operator that places values at some of the points, with zeros at all others."""
    return Operator((points, rows.size), lambda v: v[rows])


def lines(times: Floats, targets: Floats) -> Operator:
    """Linear interpolation between the values at ascending times, at targets (m,); constant beyond the ends.

    >>> lines(np.array([0.0, 1.0, 3.0]), np.array([1.5])).row(0)
    array([0.  , 0.75, 0.25])
    """
    after = np.searchsorted(times, targets, side="right")
    left, right = np.maximum(after - 1, 0), np.minimum(after, times.size - 1)
    gaps = times[right] - times[left]
    shares = np.clip((targets - times[left]) / np.where(gaps > 0, gaps, 1.0), 0.0, 1.0) * (gaps > 0)
    return gather(np.stack([left, right], axis=1), np.stack([1 - shares, shares], axis=1), times.size)


def fillings(times: Floats, known: NDArray[np.bool_], *, causal: bool = False) -> Operator:
    """Known values unchanged, missing ones interpolated linearly, or with `causal` the last known value (`series.filled_values`)."""
    keys = np.flatnonzero(known)
    if causal:
        before = np.cumsum(known) - 1
        return gather(keys[np.maximum(before, 0)][:, None], (before >= 0)[:, None].astype(np.float64), times.size)
    between = identity(times.size).times(known.astype(np.float64))
    return between + (lines(times[keys], times) @ restriction(keys, times.size)).times((~known).astype(np.float64))


def means_of_ties(ties: Indices, known: NDArray[np.bool_]) -> Operator:
    """The mean of the known points with the same index of time (n,), ascending."""
    counts = np.maximum(np.bincount(ties, known), 1)
    return Operator((ties.size, ties.size), lambda v: np.where(known, (np.bincount(ties, v) / counts)[ties], 0.0))
