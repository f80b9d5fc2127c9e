"""Parse text cells as numbers in the notations of different countries, recognised from all cells or given by the caller.

A decimal comma is recognised if some cell allows nothing else, such as 0,5 or 1.234,5. Ambiguous numbers are not guessed: an error
asks. Currencies and units may be attached to numbers if they are the same in a whole column; (3.2) and 3.2- are negative.
polars and pyarrow parse only plain numbers, so they cannot replace this.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from overt.cli.shared.tables.notation import MISSING, Notation
from overt.errors import InputError
from overt.smoothing.data.series import Floats, Indices

_SPACES = "[ \u00a0\u2009\u202f'\u2019]"  # thousands separators in any country


def _pattern(decimal: str, other: str) -> re.Pattern[str]:
    whole = rf"(?:\d+|\d{{1,3}}(?:(?:{_SPACES}|{other})\d{{3}})+)?"
    return re.compile(rf"[+-]?{whole}(?:{decimal}\d*)?(?:[eE][+-]?\d+)?")


_NUMBERS = {".": _pattern("[.]", ","), ",": _pattern(",", "[.]")}
_NUMERAL = re.compile(r"[+-]?\d[\d.,]*(?:[eE][+-]?\d+)?|[+-]?[.,]\d+")
_CURRENCIES = "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|INR|JPY|KRW|MXN|NOK|NZD|PLN|RUB|SEK|SGD|TRY|USD|Fr[.]|kr[.]?|Rs[.]?"
_PREFIX = rf"(?:[A-Z]{{0,2}}[$]|[€£¥₹₽₩₺₴₪฿¢]|{_CURRENCIES})"
_SUFFIX = r"(?:[%‰°$€£¥₹₽₩₺₴₪฿¢Ω]|[^\W\d_])(?:[^\W_]|[%‰°/²³⁻¹·.*^-]){0,11}"
_WITH_UNIT = re.compile(
    rf"([+-]?)\s*({_PREFIX}?)\s*([+-]?(?:\d(?:[\d.,]|{_SPACES}(?=\d))*|[.,]\d+)(?:[eE][+-]?\d+)?)\s*({_SUFFIX})?(-?)"
)
_PARENTHESES = re.compile(r"([^\d()]*)\(([^()]*\d[^()]*)\)([^\d()]*)")
_MINUS = str.maketrans("\u2212\u2013\u2012\uff0d", "----")


_OTHERS = ("unreadable", "unit", "other_units")


class Bare(NamedTuple):
    """A cell split into numeral and attached unit."""

    numeral: str
    unit: str


class Numbers(NamedTuple):
    """A column of cells, parsed as numbers."""

    values: Floats  # (n,) NaN where missing
    missing: dict[str, int]  # the count of each spelling of a missing value; "" is an empty cell
    unreadable: tuple[int, ...] = ()  # rows with unreadable cells, ascending
    unit: str = ""  # attached to every number
    other_units: tuple[int, ...] = ()  # rows of numbers with another unit, or without one

    @property
    def refused(self) -> Indices:
        """The rows whose cell is no number in the column's unit, ascending."""
        return np.array(sorted((*self.unreadable, *self.other_units)), dtype=np.intp)


def bare(cell: str) -> Bare | None:
    """The numeral and the unit of a cell; None if it has no number.

    >>> bare("($1,200.00)")
    Bare(numeral='-1,200.00', unit='$')
    >>> bare("\u22123,5 °C"), bare("12.50-"), bare("soon")
    (Bare(numeral='-3,5', unit='°C'), Bare(numeral='-12.50', unit=''), None)
    """
    text = cell.translate(_MINUS)
    enclosed = _PARENTHESES.fullmatch(text)
    match = _WITH_UNIT.fullmatch("".join(enclosed.groups()) if enclosed else text)
    if match is None:
        return None
    sign, prefix, numeral, suffix, after = match.groups()
    suffix = suffix or ""
    if not after and suffix.endswith("-"):
        suffix, after = suffix[:-1], "-"
    signs = [mark for mark in (sign, numeral[0] if numeral[0] in "+-" else "", after, "-" if enclosed else "") if mark]
    if len(signs) > 1:
        return None
    minus = "-" if signs == ["-"] else ""
    return Bare(minus + numeral.lstrip("+-"), prefix + suffix)


def find_decimal(cells: Iterable[str]) -> str | None:
    """The decimal mark that some of these cells show unambiguously; None if no cell does.

    >>> find_decimal(["1.234", "0,5"]), find_decimal(["1,234", "1.5"]), find_decimal(["1,234"])
    (',', '.', None)
    """
    sure: dict[str, str] = {}
    for cell in cells:
        mark = decimal_mark(cell)
        if mark and mark not in sure:
            sure[mark] = cell
            if len(sure) == 2:
                got = f"{sure['.']!r} and {sure[',']!r}"
                raise InputError("one decimal mark in a file", got=got, fix="pass --decimal . or --decimal ,")
    return next(iter(sure), None)


def decimal_mark(cell: str) -> str | None:
    """The mark that is certainly decimal in a cell; None if there is none.

    >>> decimal_mark("1,5"), decimal_mark("1,500"), decimal_mark("1,5 kg"), decimal_mark("0.125")
    (',', None, ',', '.')
    """
    numeral = _numeral(cell)
    last = max(numeral.rfind("."), numeral.rfind(","))
    if last < 0:
        return None
    mark, other = numeral[last], "," if numeral[last] == "." else "."
    if other in numeral:
        return mark if _NUMBERS[mark].fullmatch(numeral) else None
    if numeral.count(mark) > 1:  # thousands separators
        return other if _NUMBERS[other].fullmatch(numeral) else None
    whole, _, fraction = re.split("[eE]", numeral.lstrip("+-"))[0].partition(mark)
    return None if len(fraction) == 3 and 1 <= len(whole) <= 3 and whole != "0" else mark


def is_ambiguous(cell: str, mark: str) -> bool:
    """Whether a mark in a cell may be decimal or a thousands separator.

    >>> is_ambiguous("20.612", "."), is_ambiguous("20.61", "."), is_ambiguous("20.612", ",")
    (True, False, False)
    """
    return mark in cell and mark in _numeral(cell) and decimal_mark(cell) is None


def _numeral(cell: str) -> str:
    if _NUMERAL.fullmatch(cell):
        return cell
    stripped = bare(cell)
    if stripped is None or not any(pattern.fullmatch(stripped.numeral) for pattern in _NUMBERS.values()):
        return ""
    return re.sub(_SPACES, "", stripped.numeral)


def parse_number(cell: str, decimal: str) -> float | None:
    """The number in a cell; NaN for a missing value, None if it is no finite number.

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


def read_numbers(cells: Sequence[str], decimal: str, notation: Notation) -> Numbers:
    """Parse cells as float64; missing values (a spelling, or a number in `notation.missing`) and unreadable cells are NaN and listed.

    >>> read_numbers(["1.5 kg", "-", "2 kg", "3 lb"], ".", Notation())
    Numbers(values=array([1.5, nan, 2. , 3. ]), missing={'-': 1}, unreadable=(), unit='kg', other_units=(3,))
    """
    rows = [row for row, cell in enumerate(cells) if cell.lower() in notation.spellings]
    values, *others = _plain(cells, rows, decimal) or _with_units(cells, set(rows), decimal)
    return without_codes(values, Counter(cells[row] for row in rows), notation)._replace(
        **dict(zip(_OTHERS, others, strict=True))
    )


def without_codes(values: Floats, missing: Mapping[str, int], notation: Notation) -> Numbers:
    """Mark the numbers listed in `notation` as missing.

    >>> without_codes(np.array([1.0, -999.0]), {}, Notation(missing=("-999",)))
    Numbers(values=array([ 1., nan]), missing={'-999': 1}, unreadable=(), unit='', other_units=())
    """
    counts = {f"{code:.15g}": int((values == code).sum()) for code in notation.codes}
    left = np.where(np.isin(values, notation.codes), np.nan, values)
    return Numbers(left, {**missing, **{code: count for code, count in counts.items() if count}})


def _plain(
    cells: Sequence[str], missing: Sequence[int], decimal: str
) -> tuple[Floats, tuple[int, ...], str, tuple[int, ...]] | None:
    """Parse numbers in program notation all at once; None if a cell has another notation."""
    if decimal != ".":
        return None
    texts = list(cells)
    for row in missing:
        texts[row] = "nan"
    try:
        values = np.array(texts, dtype=np.float64)
    except ValueError:
        return None
    return None if np.isinf(values).any() else (values, (), "", ())


def _with_units(cells: Sequence[str], missing: set[int], decimal: str) -> tuple[Floats, tuple[int, ...], str, tuple[int, ...]]:
    values, unreadable, units = np.full(len(cells), np.nan), [], {}
    for row, cell in enumerate(cells):
        if row in missing:
            continue
        number, units[row] = parse_number(cell, decimal), ""
        if number is None:
            stripped = bare(cell)
            number = None if stripped is None else parse_number(stripped.numeral, decimal)
            units[row] = stripped.unit if stripped else ""
        if number is None:
            unreadable.append(row)
            del units[row]
        else:
            values[row] = number
    counts = Counter(units.values())
    unit = counts.most_common(1)[0][0] if counts else ""
    others = tuple(row for row, other in units.items() if other != unit and (other or values[row] != 0))
    return values, tuple(unreadable), unit, others
