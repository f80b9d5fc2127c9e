"""Times as numbers: plain numbers unchanged, dates and lengths of time in seconds."""

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError, KindError
from overt.smoothing.data.zones import recorded_zone

Floats = NDArray[np.float64]

# CENTURIES: longest series, in seconds, whose nanoseconds fit 64 bits: 2⁶³ nanoseconds are slightly more.
CENTURIES = 9e9
# _ZONED_TEXT: a time of day with its distance from UTC.
_ZONED_TEXT = re.compile(r".*[T ]\d{1,2}(:?\d{2}){0,2}([.,]\d+)? *(Z|z|[+-]\d{2}(:?\d{2}){0,2})")
_KINDS = {"M": "dates", "m": "lengths of time", "f": "numbers", "i": "numbers", "u": "numbers"}


class Times(NamedTuple):
    """Times as numbers and their unit: "steps" without passed times, "seconds" for dates and lengths of time, "" for plain numbers."""

    moments: Floats  # (n,)
    unit: str
    origin: np.datetime64 | None = None  # the date of second 0, in UTC if there is a time zone; None unless they were dates
    zone: tzinfo | None = None  # time zone of dates that have one

    @property
    def kind(self) -> str:
        """The kind of the passed times: "dates", "lengths of time" or "numbers"."""
        if self.origin is not None:
            return "dates"
        return "lengths of time" if self.unit == "seconds" else "numbers"

    @property
    def as_passed(self) -> NDArray[Any]:
        """The times as passed: dates (in UTC if there is a zone) or lengths of time, to the microsecond, or numbers."""
        if self.unit != "seconds":
            return self.moments
        lengths = np.rint(self.moments * 1e6).astype("timedelta64[us]")
        return lengths if self.origin is None else self.origin.astype("datetime64[us]") + lengths


def read_times(times: ArrayLike | Times | None, length: int, zone: tzinfo | None = None) -> Times:
    """Read one time for every of `length` points; points are counted if times is None. `zone` is the zone of dates in UTC."""
    if isinstance(times, Times):
        return times
    if times is None:
        return Times(np.arange(length, dtype=np.float64), "steps")
    array, zone_of_dates = _time_array(times)
    if array.shape != (length,):
        got = f"times of shape {array.shape} for {length} points"
        raise InputError("one time for each point", got=got, fix="pass as many times as the series has points")
    if array.dtype.kind == "M":
        origin = array.min()
        return Times(_seconds(array, origin), "seconds", origin, zone_of_dates or zone)
    if array.dtype.kind == "m":
        return Times(_durations(array), "seconds")
    return Times(_numbers(array), "")


def read_moments(times: ArrayLike, like: Times) -> Floats:
    """Other times (m,) of the same kind as the times of a series, as numbers from the same origin."""
    if like.origin is None and _is_text(np.asarray(times)):
        fix = 'pass lengths of time, as pandas.Timedelta("00:07:30")' if like.unit == "seconds" else "pass numbers"
        raise KindError(f"times that are {like.kind}, as those of the series", got="text", fix=fix)
    array, zone = _time_array(times)
    array = np.atleast_1d(array)
    if array.ndim != 1:
        raise InputError("times of shape (m,)", got=f"shape {array.shape}", fix="pass a flat sequence")
    kind = _KINDS.get(array.dtype.kind, f"dtype {array.dtype}")
    if kind != like.kind:
        raise KindError(f"times that are {like.kind}, as those of the series", got=kind, fix=f"pass {like.kind}")
    if like.origin is not None:
        if array.size:
            check_zone(zone, like.zone)
        return _seconds(array, like.origin)
    return _durations(array) if like.unit == "seconds" else _numbers(array)


def moment_in_words(moment: float, times: Times) -> str:
    """The text of a time of a series: its date, hours and minutes of a length of time, the number of its row, or the number.

    >>> moment_in_words(4.0, Times(np.arange(9.0), "steps")), moment_in_words(3600.0, read_times(["2024-01-01", "2024-01-02"], 2))
    ('row 5', '2024-01-01 01:00')
    >>> moment_in_words(3690.0, Times(np.arange(9.0), "seconds"))
    '1:01:30'
    """
    if times.origin is not None:
        return date_in_words(times.origin + np.timedelta64(round(moment * 1e6), "us"), times.zone)
    if times.unit == "seconds":
        minutes, seconds = divmod(round(moment), 60)
        return f"{minutes // 60}:{minutes % 60:02}" + (f":{seconds:02}" if seconds else "")
    return f"row {round(moment) + 1}" if times.unit == "steps" else f"{moment:.6g}"


def date_in_words(date: Any, zone: tzinfo | None = None) -> str:
    """The text of a date, converted from UTC to the zone if there is one, without a time of day at midnight; also of a number.

    >>> date_in_words(np.datetime64("2024-06-01T22:00"), ZoneInfo("Europe/Berlin")), date_in_words(2.5)
    ('2024-06-02', '2.5')
    """
    if not isinstance(date, np.datetime64):
        return f"{date:.6g}" if isinstance(date, int | float) else str(date)
    if zone is not None:
        local = date.astype("datetime64[us]").item().replace(tzinfo=UTC).astimezone(zone)
        date = np.datetime64(local.replace(tzinfo=None), "us")
    day = date.astype("datetime64[D]")
    return str(day) if date == day else str(date.astype("datetime64[s]")).replace("T", " ").removesuffix(":00")


def moments_as_passed(moments: Floats, like: Times) -> Any:
    """Other moments (m,) in the form in which the times of a series were passed and `read_moments` reads them."""
    return with_zone(like._replace(moments=moments).as_passed, like.zone)


def with_zone(times: NDArray[Any], zone: tzinfo | None) -> Any:
    """Times `as_passed` in the form that `read_moments` reads: dates that have a time zone as Python dates in UTC."""
    return times if zone is None else [date.replace(tzinfo=UTC) for date in times.tolist()]


def read_dates(times: ArrayLike) -> tuple[NDArray[Any], tzinfo | None]:
    """Dates as datetime64, in UTC if they have a time zone, and the zone."""
    array, zone = _time_array(times)
    if array.dtype.kind != "M":
        raise KindError("dates", got=f"dtype {array.dtype}", fix="pass numpy.datetime64 or datetime")
    return array, zone


def check_zone(zone: tzinfo | None, series_zone: tzinfo | None) -> None:
    """Raise KindError if only the times or only the series have a time zone."""
    if zone is None and series_zone is not None:
        fix = f'add it, as in 2024-12-31T12:00+00:00 or pandas.Timestamp("2024-12-31 12:00", tz="{series_zone}")'
        raise KindError("times with a time zone, as the series has", got="times without one", fix=fix)
    if zone is not None and series_zone is None:
        fix = "pass them without a time zone, as the series has them"
        raise KindError("times without a time zone, as those of the series", got="times with one", fix=fix)


def parse_texts(texts: Sequence[str]) -> tuple[NDArray[Any], tzinfo | None]:
    """Dates in ISO 8601 as datetime64 (n,), in UTC and with their zone if they end in Z or in a distance from UTC, such as +02:00.

    >>> parse_texts(["2024-06-02T12:00-04:00"])
    (array(['2024-06-02T16:00:00.000000'], dtype='datetime64[us]'), datetime.timezone.utc)
    """
    zoned = [_ZONED_TEXT.fullmatch(text) is not None for text in texts]
    try:
        if not any(zoned):
            return np.array(texts, dtype="datetime64[us]"), None
        _refuse_mixed(zoned, texts)
        dates = [datetime.fromisoformat(text) for text in texts]
        plain = [date.astimezone(UTC).replace(tzinfo=None).isoformat() for date in dates]
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        fix = "write dates as 2024-12-31, or convert them first, as with pandas.to_datetime"
        raise KindError("times as numbers or dates", got=f"text: {error}", fix=fix) from error
    return np.array(plain, dtype="datetime64[us]"), recorded_zone(dates)


def _time_array(times: Any) -> tuple[NDArray[Any], tzinfo | None]:
    """Times as an array, dates of Python, NumPy, pandas or polars as datetime64, in UTC if they have a time zone, and the zone."""
    kind: Any = getattr(times, "dtype", None)
    if str(kind).startswith("period["):  # a period of pandas counts as the date at which it begins
        times = getattr(times, "dt", times).to_timestamp()
        kind = times.dtype
    dated = getattr(kind, "kind", "") == "M" and not isinstance(kind, np.dtype)
    array = np.asarray(times, dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]" if dated else None)
    if array.dtype == object and array.size and hasattr(array.flat[0], "to_timestamp"):
        return np.array([one.to_timestamp() for one in array.flat], dtype="datetime64[us]").reshape(array.shape), None
    if _all_are(date, array):
        dates, zone = _date_array(list(array.flat))
        return dates.reshape(array.shape), zone
    if _is_text(array):
        dates, zone = parse_texts([str(text) for text in array.flat])
        return dates.reshape(array.shape), zone
    if _all_are(timedelta, array):
        return array.astype("timedelta64[us]"), None
    return array, _dtype_zone(kind)


def _is_text(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "UT" or _all_are(str, array)


def _all_are(kind: type, array: NDArray[Any]) -> bool:
    return array.dtype == object and array.size > 0 and all(isinstance(one, kind) for one in array.flat)


def _date_array(dates: list[Any]) -> tuple[NDArray[Any], tzinfo | None]:
    """Python dates as datetime64, in UTC if they have a time zone, and their zone."""
    known = [one for one in dates if one == one]  # NaT, which has no zone, is refused later
    zones = [getattr(one, "tzinfo", None) for one in known]
    _refuse_mixed([zone is not None for zone in zones], known)
    zone = zones[0] if zones else None
    if len(set(zones)) > 1:  # fixed distances from UTC, as from datetime.fromisoformat
        zone = recorded_zone(known)
    plain = [one if zone is None else one.astimezone(UTC).replace(tzinfo=None) for one in known]
    array = np.full(len(dates), np.datetime64("NaT", "us"), dtype="datetime64[us]")
    array[[one == one for one in dates]] = np.array(plain, dtype="datetime64[us]")
    return array, zone


def _refuse_mixed(zoned: list[bool], times: Sequence[Any]) -> None:
    if any(zoned) and not all(zoned):
        got = f"both, first {str(times[zoned.index(not zoned[0])])!r}"
        raise InputError("times all with a time zone, or all without", got=got, fix="add or remove time zones")


def _dtype_zone(kind: Any) -> tzinfo | None:
    """The time zone of a dtype of pandas, pyarrow or polars."""
    arrow = getattr(kind, "pyarrow_dtype", None)
    zone = getattr(kind, "tz", None) or getattr(arrow, "tz", None) or getattr(kind, "time_zone", None)
    if not isinstance(zone, str):
        return zone
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError):  # for example "+02:00", which names no zone
        return UTC


def _numbers(array: NDArray[Any]) -> Floats:
    if array.dtype.kind not in "iuf":
        fix = "pass floats, or dates as numpy.datetime64"
        raise KindError("times as numbers or dates", got=f"dtype {array.dtype}", fix=fix)
    moments = array.astype(np.float64)
    if not np.isfinite(moments).all():
        at = int(np.flatnonzero(~np.isfinite(moments))[0])
        fix = "drop that point, or set its time"
        raise InputError("a finite time for every point", got=f"{moments[at]} at [{at}]", fix=fix)
    return moments


def _seconds(dates: NDArray[Any], origin: Any) -> Floats:
    _refuse_not_a_time(dates)
    seconds = (dates.astype("datetime64[s]") - origin.astype("datetime64[s]")).astype(np.float64)
    if np.abs(seconds).max(initial=0.0) > CENTURIES:
        return seconds
    # Subtracting before dividing keeps nanoseconds that a float of seconds since 1970 would round away.
    return (dates - origin).astype("timedelta64[ns]") / np.timedelta64(1, "s")


def _durations(lengths: NDArray[Any]) -> Floats:
    _refuse_not_a_time(lengths)
    return lengths / np.timedelta64(1, "s")


def _refuse_not_a_time(array: NDArray[Any]) -> None:
    if np.isnat(array).any():
        at = int(np.flatnonzero(np.isnat(array))[0])
        raise InputError("a time for every point", got=f"NaT at [{at}]", fix="drop that point, or set its time")
