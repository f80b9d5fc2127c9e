"""Parse text cells as dates and times of day in the notations of different countries, recognised from all cells or given by the caller.

The day comes first if some cell allows nothing else, such as 31/12/2024, or if dots separate. Ambiguous dates are not
guessed: an error asks. A column has one form; pandas and polars try one form for each cell, or need it as an argument.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, tzinfo
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError
from overt.smoothing.data.zones import recorded_zone

_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?[ ]*([AaPp])?(?:\.?[Mm]\.?)?"
_TIME = rf"(?:(?:,?[ ]+|T){_CLOCK})?"
_MONTH = r"([^\W\d_]{3,10})\.?"
_WEEKDAY = r"(?:[^\W\d_]{2,10}\.?,?[ ]+)?"
_YEAR_FIRST = re.compile(r"(\d{4})([-/.]?)(\d{1,2})(?:\2(\d{1,2}))?" + _TIME)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})" + _TIME)
_DAY_AND_NAME = re.compile(_WEEKDAY + r"(\d{1,2})\.?([-/. ]?)[ ]?" + _MONTH + r"(?:\2|[ ,]+)(\d{4}|\d{2})" + _TIME)
_NAME_AND_DAY = re.compile(_WEEKDAY + _MONTH + r"[ ](\d{1,2})(?:st|nd|rd|th)?,?[ ]+(\d{4})" + _TIME)
_NAME_AND_YEAR = re.compile(_MONTH + r"[-/ ,]+(\d{4})")
_YEAR_AND_NAME = re.compile(r"(\d{4})([-/ ]?)" + _MONTH + r"(?:\2(\d{1,2})" + _TIME + ")?")
_PERIOD = re.compile(r"(\d{4})[-/ ]?([QqMmHhSsWw])(\d{1,2})|([Qq])([1-4])[-/ ]?(\d{4})|([1-4])[Qq][-/ ]?(\d{4})")
_OF_DAY = re.compile(r"(\d{1,3}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?[ ]*(?:([AaPp])\.?[Mm]\.?)?")
_COMPACT = re.compile(r"(?:1[6-9]|2[0-2])\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
# _MONTHS: the first letters of months in English, German, French, Spanish and Italian.
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("jan ene jän gen", "feb fév fev", "mar mär mrz", "apr avr abr", "may mai mag", "jun juin giu", "jul juil lug"),
            *("aug aoû ago aou", "sep set", "oct okt ott", "nov", "dec dez déc dic"),
        ),
        start=1,
    )
    for name in names.split()
}
_MONTHS_IN_PERIOD = {"Q": 3, "M": 1, "H": 6, "S": 6}
_SAMPLE = 50  # cells from which a column's form is recognised
_OF_OFFSET = 6  # characters of an offset from UTC, such as +02:00
_CENTURY = 69  # two-digit years from here on are 19.., earlier ones 20.., as in POSIX
# SERIALS: a spreadsheet's dates, in days since 1899-12-30; the user is asked about numbers from 1970 to 2099.
SERIALS = (25569.0, 73050.0)
_DAY = 86_400_000_000  # microseconds


class DateFormat(NamedTuple):
    """A column of cells, parsed as dates or times of day."""

    values: NDArray[Any]  # (n,) datetime64[us], in UTC if there are time zones, or timedelta64[us]; NaT if unreadable
    unreadable: tuple[int, ...]  # rows with unreadable cells, ascending


Moment = tuple[str, int]  # a day in ISO 8601, and microseconds after its midnight
Parser = Callable[[str], Moment | None]


def is_compact_date(cells: Sequence[str]) -> bool:
    """Whether all cells are dates of eight digits, such as 20241231, and at least two differ."""
    return len(set(cells)) > 1 and all(_COMPACT.fullmatch(cell) for cell in cells)


def read_dates(cells: Sequence[str], date_format: str | None = None) -> DateFormat:
    """Parse cells as dates in the form of most cells, or in `date_format` (as in datetime.strptime).

    >>> read_dates(["31.12.2024", "01.01.2025 14:05"]).values.astype("datetime64[m]")
    array(['2024-12-31T00:00', '2025-01-01T14:05'], dtype='datetime64[m]')
    >>> read_dates(["2024Q1", "2024Q2", "soon"]).unreadable
    (2,)
    """
    if date_format is not None:
        return _by_library(cells, lambda cell: datetime.strptime(cell, date_format))
    sample = cells[:_SAMPLE]
    forms = [_iso, *_forms(cells)]
    counts = [sum(form(cell) is not None for cell in sample) for form in forms]
    best = DateFormat(np.full(len(cells), np.datetime64("NaT", "us")), tuple(range(len(cells))))
    for index in sorted(range(len(forms)), key=lambda index: -counts[index]):
        if counts[index] and best.unreadable:
            dates = _by_form(cells, forms[index]) if index else _by_library(cells, datetime.fromisoformat)
            best = min(best, dates, key=lambda dates: len(dates.unreadable))
    return best


def read_clocks(cells: Sequence[str]) -> DateFormat:
    """Parse cells as times of day (timedelta64[us]), such as 14:05, 14:05:30 or 2:05 pm.

    >>> read_clocks(["14:05", "2:05 pm", "25-05"]).values.astype("timedelta64[m]")
    array([  845,   845, 'NaT'], dtype='timedelta64[m]')
    """
    values, unreadable = np.full(len(cells), np.timedelta64("NaT", "us")), []
    for row, cell in enumerate(cells):
        match = _OF_DAY.fullmatch(cell)
        length = None if match is None else _after_midnight(*match.groups())
        if length is None:
            unreadable.append(row)
        else:
            values[row] = np.timedelta64(length, "us")
    return DateFormat(values, tuple(unreadable))


def past_midnight(clocks: NDArray[Any]) -> NDArray[Any]:
    """Convert times of day, in row order, to ascending durations: a drop by more than half a day is midnight.

    >>> past_midnight(np.array([1430, 10, 20], dtype="timedelta64[m]"))
    array([1430, 1450, 1460], dtype='timedelta64[m]')
    """
    known = np.flatnonzero(~np.isnat(clocks))
    days = np.cumsum(np.diff(clocks[known], prepend=clocks[known][:1]) < -np.timedelta64(12, "h"))
    lengths = clocks.copy()
    lengths[known] += days * np.timedelta64(24, "h").astype(clocks.dtype)
    return lengths


def is_date(cell: str) -> bool:
    """Whether a cell is a date or a time of day in one of the supported forms.

    >>> is_date("2024-01-31"), is_date("01/02/2024"), is_date("14:05"), is_date("Oslo"), is_date("20241231")
    (True, True, True, False, False)
    """
    if cell.isdigit():
        return False
    return any(
        form(cell) for form in (_iso, _form(_YEAR_LAST, (4, 3, 1), 4), _form(_YEAR_LAST, (4, 1, 3), 4), *_PLAIN_FORMS)
    ) or bool(_OF_DAY.fullmatch(cell))


def cell_zone(cells: Sequence[str], date_format: str | None = None) -> tzinfo | None:
    """The time zone of dates with an offset from UTC; None without an offset.

    >>> print(cell_zone(["2024-12-31T23:59Z"]), cell_zone(["2024-12-31"]), cell_zone(["3.5"]))
    UTC None None
    """
    first = next(filter(None, cells), "")
    moments = [_read_date(first, date_format)]
    if moments[0] is None or moments[0].tzinfo is None:
        return None
    if len({cell[-_OF_OFFSET:] for cell in cells if cell and not cell.endswith("Z")}) > 1:
        moments = [_read_date(cell, date_format) for cell in cells]
    return recorded_zone([moment for moment in moments if moment is not None])


def _read_date(cell: str, date_format: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(cell) if date_format is None else datetime.strptime(cell, date_format)
    except ValueError:
        return None


def from_serials(numbers: NDArray[np.float64]) -> NDArray[Any]:
    """Convert days since 1899-12-30, the dates of spreadsheets, to datetime64[us].

    >>> from_serials(np.array([45292.5]))
    array(['2024-01-01T12:00:00.000000'], dtype='datetime64[us]')
    """
    milliseconds = np.rint(numbers * (_DAY / 1000)).astype("timedelta64[ms]")
    return (np.datetime64("1899-12-30") + milliseconds).astype("datetime64[us]")


def _by_library(cells: Sequence[str], parse: Callable[[str], datetime]) -> DateFormat:
    moments: dict[int, datetime] = {}
    for row, cell in enumerate(cells):
        try:
            moments[row] = parse(cell)
        except ValueError:
            continue
    zoned = {row: moment.tzinfo is not None for row, moment in moments.items()}
    if len(set(zoned.values())) > 1:
        first = next(iter(zoned.values()))
        other = next(row for row, zone in zoned.items() if zone != first)
        got = f"both, first {cells[other]!r}"
        raise InputError("times all with a time zone, or all without", got=got, fix="add or remove time zones")
    plain = [moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment for moment in moments.values()]
    # Much faster than passing date objects to NumPy.
    return _dates(len(cells), list(moments), np.array([moment.isoformat() for moment in plain], dtype="datetime64[us]"))


def _by_form(cells: Sequence[str], form: Parser) -> DateFormat:
    moments = {row: moment for row, cell in enumerate(cells) if (moment := form(cell)) is not None}
    days = np.array([day for day, _ in moments.values()], dtype="datetime64[D]")
    lengths = np.array([length for _, length in moments.values()], dtype="timedelta64[us]")
    return _dates(len(cells), list(moments), days + lengths)


def _dates(count: int, rows: list[int], moments: NDArray[Any]) -> DateFormat:
    values = np.full(count, np.datetime64("NaT", "us"))
    values[rows] = moments
    return DateFormat(values, tuple(np.flatnonzero(np.isnat(values)).tolist()))


def _forms(cells: Sequence[str]) -> list[Parser]:
    """The possible forms of some cell; the cells decide whether the day or the month comes first."""
    sample = [cell for cell in cells[:_SAMPLE] if _YEAR_LAST.fullmatch(cell)]
    return [_form(_YEAR_LAST, _order(cells), 4), *_PLAIN_FORMS] if sample else list(_PLAIN_FORMS)


def _order(cells: Sequence[str]) -> tuple[int, int, int]:
    """The groups of year, month and day in `_YEAR_LAST`: the one of the first two that exceeds 12 is the day."""
    matches = [match for cell in cells if (match := _YEAR_LAST.fullmatch(cell))]
    day_first = any(int(match[1]) > 12 for match in matches) or matches[0][2] == "."
    month_first = any(int(match[3]) > 12 for match in matches)
    if day_first or month_first:
        return (4, 3, 1) if day_first else (4, 1, 3)
    mark = matches[0][2]
    fix = f"pass --date-format %d{mark}%m{mark}%Y for a day first, or --date-format %m{mark}%d{mark}%Y for a month first"
    raise InputError("dates of which one has a day above 12", got=f"{matches[0][0]!r} and others that have none", fix=fix)


def _form(pattern: re.Pattern[str], groups: tuple[int, int, int], time: int) -> Parser:
    """The parser of a pattern: its groups of year, month and day (0 for none), and the number of groups before the time."""
    years, months, days = groups

    def parse(cell: str) -> Moment | None:
        match = pattern.fullmatch(cell)
        if match is None:
            return None
        return _moment(_year(match[years]), _month(match[months]), (days and match[days]) or "1", *match.groups()[time:])

    return parse


def _iso(cell: str) -> Moment | None:
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        return None
    return moment.date().isoformat(), 0  # only its existence matters


def _period(cell: str) -> Moment | None:
    """The first day of a quarter, month, half-year or ISO 8601 week, such as 2024Q1, 2024M03, 2024H1, 2024-W05."""
    match = _PERIOD.fullmatch(cell)
    if match is None:
        return None
    year, kind, number = match[1] or match[6] or match[8], (match[2] or "Q").upper(), match[3] or match[5] or match[7]
    if kind == "W":
        try:
            return date.fromisocalendar(int(year), int(number), 1).isoformat(), 0
        except ValueError:
            return None
    return _moment(year, str((int(number) - 1) * _MONTHS_IN_PERIOD[kind] + 1), "1")


_PLAIN_FORMS: tuple[Parser, ...] = (
    _form(_YEAR_FIRST, (1, 3, 4), 4),
    _form(_DAY_AND_NAME, (4, 3, 1), 4),
    _form(_NAME_AND_DAY, (3, 1, 2), 3),
    _form(_NAME_AND_YEAR, (2, 1, 0), 2),
    _form(_YEAR_AND_NAME, (1, 3, 4), 4),
    _period,
)


def _year(digits: str) -> str:
    """A year of four digits; a cell may have only the last two."""
    return digits if len(digits) == 4 else str(int(digits) + (1900 if int(digits) >= _CENTURY else 2000))


def _month(name: str) -> str:
    """The number of a month, from its name or number."""
    return name if name.isdigit() else str(_MONTHS.get(name.lower()[:3]) or _MONTHS.get(name.lower()[:4], 0))


def _moment(
    year: str,
    month: str,
    day: str,
    hour: str | None = None,
    minute: str = "0",
    second: str | None = None,
    half: str | None = None,
) -> Moment | None:
    """A day and the time after its midnight; None if it does not exist. 24:00 is the end of the day."""
    try:
        day = date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None
    length = 0 if hour is None else _after_midnight(hour, minute, second, half)
    return None if length is None or length > _DAY else (day, length)


def _after_midnight(hour: str, minute: str, second: str | None, half: str | None) -> int | None:
    hours, seconds = int(hour), float((second or "0").replace(",", "."))
    if int(minute) > 59 or seconds >= 60 or (half and not 1 <= hours <= 12):
        return None
    if half:
        hours = hours % 12 + 12 * (half in "pP")
    return (hours * 60 + int(minute)) * 60_000_000 + round(seconds * 1e6)
