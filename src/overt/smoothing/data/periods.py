"""Periods, spans, bandwidths and windows: numbers in the unit of the times, or lengths of time such as "7D"."""

import re
from collections.abc import Sequence
from datetime import timedelta
from numbers import Real
from typing import Literal

import numpy as np

from overt.errors import InputError
from overt.smoothing.data.series import Series
from overt.smoothing.data.times import Times

Length = float | str | timedelta | np.timedelta64
Periods = Length | Sequence[Length] | Literal["auto"]

_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 365.2425 * 86400.0}
_LENGTH = re.compile(r"\s*(\d+\.?\d*|\.\d+)?\s*([A-Za-z]+)\s*")
_PERIOD = 'a period as a number above 0, a length of time such as "7D" or "12h", a list of them, "auto" or None'
_SPAN = 'a span as a number above 0, a length of time such as "7D" or "12h", or None'
_BANDWIDTH = 'a bandwidth above 0, a length of time such as "7D" or "12h", or "auto"'
_WINDOW = 'a window of 0 or more, a distance in time, or a length of time such as "7D" or "12h"'
# MOST_CYCLES: most cycles of a period: at uneven times it may be shorter than the steps, and every cycle takes memory.
MOST_CYCLES = 2**18
_SIZES = (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


def check_period(period: object) -> None:
    """Raise InputError unless `period` has the form of one or more periods."""
    if period is None or (isinstance(period, str) and period == "auto"):
        return
    parts = listed(period)
    if not parts:
        raise InputError(_PERIOD, got="an empty list", fix="pass None for a series without a season")
    for part in parts:
        _length(part)
    if len({_length(part) for part in parts}) < len(parts):
        raise InputError("periods that differ", got=repr(period), fix="pass each once")


def listed(period: object) -> list[object]:
    """The periods as a list."""
    if isinstance(period, list | tuple) or (isinstance(period, np.ndarray) and period.ndim):
        return list(period)
    return [period]


def read_periods(period: object, times: Times, series: Series) -> tuple[float, ...]:
    """The periods in the unit of the times, ascending; a period is at least two of the shortest steps and at most half the series."""
    span, numbers = (series.times[-1] - series.times[0] + 1) * series.step, []
    steps = np.diff(series.times)
    shortest, most = float(steps[steps > 0].min(initial=1.0)) * series.step, max(steps.size, MOST_CYCLES)
    for part in listed(period):
        seconds = _checked_length(times, part, "period")
        if seconds > span / 2 * (1 + 1e-9):
            got = f"{part!r} for a series that is {length_in_words(span, times.unit, 4)} long"
            raise InputError("a period of at most half the series", got=got, fix="pass a shorter period, or a longer series")
        fix = _in_seconds(part, times) or "pass a longer period"
        if seconds < 2 * shortest * (1 - 1e-9):
            got = f"{part!r} for points {length_in_words(series.step, times.unit, 4)} apart"
            raise InputError("a period of at least two steps between points", got=got, fix=fix)
        if span / seconds > most:
            raise InputError(f"a period of at most {most:,} cycles", got=f"{part!r}, with {span / seconds:,.0f}", fix=fix)
        numbers.append(seconds)
    return tuple(sorted(numbers))


def check_span(span: object) -> None:
    """Raise InputError unless `span` has the form of one length, or is None."""
    if span is not None:
        _length(span, _SPAN)


def read_span(span: object, times: Times) -> float:
    """A span in the unit of the times, at least the typical step between them."""
    length = _checked_length(times, span, "span")
    steps = np.diff(np.sort(times.moments))
    steps = steps[steps > 0]
    step = float(np.median(steps)) if steps.size else 0.0
    if length < step * (1 - 1e-9):
        got = f"{span!r} for points {length_in_words(step, times.unit, 4)} apart"
        fix = _in_seconds(span, times) or "pass a longer span"
        raise InputError("a span of at least one step between points", got=got, fix=fix)
    return length


def check_bandwidth(bandwidth: object) -> None:
    """Raise InputError unless a time bandwidth has the form of one length."""
    if is_length(bandwidth):
        _length(bandwidth, _BANDWIDTH)
    elif not is_number(bandwidth, above=0.0):
        raise InputError("a bandwidth above 0", got=repr(bandwidth), fix='pass a number above 0, or "auto"')


def check_window(window: object) -> None:
    """Raise InputError unless `window` has the form of one distance in time, or is None."""
    if is_length(window):
        _length(window, _WINDOW)
    elif window is not None and not is_number(window, minimum=0.0):
        raise InputError("a window of 0 or more, a distance in time", got=repr(window), fix="pass such a number, or None")


def read_distance(distance: object, times: Times, what: str) -> float:
    """A checked time bandwidth or window in the unit of the times."""
    return _checked_length(times, distance, what) if is_length(distance) else float(distance)  # type: ignore[arg-type]


def length_in_seconds(part: object) -> float:
    """A length of time, or a number of seconds, in seconds."""
    return _length(part, _SPAN)[0]


def is_length(part: object) -> bool:
    """Whether `part` is a length of time or a text that may be one."""
    return isinstance(part, str | timedelta | np.timedelta64)


def is_number(value: object, *, minimum: float = -np.inf, above: float = -np.inf) -> bool:
    """Whether `value` is a finite real number of at least `minimum` and above `above`; True and False are not numbers."""
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, Real):
        return False
    number = float(value)
    return bool(np.isfinite(number) and number >= minimum and number > above)


def length_in_words(length: float, unit: str, digits: int = 3) -> str:
    """A length of time with its unit, seconds in the largest unit that fits.

    >>> length_in_words(5400.0, "seconds"), length_in_words(86400.0, "seconds"), length_in_words(3.0, "steps")
    ('1.5 hours', '1 day', '3 steps')
    """
    if unit == "seconds":
        unit, size = next(((name, size) for name, size in _SIZES if length >= size), ("seconds", 1.0))
        length /= size
    number = f"{length:.{digits}g}"
    return f"{number} {unit.removesuffix('s') if number == '1' else unit}".rstrip()


def length_as_option(length: float, unit: str) -> str:
    """A length of time in the form of an option: a text for seconds, else a number.

    >>> length_as_option(604800.0, "seconds"), length_as_option(5400.0, "seconds"), length_as_option(12.0, "steps")
    ('"7D"', '"1.5h"', '12')
    """
    if unit != "seconds":
        return f"{length:.6g}"
    letter, size = next((pair for pair in (("D", 86400.0), ("h", 3600.0), ("min", 60.0)) if length >= pair[1]), ("s", 1.0))
    return f'"{length / size:.7g}{letter}"'


def _in_seconds(part: object, times: Times) -> str:
    """The fix for a plain number if times are dates; "" for other lengths and times."""
    if times.unit != "seconds" or is_length(part):
        return ""
    return f'a number is in seconds here: write "{part:g}D", "{part:g}h" …'


def _checked_length(times: Times, part: object, what: str) -> float:
    length, is_time = _length(part)
    if is_time and times.unit != "seconds":
        got = f"{part!r} with times that are {'steps' if times.unit == 'steps' else 'numbers'}"
        fix = f"pass the {what} as a number"
        raise InputError(f"dates as times with a {what} that is a length of time", got=got, fix=fix)
    return length


def _length(part: object, expected: str = _PERIOD) -> tuple[float, bool]:
    """A length as a number, and whether it was a length of time, which is converted to seconds."""
    if isinstance(part, timedelta | np.timedelta64):
        seconds = float(np.timedelta64(part) / np.timedelta64(1, "ns")) / 1e9
        return _positive(seconds, part, expected), True
    if isinstance(part, str):
        match = _LENGTH.fullmatch(part)
        unit = match and _SECONDS.get(match[2].lower() if match[2] != "M" else "")
        if not match or not unit:
            fix = "write a number and one of s, min, h, D, W, Y (a mean year), as in 12h"
            raise InputError(expected, got=repr(part), fix=fix)
        return _positive(float(match[1] or 1) * unit, part, expected), True
    if isinstance(part, bool | np.bool_) or not isinstance(part, int | float | np.integer | np.floating):
        raise InputError(expected, got=repr(part), fix="pass one of these")
    return _positive(float(part), part, expected), False


def _positive(number: float, part: object, expected: str) -> float:
    if not np.isfinite(number) or number <= 0:
        raise InputError(expected, got=repr(part), fix="pass a finite length above 0")
    return number
