"""Periods of seasons, and spans: numbers in the unit of the times, or lengths of time such as "7D"."""

import re
from collections.abc import Sequence
from datetime import timedelta
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


def check_period(period: object) -> None:
    """Raise unless `period` has the form of one or more periods."""
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
    """The periods one by one."""
    if isinstance(period, list | tuple) or (isinstance(period, np.ndarray) and period.ndim):
        return list(period)
    return [period]


def read_periods(period: object, times: Times, series: Series) -> tuple[float, ...]:
    """The periods in the unit of the times, ascending, each at least two steps and at most half the series long."""
    span, numbers = (series.times[-1] - series.times[0] + 1) * series.step, []
    for part in listed(period):
        seconds = _in_unit_of(times, part, "period", _PERIOD)
        if seconds > span / 2 * (1 + 1e-9):
            got = f"{part!r} for a series that is {_words(span, times)} long"
            raise InputError("a period of at most half the series", got=got, fix="pass a shorter period, or a longer series")
        if seconds < 2 * series.step * (1 - 1e-9):
            got = f"{part!r} for points {_words(series.step, times)} apart"
            raise InputError("a period of at least two steps between points", got=got, fix="pass a longer period")
        numbers.append(seconds)
    return tuple(sorted(numbers))


def check_span(span: object) -> None:
    """Raise unless `span` has the form of one length, or is None."""
    if span is not None:
        _length(span, _SPAN)


def read_span(span: object, times: Times) -> float:
    """A span in the unit of the times, at least the typical step between them."""
    length = _in_unit_of(times, span, "span", _SPAN)
    steps = np.diff(np.sort(times.moments))
    steps = steps[steps > 0]
    step = float(np.median(steps)) if steps.size else 0.0
    if length < step * (1 - 1e-9):
        got = f"{span!r} for points {_words(step, times)} apart"
        raise InputError("a span of at least one step between points", got=got, fix="pass a longer span")
    return length


def _in_unit_of(times: Times, part: object, what: str, expected: str) -> float:
    length, is_time = _length(part, expected)
    if is_time and times.unit != "seconds":
        got = f"{part!r} with times that are {'steps' if times.unit == 'steps' else 'numbers'}"
        fix = f"pass the {what} as a number"
        raise InputError(f"dates as times with a {what} that is a length of time", got=got, fix=fix)
    return length


def _words(length: float, times: Times) -> str:
    if times.unit != "seconds":
        return f"{length:g} {times.unit}".strip()
    size, name = next(
        ((size, name) for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)) if length >= size),
        (1.0, "seconds"),
    )
    return f"{length / size:.4g} {name}"


def _length(part: object, expected: str = _PERIOD) -> tuple[float, bool]:
    """A length as a number, and whether it was a length of time, which is in seconds."""
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
