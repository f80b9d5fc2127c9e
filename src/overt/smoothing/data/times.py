"""Times as numbers: plain ones as they are, dates and lengths of time in seconds."""

from datetime import UTC, date, timedelta
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from overt.errors import InputError, KindError

Floats = NDArray[np.float64]

# Seconds; 2⁶³ nanoseconds are slightly more.
CENTURIES = 9e9
_KINDS = {"M": "dates", "m": "lengths of time", "f": "numbers", "i": "numbers", "u": "numbers"}


class Times(NamedTuple):
    """Times as numbers and their unit: "steps" where none are passed, "seconds" for dates and lengths of time, "" for plain numbers."""

    moments: Floats  # (n,)
    unit: str
    origin: np.datetime64 | None = None  # the date of second 0; None unless they were dates

    @property
    def kind(self) -> str:
        """What they were: "dates", "lengths of time", or "numbers"."""
        if self.origin is not None:
            return "dates"
        return "lengths of time" if self.unit == "seconds" else "numbers"

    @property
    def as_passed(self) -> NDArray[Any]:
        """The times as dates or lengths of time where they were such, to the microsecond, else as numbers (n,)."""
        if self.unit != "seconds":
            return self.moments
        lengths = np.rint(self.moments * 1e6).astype("timedelta64[us]")
        return lengths if self.origin is None else self.origin.astype("datetime64[us]") + lengths


def read_times(times: ArrayLike | None, length: int) -> Times:
    """Read times, one for each of `length` points; without times, points are counted."""
    if times is None:
        return Times(np.arange(length, dtype=np.float64), "steps")
    array = _array_of(times)
    if array.shape != (length,):
        got = f"times of shape {array.shape} for {length} points"
        raise InputError("one time for each point", got=got, fix="pass as many times as the series has points")
    if array.dtype.kind == "M":
        origin = array.min()
        return Times(_seconds(array, origin), "seconds", origin)
    if array.dtype.kind == "m":
        return Times(_of_lengths(array), "seconds")
    return Times(_numbers(array), "")


def read_moments(times: ArrayLike, like: Times) -> Floats:
    """Other times of the same kind as those of a series, as numbers from the same origin (m,)."""
    array = np.atleast_1d(_array_of(times))
    if array.ndim != 1:
        raise InputError("times of shape (m,)", got=f"shape {array.shape}", fix="pass a flat sequence")
    kind = _KINDS.get(array.dtype.kind, f"dtype {array.dtype}")
    if kind != like.kind:
        raise KindError(f"times that are {like.kind}, as those of the series", got=kind, fix=f"pass {like.kind}")
    if like.origin is not None:
        return _seconds(array, like.origin)
    return _of_lengths(array) if like.unit == "seconds" else _numbers(array)


def _array_of(times: Any) -> NDArray[Any]:
    """Times as an array; dates of Python, NumPy, pandas or polars as datetime64, in UTC where they have a time zone."""
    kind: Any = getattr(times, "dtype", None)
    if str(kind).startswith("period["):  # pandas; each begins at a date
        times = getattr(times, "dt", times).to_timestamp()
        kind = times.dtype
    zoned = getattr(kind, "kind", "") == "M" and not isinstance(kind, np.dtype)
    array = np.asarray(times, dtype=f"datetime64[{getattr(kind, 'unit', 'ns')}]" if zoned else None)
    if array.dtype == object and array.size and hasattr(array.flat[0], "to_timestamp"):
        return np.array([one.to_timestamp() for one in array.flat], dtype="datetime64[us]").reshape(array.shape)
    if array.dtype == object and array.size and all(isinstance(one, date) for one in array.flat):
        plain = [one.astimezone(UTC).replace(tzinfo=None) if getattr(one, "tzinfo", None) else one for one in array.flat]
        return np.array(plain, dtype="datetime64[us]").reshape(array.shape)
    if array.dtype.kind in "UT" or (array.dtype == object and array.size and all(isinstance(one, str) for one in array.flat)):
        try:
            return array.astype("datetime64[us]")
        except ValueError as error:
            fix = "write dates as 2024-12-31, or convert them first, as with pandas.to_datetime"
            raise KindError("times as numbers or dates", got=f"text: {error}", fix=fix) from error
    if array.dtype == object and array.size and all(isinstance(one, timedelta) for one in array.flat):
        return array.astype("timedelta64[us]")
    return array


def _numbers(array: NDArray[Any]) -> Floats:
    if array.dtype.kind not in "iuf":
        fix = "pass floats, or dates as numpy.datetime64"
        raise KindError("times as numbers or dates", got=f"dtype {array.dtype}", fix=fix)
    moments = array.astype(np.float64)
    if not np.isfinite(moments).all():
        at = int(np.flatnonzero(~np.isfinite(moments))[0])
        raise InputError(
            "a finite time for every point", got=f"{moments[at]} at [{at}]", fix="drop that point, or set its time"
        )
    return moments


def _seconds(dates: NDArray[Any], origin: Any) -> Floats:
    _refuse_not_a_time(dates)
    seconds = (dates.astype("datetime64[s]") - origin.astype("datetime64[s]")).astype(np.float64)
    if np.abs(seconds).max(initial=0.0) > CENTURIES:
        return seconds
    # Subtracting before dividing keeps nanoseconds that a float of seconds since 1970 would round away.
    return (dates - origin).astype("timedelta64[ns]") / np.timedelta64(1, "s")


def _of_lengths(lengths: NDArray[Any]) -> Floats:
    _refuse_not_a_time(lengths)
    return lengths / np.timedelta64(1, "s")


def _refuse_not_a_time(array: NDArray[Any]) -> None:
    if np.isnat(array).any():
        at = int(np.flatnonzero(np.isnat(array))[0])
        raise InputError("a time for every point", got=f"NaT at [{at}]", fix="drop that point, or set its time")
