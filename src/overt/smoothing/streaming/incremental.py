"""Causal attention one row at a time, with a buffer of the points within reach."""

from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.api import smooth
from overt.smoothing.data.series import Floats
from overt.smoothing.heads.keys import DotKeys, PatchKeys, Points, SeriesKeys, TimeKeys
from overt.smoothing.heads.local.regression import attend_time
from overt.smoothing.heads.normalize import plain_sum, softmax

# LEAST_POINTS: fewest points that have a range; APART: least distance of a value that is far from the others, in ranges.
LEAST_POINTS, APART = 16, 3.0


class IncrementalHead(Protocol):
    """A head that takes points in the order of their times; a point attends to itself and its past."""

    def update(self, moment: float, value: float) -> float:
        """Add a point and return its y, NaN if it has no key to attend to; a value of NaN is no key."""
        ...


def furthest_apart(values: Floats) -> NDArray[np.bool_]:
    """The mask of a value (n,) that is farther from all others than three times their range: an outlier, or the start of a jump.

    >>> furthest_apart(np.append(np.sin(np.arange(20)), 50.0)).nonzero()[0]
    array([20])
    >>> furthest_apart(np.append(np.sin(np.arange(20)), [50.0, 50.1])).any()
    np.False_
    """
    marked = np.zeros(values.size, dtype=bool)
    known = np.flatnonzero(~np.isnan(values))
    if known.size < LEAST_POINTS:
        return marked
    ranked = known[np.argsort(values[known])]
    low, second, before, high = values[ranked[[0, 1, -2, -1]]]
    for point, gap, others in ((ranked[0], second - low, high - second), (ranked[-1], high - before, before - low)):
        marked[point] = gap > APART * others > 0
    return marked


class IncrementalBank:
    """The bank over the last points, chosen again at every point; a single value far from all others is excluded."""

    def __init__(self, history: int):
        self._recent = deque[tuple[float, float]](maxlen=history)  # moment and value, including missing points

    def update(self, moment: float, value: float) -> float:
        """Add a point, missing or not, and return its y; NaN if all points are missing."""
        self._recent.append((moment, value))
        times, values = np.array(self._recent).T
        if np.isnan(values).all():
            return float("nan")
        values[furthest_apart(values)] = np.nan
        # Times relative to the newest keep their digits in a long series.
        return float(smooth(values, times=times - moment, causal=True)[-1])


class IncrementalTime:
    """Time keys: a mean, a line or a parabola through points that are near in time."""

    def __init__(self, keys: TimeKeys, degree: int, window: float):
        self.bandwidth: float = keys.bandwidth
        self.degree = degree
        self.window = window
        self._recent = _RecentPoints(min(window * (1 + 1e-9), keys.radius))

    def update(self, moment: float, value: float) -> float:
        """Add a point, missing or not, and return its y."""
        if not np.isnan(value):
            self._recent.append(moment, value)
        times, values = self._recent.points
        if not times.size:
            return float("nan")
        # Times relative to the newest, not to the first, keep their digits in a long series.
        options = {"degree": self.degree, "window": self.window, "targets": np.zeros(1)}
        return float(attend_time(times - moment, values, None, self.bandwidth, side="past", **options).values[0])


class IncrementalValue:
    """Keys that compare values; a missing point has the y of the last known point."""

    def __init__(self, keys: SeriesKeys, window: float):
        self.keys = keys
        self.reach: float = window * (1 + 1e-9)
        self._recent = _RecentPoints(min(self.reach, keys.radius))
        self._last = -np.inf, float("nan")

    def update(self, moment: float, value: float) -> float:
        """Add a point, missing or not, and return its y."""
        if np.isnan(value):
            before, output = self._last
            return output if moment - before <= self.reach else float("nan")
        self._recent.append(moment, value)
        key = self._recent.points
        scores = self.keys.scores(Points(np.array([moment]), np.array([value])), key)  # (1, keys)
        plain = isinstance(self.keys, DotKeys) and self.keys.plain_sum
        weights = (plain_sum if plain else softmax)(scores)[0]
        # Relative to the point itself, the sum keeps the digits that a large offset would cost.
        output = value + float(weights @ (key.values - value))
        self._last = moment, output
        return output


class IncrementalPatches:
    """Patch keys: two points are similar if the points before them are; a missing value is filled by the last known one."""

    def __init__(self, keys: PatchKeys, window: float):
        self.bandwidth: float = keys.bandwidth
        self.half: int = keys.half
        self.reach: int = keys.reach(window)
        self._recent = deque[tuple[float, bool]](maxlen=self.reach + 1 + self.half)  # value, and whether it is a key

    def update(self, moment: float, value: float) -> float:
        """Add a point, missing or not, and return its y."""
        known = not np.isnan(value)
        if not known and not self._recent:
            return float("nan")
        self._recent.append((value if known else self._recent[-1][0], known))
        values, keys = (np.array(column) for column in zip(*self._recent, strict=True))
        # Before its first value, the series is constant.
        patches = np.lib.stride_tricks.sliding_window_view(np.pad(values, (self.half, 0), mode="edge"), self.half + 1)
        distances = ((patches - patches[-1]) ** 2).mean(axis=1)  # (points,)
        near = slice(-self.reach - 1, None)
        scores = np.where(keys, -0.5 * distances / self.bandwidth**2, -np.inf)[near]
        if np.isneginf(scores).all():
            return float("nan")
        return float(values[-1] + softmax(scores) @ (values[near] - values[-1]))


class _RecentPoints:
    """The known points in the order of their times, without points out of reach of the newest known point.

    A missing point far from the newest known point reaches farther back than `reach`, but not beyond the reach of that point: relative
    to the weight of the nearest key, everything older is negligible.
    """

    def __init__(self, reach: float):
        self.reach = reach
        self._buffer = np.empty((2, 64))
        self._first, self._stop = 0, 0

    @property
    def points(self) -> Points:
        """Times ascending, and values."""
        return Points(*self._buffer[:, self._first : self._stop])

    def append(self, moment: float, value: float) -> None:
        """Append the newest point."""
        while self._first < self._stop and moment - self._buffer[0, self._first] > self.reach:
            self._first += 1
        if self._stop == self._buffer.shape[1]:
            self._grow()
        self._buffer[:, self._stop] = moment, value
        self._stop += 1

    def _grow(self) -> None:
        remaining = self._buffer[:, self._first : self._stop]
        # Twice the remaining points, so that a point is moved once or twice in all.
        self._buffer = np.concatenate([remaining, np.empty((2, max(64, remaining.shape[1])))], axis=1)
        self._first, self._stop = 0, remaining.shape[1]
