"""The causal smoother, one point at a time."""

from datetime import UTC, datetime
from typing import Any

import numpy as np

from overt.errors import InputError, KindError
from overt.smoothing.api import Smoothing
from overt.smoothing.data.options import Bandwidth, Options
from overt.smoothing.data.series import LARGEST
from overt.smoothing.heads.keys import BothKeys, DotKeys, PatchKeys, TimeKeys, ValueKeys
from overt.smoothing.streaming.incremental import InPatches, InTime, InValue, Row


class Online:
    """Smooths a series as it arrives: each point attends to itself and its past, y_i = Σ_{j≤i} W_ij x_j.

    After every `update` its answer is what `overt.smooth(..., causal=True)` with the same options gives to that point, to 1e-12 of the
    largest value: a causal curve does not change when more arrives. The options are those of `overt.smooth`, but nothing is chosen
    here: the bandwidth is given, or comes `like` an analysis of some history.

    An update takes O(points within reach), and memory holds no more: reach is the window, and for keys that compare times at most
    nine bandwidths. Keys that compare values alone look back without end, so they need a window. Patches count points, not times.

    Raises InputError for options that name no bandwidth or that cannot be had point by point.

    >>> online = Online(bandwidth=2.0, degree=0)
    >>> [round(online.update(value), 3) for value in [1.0, 3.0, float("nan"), 5.0]]
    [1.0, 2.062, 2.185, 3.699]
    """

    def __init__(
        self,
        keys: str = "time",
        *,
        bandwidth: Bandwidth = "auto",
        degree: int = 1,
        window: float | None = None,
        score: str = "gaussian",
        normalizer: str = "softmax",
        scale: float = 1.0,
        fill: bool = True,
    ):
        _check(keys, bandwidth, score, window)
        asked = {"score": score, "normalizer": normalizer, "scale": scale, "window": window, "degree": degree, "fill": fill}
        self.options = Options(keys=keys, bandwidth=bandwidth, causal=True, **asked)
        self._row = _row(self.options)
        self._clock = _Clock()

    @classmethod
    def like(cls, found: Smoothing) -> "Online":
        """The smoother that goes on as an analysis of some history did: with its options, and the bandwidth that it chose.

        >>> import overt
        >>> history = [1.0, 2.0, 1.5, 2.5, 2.0]
        >>> found = overt.smoothing.analyze(history, keys="time", bandwidth=2.0, causal=True)
        >>> online = Online.like(found)
        >>> np.allclose([online.update(value) for value in history], found.values)
        True
        """
        options = found.options
        if not options.causal:
            fix = "pass one made with causal=True"
            raise InputError("Online sees no future", got="a smoothing whose points saw theirs", fix=fix)
        if options.robust or found.series.weights is not None:
            raise InputError(
                "Online gives all points one weight", got="a weighted smoothing", fix="pass one without weights or robust"
            )
        return cls(
            options.keys,
            bandwidth="auto" if found.bandwidth is None else found.bandwidth,
            degree=options.degree,
            window=options.window,
            score=options.score,
            normalizer=options.normalizer,
            scale=options.scale,
            fill=options.fill,
        )

    def update(self, value: float, time: Any = None) -> float:
        """Take the next point and return its smoothed value.

        NaN is a missing value: it is no key, and is answered from the past, or by NaN where there is none within the window.
        `time` is a number or a date after the last one; None throughout counts the points.

        Raises InputError or KindError for what is no number, and for a time that is not after the last one; nothing is kept
        of such a point.
        """
        value = _number(value)  # checked before the clock moves on
        if self.options.keys == "patch" and self.options.window is not None and time is not None:
            fix = "leave the times out, or the window"
            raise InputError("a window of patches counts points", got="a time with a point", fix=fix)
        answer = self._row.add(self._clock.read(time), value)
        return answer if self.options.fill or not np.isnan(value) else float("nan")


def _row(options: Options) -> Row:
    window = np.inf if options.window is None else options.window
    if options.score == "dot":
        return InValue(DotKeys(options.scale, plain_sum=options.normalizer == "sum"), window)
    bandwidths = options.bandwidths
    assert bandwidths is not None  # `_check` has refused "auto"
    if options.keys == "time":
        return InTime(TimeKeys(bandwidths[0]), options.degree, window)
    if options.keys == "patch":
        return InPatches(PatchKeys(bandwidths[0]), window)
    if options.keys == "value":
        return InValue(ValueKeys(bandwidths[0]), window)
    return InValue(BothKeys(TimeKeys(bandwidths[0]), ValueKeys(bandwidths[1])), window)


def _check(keys: str, bandwidth: Bandwidth, score: str, window: float | None) -> None:
    """Refuse what cannot be had point by point; the options themselves are checked where they are the batch's."""
    if keys == "auto":
        fix = 'pass keys="time", "value", "both" or "patch"'
        raise InputError("Online has one head, and a mixture is chosen by all points", got='keys="auto"', fix=fix)
    if score != "dot" and bandwidth == "auto":
        fix = "pass one, or choose it on some history: Online.like(overt.smoothing.analyze(history, keys=…, causal=True))"
        raise InputError("Online is told its bandwidth", got='"auto"', fix=fix)
    if keys == "value" and window is None:
        fix = "pass window=, the longest distance in time to look back"
        raise InputError('keys="value" looks back without end, which takes endless memory', got="no window", fix=fix)


class _Clock:
    """Reads times as numbers since the first, dates in seconds; where none are given, it counts the points."""

    def __init__(self):
        self._kind = ""
        self._start: Any = None
        self._last: Any = None
        self._now = -np.inf

    def read(self, time: Any) -> float:
        """The time of the next point, which is after the last."""
        kind = "none" if time is None else "number" if isinstance(time, int | float | np.number) else "date"
        if self._kind and kind != self._kind:
            fix = "give every point a number, every point a date, or none a time"
            raise InputError("times are all of one kind", got=f"{kind} after {self._kind}", fix=fix)
        given = self._given(time, kind)
        if np.isnat(given) if kind == "date" else not np.isfinite(given):
            raise InputError("every point has a finite time", got=str(time), fix="drop that point or date it")
        start = given if self._start is None else self._start
        moment = float((given - start) / np.timedelta64(1, "s") if kind == "date" else given - start)
        if moment <= self._now:
            fix = "keep the order in which they were measured, and join points of one time into one"
            raise InputError("each time is after the last", got=f"{time} after {self._last}", fix=fix)
        self._kind, self._start, self._last, self._now = kind, start, time, moment
        return moment

    def _given(self, time: Any, kind: str) -> Any:
        if kind == "date":
            return _date(time)
        return max(self._now, -1.0) + 1.0 if kind == "none" else float(time)


def _date(time: Any) -> np.datetime64:
    if isinstance(time, datetime) and time.tzinfo is not None:
        time = time.astimezone(UTC).replace(tzinfo=None)
    try:
        return np.datetime64(time, "ns")
    except (TypeError, ValueError) as error:
        fix = "pass floats, or dates as numpy.datetime64 or datetime"
        raise KindError("times are numbers or dates", got=repr(time), fix=fix) from error


def _number(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        fix = "pass one number a point, NaN where it is missing"
        raise KindError("a series holds real numbers", got=repr(value), fix=fix) from error
    if abs(number) > LARGEST:
        rule = f"a series holds numbers up to {LARGEST:g}, or NaN where one is missing"
        raise InputError(rule, got=f"{number:g}", fix="mend that value, or measure in a larger unit")
    return number
