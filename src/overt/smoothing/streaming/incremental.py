"""One row of causal attention at a time: what has arrived is remembered as far back as it can matter, and no farther."""

from collections import deque
from typing import Protocol

import numpy as np

from overt.smoothing.heads.keys import DotKeys, Keys, PatchKeys, Points, TimeKeys
from overt.smoothing.heads.local.direct import attend_time
from overt.smoothing.heads.normalize import plain_sum, softmax


class Row(Protocol):
    """Takes points as they arrive, in the order of their times, and attends from each to itself and its past."""

    def add(self, moment: float, value: float) -> float:
        """y of the newest point, NaN where it may attend to nothing; a value of NaN is no key."""
        ...


class InTime:
    """Keys of time: a mean, a line or a parabola through what is near."""

    def __init__(self, keys: TimeKeys, degree: int, window: float):
        self.bandwidth, self.degree, self.window = keys.bandwidth, degree, window
        self._past = _Past(min(window * (1 + 1e-9), keys.radius))

    def add(self, moment: float, value: float) -> float:
        """y of the newest point, missing or not."""
        if not np.isnan(value):
            self._past.add(moment, value)
        times, values = self._past.points
        if not times.size:
            return float("nan")
        # Around the newest time, and not the first, times keep their digits however long this goes on.
        options = {"degree": self.degree, "window": self.window, "targets": np.zeros(1)}
        return float(attend_time(times - moment, values, None, self.bandwidth, side="past", **options).values[0])


class InValue:
    """Keys that compare values; a missing point is like none, and is answered as the last one that was there."""

    def __init__(self, keys: Keys, window: float):
        self.keys, self.reach = keys, window * (1 + 1e-9)
        self._past = _Past(min(self.reach, keys.radius))
        self._last = -np.inf, float("nan")

    def add(self, moment: float, value: float) -> float:
        """y of the newest point."""
        if np.isnan(value):
            before, answer = self._last
            return answer if moment - before <= self.reach else float("nan")
        self._past.add(moment, value)
        key = self._past.points
        scores = self.keys.scores(Points(np.array([moment]), np.array([value])), key)  # (1, keys)
        plain = isinstance(self.keys, DotKeys) and self.keys.plain_sum
        weights = (plain_sum if plain else softmax)(scores)[0]
        # Around the point itself, the sum keeps the digits that a far offset would take.
        answer = value + float(weights @ (key.values - value))
        self._last = moment, answer
        return answer


class InPatches:
    """Patch keys: points are alike where what came before them is; a missing value is taken as the last one that was there."""

    def __init__(self, keys: PatchKeys, window: float):
        self.bandwidth, self.half, self.reach = keys.bandwidth, keys.half, keys.reach(window)
        self._seen = deque[tuple[float, bool]](maxlen=self.reach + 1 + self.half)  # value, and whether it is a key

    def add(self, moment: float, value: float) -> float:
        """y of the newest point, missing or not."""
        known = not np.isnan(value)
        if not known and not self._seen:
            return float("nan")
        self._seen.append((value if known else self._seen[-1][0], known))
        values, keys = (np.array(column) for column in zip(*self._seen, strict=True))
        # Before the first value, the series goes on as it began.
        patches = np.lib.stride_tricks.sliding_window_view(np.pad(values, (self.half, 0), mode="edge"), self.half + 1)
        distances = ((patches - patches[-1]) ** 2).mean(axis=1)  # (points,)
        near = slice(-self.reach - 1, None)
        scores = np.where(keys, -0.5 * distances / self.bandwidth**2, -np.inf)[near]
        if np.isneginf(scores).all():
            return float("nan")
        return float(values[-1] + softmax(scores) @ (values[near] - values[-1]))


class _Past:
    """The known points in the order of their times, those out of reach of the newest forgotten.

    A missing point far from the newest reaches farther back than `reach`, but not beyond what the newest reaches: relative to
    the weight of the nearest key, everything older is negligible.
    """

    def __init__(self, reach: float):
        self.reach = reach
        self._held = np.empty((2, 64))
        self._first, self._stop = 0, 0

    @property
    def points(self) -> Points:
        """Times ascending, and values."""
        return Points(*self._held[:, self._first : self._stop])

    def add(self, moment: float, value: float) -> None:
        """Append the newest point."""
        while self._first < self._stop and moment - self._held[0, self._first] > self.reach:
            self._first += 1
        if self._stop == self._held.shape[1]:
            self._make_room()
        self._held[:, self._stop] = moment, value
        self._stop += 1

    def _make_room(self) -> None:
        kept = self._held[:, self._first : self._stop]
        # Twice what is kept: each point is then moved once or twice in its life.
        self._held = np.concatenate([kept, np.empty((2, max(64, kept.shape[1])))], axis=1)
        self._first, self._stop = 0, kept.shape[1]
