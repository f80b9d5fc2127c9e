"""The clock of a time zone: its shifts forward and back during a series, which a daily season follows."""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.smoothing.data.times import Times

Floats = NDArray[np.float64]

_DAY = 86400.0
# _OFTEN: days between queries of a zone's distance from UTC (in Morocco summer time stops for a month); _MOST: most queries.
_OFTEN, _MOST = 7, 20_000
# _AHEAD: days beyond the last point for which the clock is known.
_AHEAD = 366
# _EARLIEST, _LATEST: range of Python's datetime, with a margin.
_EARLIEST, _LATEST = np.datetime64("0002"), np.datetime64("9000")
_WHOLE = 1e-6


class Clock(NamedTuple):
    """The difference between a clock and the time elapsed since the first point; all in typical steps."""

    starts: Floats  # (changes,) ascending times from which a shift holds
    shifts: Floats  # (changes,)
    day: float  # the length of a day

    def shifted(self, times: Floats) -> Floats:
        """The times (m,) that the clock shows.

        >>> Clock(np.array([48.0]), np.array([1.0]), 24.0).shifted(np.array([47.0, 48.0]))
        array([47., 49.])
        """
        index = np.searchsorted(self.starts, times, side="right")
        return times + np.append(0.0, self.shifts)[index]

    def rules(self, period: float) -> bool:
        """Whether a period follows the clock: a day, some days or a part of a day, but not a tide."""
        ratio = max(period / self.day, self.day / period)
        return abs(ratio - round(ratio)) < _WHOLE * ratio


def zone_clock(times: Times, start: float, step: float) -> Clock | None:
    """The clock of the zone of times, from `start` on in units of `step`; None if it is never changed.

    >>> from overt.smoothing.data.times import read_times
    >>> import pandas as pd
    >>> days = read_times(pd.date_range("2024-03-30", periods=3, tz="Europe/Berlin"), 3)
    >>> zone_clock(days, 0.0, 3600.0)  # in hours from the first point, and a year further
    Clock(starts=array([  26., 5066., 8762.]), shifts=array([1., 0., 1.]), day=24.0)
    """
    if times.zone is None or times.origin is None or not _EARLIEST < times.origin < _LATEST:
        return None
    first = times.origin.astype("datetime64[s]").item().replace(tzinfo=UTC)
    days = float(times.moments.max()) / _DAY + _AHEAD
    if days > _OFTEN * _MOST:
        return None

    def offset(seconds: float) -> float:
        moment: datetime = (first + timedelta(seconds=seconds)).astimezone(times.zone)
        return (moment.utcoffset() or timedelta()).total_seconds()

    starts, offsets = [], [offset(0.0)]
    samples = [*np.arange(0.0, days, _OFTEN) * _DAY, days * _DAY]
    for before, after in itertools.pairwise(samples):
        if offset(after) != offset(before):
            starts.append(_change(offset, before, after))
            offsets.append(offset(after))
    if not starts:
        return None
    return Clock((np.array(starts) - start) / step, (np.array(offsets[1:]) - offsets[0]) / step, _DAY / step)


def _change(offset: Callable[[float], float], before: float, after: float) -> float:
    """The second between `before` and `after` at which the distance from UTC changes."""
    low, high = before, after
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if offset(middle) == offset(low) else (low, middle)
    return high
