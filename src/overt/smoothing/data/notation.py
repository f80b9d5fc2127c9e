"""Cells of text as numbers and dates, as they are written in different countries: recognised from all cells, or as the caller says.

A decimal comma is one where some cell can be nothing else, as 0,5 or 1.234,5. A day comes first where some cell can be nothing
else, as 31/12/2024, or where dots separate. What could be read in two ways is not guessed: an error asks.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError
from overt.smoothing.data.series import Floats

MISSING = {"", "na", "n/a", "nan", "null", "none"}

_SPACES = "[ \u00a0\u202f'\u2019]"  # between thousands, in any country


def _pattern(decimal: str, other: str) -> re.Pattern[str]:
    whole = rf"(?:\d+|\d{{1,3}}(?:(?:{_SPACES}|{other})\d{{3}})+)?"
    return re.compile(rf"[+-]?{whole}(?:{decimal}\d*)?(?:[eE][+-]?\d+)?")


_NUMBERS = {".": _pattern("[.]", ","), ",": _pattern(",", "[.]")}
_NUMERAL = re.compile(r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?|[+-]?[.,]\d+")
_TIME = r"(?:(?:,?[ ]+|T)(\d{1,2}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?[ ]*([AaPp])?(?:\.?[Mm]\.?)?)?"
_YEAR_FIRST = re.compile(r"(\d{4})([-/.]?)(\d{1,2})(?:\2(\d{1,2}))?" + _TIME)
_YEAR_LAST = re.compile(r"(\d{1,2})([-/.])(\d{1,2})\2(\d{4})" + _TIME)
_COMPACT = re.compile(r"(?:1[6-9]|2[0-2])\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")


@dataclass(frozen=True)
class Notation:
    """How a file writes its cells; None for what is to be recognised from them."""

    separator: str | None = None
    decimal: str | None = None  # "." or ","
    date_format: str | None = None  # as in datetime.strptime

    def __post_init__(self) -> None:
        if self.separator is not None and len(self.separator) != 1:
            raise InputError("one character between cells", got=repr(self.separator), fix=r"pass one, as ';', or tab")
        if self.decimal not in (None, ".", ","):
            raise InputError("a decimal point or comma", got=repr(self.decimal), fix="pass . or ,")


def find_decimal(cells: Iterable[str]) -> str | None:
    """The decimal mark that some of these cells show beyond doubt; None where none does.

    >>> find_decimal(["1.234", "0,5"]), find_decimal(["1,234", "1.5"]), find_decimal(["1,234"])
    (',', '.', None)
    """
    sure: dict[str, str] = {}
    for cell in cells:
        mark = mark_of(cell)
        if mark and mark not in sure:
            sure[mark] = cell
            if len(sure) == 2:
                got = f"{sure['.']!r} and {sure[',']!r}"
                raise InputError("one decimal mark in a file", got=got, fix="pass --decimal . or --decimal ,")
    return next(iter(sure), None)


def mark_of(cell: str) -> str | None:
    """The mark that is surely the decimal one in a cell, if there is one."""
    if not _NUMERAL.fullmatch(cell):
        return None
    last = max(cell.rfind("."), cell.rfind(","))
    if last < 0:
        return None
    mark, other = cell[last], "," if cell[last] == "." else "."
    if other in cell:
        return mark if _NUMBERS[mark].fullmatch(cell) else None
    if cell.count(mark) > 1:  # groups of thousands
        return other if _NUMBERS[other].fullmatch(cell) else None
    whole, _, fraction = re.split("[eE]", cell.lstrip("+-"))[0].partition(mark)
    return None if len(fraction) == 3 and 1 <= len(whole) <= 3 and whole != "0" else mark


def parse_number(cell: str, decimal: str) -> float | None:
    """The number of a cell; NaN for a missing one, None for what is no finite number.

    >>> parse_number("1.234,5", ","), parse_number("1 234.5", "."), parse_number("1,23", ".")
    (1234.5, 1234.5, None)
    """
    if cell.lower() in MISSING:
        return math.nan
    if not cell or not _NUMBERS[decimal].fullmatch(cell) or not any(character.isdigit() for character in cell):
        return None
    plain = re.sub(rf"{_SPACES}|{'[.]' if decimal == ',' else ','}", "", cell).replace(decimal, ".")
    number = float(plain)
    return number if math.isfinite(number) else None


def is_compact_date(cells: Sequence[str]) -> bool:
    """Whether all cells are dates of eight digits, as 20241231, and two of them differ."""
    return len(set(cells)) > 1 and all(_COMPACT.fullmatch(cell) for cell in cells)


def parse_dates(cells: Sequence[str], notation: Notation) -> NDArray[Any] | int:
    """Cells as datetime64 (in UTC where there are time zones), or the index of the first that is no date."""
    if notation.date_format is not None:
        return _each(cells, lambda cell: datetime.strptime(cell, notation.date_format or ""))
    iso = _each(cells, datetime.fromisoformat)
    if not isinstance(iso, int):
        return iso
    year_last = _YEAR_LAST.fullmatch(cells[0])
    return _by_pattern(cells, _YEAR_LAST, _order(cells)) if year_last else _by_pattern(cells, _YEAR_FIRST, (1, 3, 4))


def is_zoned(cell: str, notation: Notation) -> bool:
    """Whether a cell is a date with a time zone.

    >>> is_zoned("2024-12-31T23:59Z", Notation()), is_zoned("2024-12-31", Notation()), is_zoned("3.5", Notation())
    (True, False, False)
    """
    form = notation.date_format
    try:
        date = datetime.fromisoformat(cell) if form is None else datetime.strptime(cell, form)
    except ValueError:
        return False
    return date.tzinfo is not None


def reads_as_date(cell: object) -> bool:
    """Whether a cell is text that is a date in one of the forms that are read.

    >>> reads_as_date("31.12.2024"), reads_as_date("01/02/2024"), reads_as_date("Oslo"), reads_as_date("20241231")
    (True, True, False, False)
    """
    if not isinstance(cell, str) or cell.strip().isdigit():
        return False
    try:
        return not isinstance(parse_dates([cell.strip()], Notation()), int)
    except InputError:  # a day or a month first
        return True


def _each(cells: Sequence[str], parse: Any) -> NDArray[Any] | int:
    dates: list[datetime] = []
    for row, cell in enumerate(cells):
        try:
            dates.append(parse(cell))
        except ValueError:
            return row
    zoned = [date.tzinfo is not None for date in dates]
    if any(zoned) and not all(zoned):
        got = f"both, first {cells[zoned.index(not zoned[0])]!r}"
        raise InputError("times all with a time zone, or all without", got=got, fix="add or remove time zones")
    plain = [date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date for date in dates]
    # Much faster than passing NumPy the dates themselves.
    return np.array([date.isoformat() for date in plain], dtype="datetime64[us]")


def _order(cells: Sequence[str]) -> tuple[int, int, int]:
    """The groups of year, month and day of `_YEAR_LAST`: whichever of the first two exceeds 12 is the day."""
    matches = [match for cell in cells if (match := _YEAR_LAST.fullmatch(cell))]
    day_first = any(int(match[1]) > 12 for match in matches) or matches[0][2] == "."
    month_first = any(int(match[3]) > 12 for match in matches)
    if day_first or month_first:
        return (4, 3, 1) if day_first else (4, 1, 3)
    mark = matches[0][2]
    fix = f"pass --date-format %d{mark}%m{mark}%Y for a day first, or --date-format %m{mark}%d{mark}%Y for a month first"
    raise InputError("dates of which one has a day above 12", got=f"{cells[0]!r} and others that have none", fix=fix)


def _by_pattern(cells: Sequence[str], pattern: re.Pattern[str], order: tuple[int, int, int]) -> NDArray[Any] | int:
    """Dates by a pattern whose groups of year, month and day are these, followed by hour, minute, second and a or p."""
    texts = []
    for row, cell in enumerate(cells):
        match = pattern.fullmatch(cell)
        if match is None:
            return row
        year, month, day = (int(match[group] or 1) for group in order)
        hour, minute, second, half = match.groups()[4:]
        hours = int(hour or 0)
        if half:
            if not 1 <= hours <= 12:
                return row
            hours = hours % 12 + 12 * (half in "pP")
        text = f"{year:04}-{month:02}-{day:02}T{hours:02}:{minute or '00'}:{(second or '00').replace(',', '.')}"
        try:
            np.datetime64(text, "us")
        except ValueError:
            return row
        texts.append(text)
    return np.array(texts, dtype="datetime64[us]")


def parse_numbers(cells: Sequence[str], decimal: str) -> Floats | int:
    """Cells as float64, or the index of the first that is no finite number."""
    try:
        numbers = np.array(["nan" if cell.lower() in MISSING else cell for cell in cells], dtype=np.float64)
    except ValueError:
        numbers = None
    if numbers is not None and decimal == "." and not np.isinf(numbers).any():
        return numbers
    parsed = np.empty(len(cells))
    for row, cell in enumerate(cells):
        number = parse_number(cell, decimal)
        if number is None:
            return row
        parsed[row] = number
    return parsed
