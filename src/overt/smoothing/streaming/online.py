"""The causal smoother, one point at a time."""

from datetime import datetime
from typing import Any, Literal

import numpy as np

from overt.errors import InputError, KindError
from overt.smoothing.data.options import KeyKind, NormalizerName, Options, ScoreName
from overt.smoothing.data.periods import is_length
from overt.smoothing.data.series import LARGEST
from overt.smoothing.data.times import read_dates
from overt.smoothing.heads.keys import BothKeys, DotKeys, PatchKeys, TimeKeys, ValueKeys
from overt.smoothing.result import Smoothing
from overt.smoothing.streaming.incremental import (
    IncrementalBank,
    IncrementalHead,
    IncrementalPatches,
    IncrementalTime,
    IncrementalValue,
)
from overt.smoothing.streaming.robust import RobustHead

Time = float | datetime | np.datetime64 | str
_KINDS = {"none": "no time", "number": "a number", "date": "a date", "zoned": "a date with a time zone"}


class Online:
    """Smooths a series as it arrives: a point attends to itself and its past, y_i = Σ_{j≤i} W_ij x_j.

    With keys="auto" every `update` returns the last value of `overt.smooth(..., causal=True)` of the last `history` points, missing ones
    included. The noise, the heads and their mixture are chosen again from these points only, so no choice uses the future. One value that
    is farther from all others than three times their range is excluded: a jump of that size begins with its second value. An update
    takes 20 to 60 ms, nearly as long for few points as for 512.

    With keys of one head `update` returns the value of `overt.smooth(..., causal=True)` with the same options, to 1e-12 of the largest
    value: later points do not change the curve. Nothing is chosen automatically: pass the bandwidth, or take it from an analysis of some
    history with `Online.like`. Time and memory of an update are O(points within reach). The reach is the window, and at most nine
    bandwidths for keys that compare times. Keys that compare only values have infinite reach, so they need a window. Patches count
    points, not times.

    With **robust** a value is an anomaly if it is more than 4.5 standard deviations from the expectation by the curve before it (7 after
    few points): it is excluded at once, and `verdict` is "anomaly". The fourth anomaly in a row that agrees with the last three is a
    change of level: `verdict` is "change", and the curve restarts with these four points, a delay of three points. Smaller changes are
    followed as without `robust`. The first 16 points have no verdict.

    Raises InputError if options contradict each other, and for one head without a bandwidth.

    >>> online = Online(keys="time", bandwidth=2.0, degree=0)
    >>> [round(online.update(value), 3) for value in [1.0, 3.0, float("nan"), 5.0]]
    [1.0, 2.062, 2.185, 3.699]
    >>> online, noise = Online(keys="time", bandwidth=3.0, robust=True), np.random.default_rng(0).normal(size=40)
    >>> noise[30], noise[35:] = 50.0, noise[35:] + 20
    >>> [(index, online.verdict) for index, value in enumerate(noise) if (online.update(value), online.verdict)[1]]
    [(30, 'anomaly'), (35, 'anomaly'), (36, 'anomaly'), (37, 'anomaly'), (38, 'change')]
    """

    def __init__(
        self,
        keys: KeyKind = "auto",
        *,
        bandwidth: float | tuple[float, float] | Literal["auto"] = "auto",
        degree: int = 1,
        window: float | None = None,
        score: ScoreName = "gaussian",
        normalizer: NormalizerName = "softmax",
        scale: float | Literal["auto"] = "auto",
        fill: bool = True,
        history: int = 512,
        robust: bool = False,
    ):
        _check(keys, bandwidth, score, window, history)
        self.options: Options = Options(keys, bandwidth, score, normalizer, scale, window, degree, causal=True, fill=fill)

        def new_head() -> IncrementalHead:
            return IncrementalBank(history) if keys == "auto" else _head(self.options)

        self._head: IncrementalHead = RobustHead(new_head) if robust else new_head()
        self._clock = _Clock()

    @classmethod
    def like(cls, analysis: Smoothing) -> "Online":
        """A smoother with the options and the bandwidth of an analysis of some history, for the points after it.

        >>> import overt
        >>> history = [1.0, 2.0, 1.5, 2.5, 2.0]
        >>> analysis = overt.smoothing.analyze(history, keys="time", bandwidth=2.0, causal=True)
        >>> online = Online.like(analysis)
        >>> np.allclose([online.update(value) for value in history], analysis.values)
        True
        """
        options = analysis.options
        if not options.causal:
            fix = "analyze with causal=True"
            raise InputError("a causal smoothing", got="one that is not causal", fix=fix)
        if not options.as_they_are:
            fix = "analyze without scale, bounds and circular"
            raise InputError("a smoothing of the values as they are", got="one on a scale or within bounds", fix=fix)
        if options.weighs_outliers or analysis.series.weights is not None:
            fix = "analyze without weights and robust"
            raise InputError("a smoothing with equal weights", got="one with weights", fix=fix)
        return cls(
            options.keys,
            bandwidth="auto" if analysis.bandwidth is None else analysis.bandwidth,
            degree=options.degree,
            window=options.window,
            score=options.score,
            normalizer=options.normalizer,
            scale=options.dot_scale if options.score == "dot" else "auto",
            fill=options.fill,
        )

    @property
    def verdict(self) -> str:
        """The verdict on the last point: "anomaly", "change" of level, or ""; always "" without `robust`."""
        return self._head.verdict if isinstance(self._head, RobustHead) else ""

    def update(self, value: float, time: Time | None = None) -> float:
        """Add the next point and return its smoothed value.

        NaN is a missing value: it is no key, and its smoothed value comes from the past, or is NaN without a point within the window.
        `time` is a number or a date after the last time. Points are counted if all times are None.

        Raises InputError or KindError for a value that is not a number, and for a time that is not after the last time; the point is then
        not added.
        """
        value = _number(value)  # checked before the clock moves on
        if self.options.keys == "patch" and self.options.window is not None and time is not None:
            fix = "leave out the times, or the window"
            raise InputError("no times with a window of patches, which counts points", got=f"the time {time}", fix=fix)
        output = self._head.update(self._clock.read(time), value)
        return output if self.options.fill or not np.isnan(value) else float("nan")


def _head(options: Options) -> IncrementalHead:
    window = np.inf if options.window is None else options.window
    if options.score == "dot":
        return IncrementalValue(DotKeys(options.dot_scale, plain_sum=options.normalizer == "sum"), window)
    bandwidths = options.bandwidths
    assert bandwidths is not None  # `_check` has refused "auto"
    if options.keys == "time":
        return IncrementalTime(TimeKeys(bandwidths[0]), options.degree, window)
    if options.keys == "patch":
        return IncrementalPatches(PatchKeys(bandwidths[0]), window)
    if options.keys == "value":
        return IncrementalValue(ValueKeys(bandwidths[0]), window)
    return IncrementalValue(BothKeys(TimeKeys(bandwidths[0]), ValueKeys(bandwidths[1])), window)


def _check(keys: str, bandwidth: Any, score: str, window: Any, history: int) -> None:
    """Refuse options that need the whole series or are lengths of time, whose unit is unknown yet; `Options` checks all others."""
    lengths = {"window": window, "bandwidth": bandwidth[0] if isinstance(bandwidth, tuple | list) and bandwidth else bandwidth}
    for name, length in lengths.items():
        if is_length(length) and not (isinstance(length, str) and length == "auto"):
            fix = "pass it in the unit of the times, which is seconds for dates"
            raise InputError(f"a {name} as a number", got=repr(length), fix=fix)
    if isinstance(history, bool) or not isinstance(history, int | np.integer) or history < 1:
        fix = "pass how many points the choices are made from"
        raise InputError("a history of 1 point or more", got=repr(history), fix=fix)
    if keys != "auto" and score != "dot" and bandwidth == "auto":
        fix = "pass one, or choose it on some history: Online.like(overt.smoothing.analyze(history, keys=…, causal=True))"
        raise InputError("a bandwidth", got='bandwidth="auto"', fix=fix)
    if keys == "value" and window is None:
        fix = "pass window=, the largest distance in time to attend over"
        raise InputError('a window with keys="value", to bound the memory', got="none", fix=fix)


class _Clock:
    """Converts times to numbers since the first time, dates to seconds; it counts the points if there are no times."""

    def __init__(self) -> None:
        self._kind = ""
        self._start: Any = None
        self._last: Any = None
        self._now = -np.inf

    def read(self, time: Time | None) -> float:
        """The next time as a number; it must be after the last time."""
        kind, parsed = self._parse(time)
        if self._kind and kind != self._kind:
            fix = "pass a number for every point, a date for every point, all with a time zone or all without, or no times"
            raise InputError("times of one kind", got=f"{_KINDS[kind]} after {_KINDS[self._kind]}", fix=fix)
        dated = isinstance(parsed, np.datetime64)
        if np.isnat(parsed) if dated else not np.isfinite(parsed):
            raise InputError("a finite time for every point", got=str(time), fix="drop that point, or set its time")
        start = parsed if self._start is None else self._start
        moment = float((parsed - start) / np.timedelta64(1, "s") if dated else parsed - start)
        if moment <= self._now:
            fix = "pass points in the order of their times, and join points of equal times"
            raise InputError("a time after the last one", got=f"{time} after {self._last}", fix=fix)
        self._kind, self._start, self._last, self._now = kind, start, time, moment
        return moment

    def _parse(self, time: Any) -> tuple[str, Any]:
        """The kind of a time, and the time as a number or as datetime64, in UTC if it has a time zone."""
        if time is None:
            return "none", max(self._now, -1.0) + 1.0
        if isinstance(time, int | float | np.number):
            return "number", float(time)
        try:
            dates, zone = read_dates([time])
            return "date" if zone is None else "zoned", dates[0].astype("datetime64[ns]")
        except (TypeError, ValueError) as error:
            fix = "pass floats, or dates as numpy.datetime64 or datetime"
            raise KindError("times as numbers or dates", got=repr(time), fix=fix) from error


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        fix = "pass one number per point, NaN if it is missing"
        raise KindError("real numbers", got=repr(value), fix=fix) from error
    if abs(number) > LARGEST:
        expected = f"numbers up to {LARGEST:g}, or NaN for a missing value"
        raise InputError(expected, got=f"{number:g}", fix="correct that value, or use a larger unit")
    return number
