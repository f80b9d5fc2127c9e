"""A stream with anomalies: one value far from the expectation by the past is excluded; several that agree are a new level."""

from collections import deque
from collections.abc import Callable

import numpy as np

from overt.smoothing.streaming.incremental import IncrementalHead

# LEAST_POINTS: values before the first verdict; RECENT: surprises from which their spread is estimated.
LEAST_POINTS, RECENT = 16, 128
# FAR: least surprise of an anomaly, in standard deviations, times 1 + FEW / n after n surprises.
FAR, FEW = 4.5, 10
# CONFIRMED: anomalies in a row, within AGREE standard deviations of each other, that are a change of level.
CONFIRMED, AGREE = 4, 6.0


class RobustHead:
    """A head that excludes anomalies and restarts at a change of level; `verdict` is "", "anomaly" or "change".

    The surprise of a value is its distance from the curve before it. The spread of surprises is 1.4826 times the median distance of the
    last surprises from their median.
    """

    def __init__(self, new_head: Callable[[], IncrementalHead]) -> None:
        self.verdict: str = ""
        self._new_head, self._head = new_head, new_head()
        self._surprises = deque[float](maxlen=RECENT)
        self._pending: list[tuple[float, float]] = []
        self._output = float("nan")

    def update(self, moment: float, value: float) -> float:
        """Add a point and return its y."""
        self.verdict = ""
        surprise = value - self._output
        if np.isnan(surprise) or self._distance(surprise) <= FAR:
            if not np.isnan(surprise):
                self._surprises.append(surprise)
                self._pending = []
            self._output = self._head.update(moment, value)
            return self._output
        self._pending.append((moment, value))
        if self._is_level():
            self.verdict, self._head = "change", self._new_head()
            for before in self._pending:
                self._output = self._head.update(*before)
            self._pending = []
        else:
            self.verdict = "anomaly"
            self._output = self._head.update(moment, float("nan"))
        return self._output

    def _spread(self) -> tuple[float, float]:
        surprises = np.array(self._surprises)
        middle = float(np.median(surprises))
        return middle, 1.4826 * float(np.median(np.abs(surprises - middle)))

    def _distance(self, surprise: float) -> float:
        """A surprise in standard deviations; 0 if too few points are known, or most are equal."""
        if len(self._surprises) < LEAST_POINTS:
            return 0.0
        middle, spread = self._spread()
        return abs(surprise - middle) / (spread * (1 + FEW / len(self._surprises))) if spread > 0 else 0.0

    def _is_level(self) -> bool:
        """Whether the last `CONFIRMED` anomalies in a row agree."""
        self._pending = self._pending[-CONFIRMED:]
        values = np.array([value for _, value in self._pending])
        return values.size == CONFIRMED and bool(np.ptp(values) <= AGREE * self._spread()[1])
