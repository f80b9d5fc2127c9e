"""A table in a file: columns as numbers, times and names, and writing it with columns added."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import tzinfo
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.cli.shared.tables.dates import SERIALS, DateFormat, cell_zone, from_serials, is_compact_date, read_clocks, read_dates
from overt.cli.shared.tables.notation import ABSENT, Notation
from overt.cli.shared.tables.numerals import Numbers, bare, parse_number, read_numbers
from overt.errors import InputError
from overt.files import check_target, is_stream
from overt.smoothing.data.series import Floats

_KINDS = {".parquet": "Parquet", ".pq": "Parquet", ".xlsx": "Excel", ".xlsm": "Excel"}
_TIMES_OF_DAY = ("%H", "%I")  # directives in a format


class Table(ABC):
    """A file with named columns; each file format has a subclass that reads its cells and writes it."""

    path: Path
    header: list[str]
    notation: Notation

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of rows."""

    @abstractmethod
    def cells(self, column: str) -> list[str]:
        """A column as text without surrounding blanks; a missing value is empty."""

    @abstractmethod
    def row_label(self, row: int) -> str:
        """The position of a row in the file, for error messages."""

    @abstractmethod
    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns added, NaN as a missing value. It is written completely or not at all."""

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences about lines of the file that are no rows."""
        return ()

    def unit_line(self, column: str) -> str:
        """The unit of a column in a line of units; "" if there is none."""
        return ""

    def read(self, column: str) -> Numbers:
        """A column as float64 with its missing values. An unreadable cell is an error, unless `notation.errors` says otherwise."""
        cells = self.cells(column)
        numbers = read_numbers(cells, self.decimal, self.notation)
        if self.notation.errors == "missing":
            values = numbers.values.copy()
            values[list(numbers.other_units)] = np.nan
            return numbers._replace(values=values)
        if numbers.unreadable:
            raise self._not_a_number(cells[numbers.unreadable[0]], numbers.unreadable[0], column)
        if numbers.other_units:
            row = numbers.other_units[0]
            unit = f"numbers in {numbers.unit}" if numbers.unit else "numbers without a unit"
            fix = "convert that cell, or pass --errors missing to leave such cells out"
            raise InputError(f"one unit in column {column}", got=f"{self._label(cells[row], row)} among {unit}", fix=fix)
        return numbers

    def numbers(self, column: str) -> Floats:
        """A column as float64, NaN where it is missing."""
        return self.read(column).values

    def times(self, column: str) -> NDArray[Any]:
        """A column of times, or two columns, date and time of day, as "date,clock".

        float64, datetime64 (in UTC if there is a time zone) or timedelta64 (times of day); NaN or NaT for an unreadable time, if
        `notation.errors` allows that.
        """
        columns = self.time_columns(column)
        return self._moments(column) if len(columns) == 1 else self._date_and_clock(*columns)

    def time_columns(self, column: str) -> list[str]:
        """The column of this name, or the two columns of date and time of day that it lists."""
        parts = [part.strip() for part in column.split(",")]
        columns = parts if column not in self.header and len(parts) == 2 else [column]
        for name in columns:
            self.check_column(name)
        return columns

    def zone(self, column: str) -> tzinfo | None:
        """The time zone of a column of dates, which `times` returns in UTC."""
        return cell_zone(self.cells(column), self.notation.date_format) if len(self.time_columns(column)) == 1 else None

    @cached_property
    def decimal(self) -> str:
        """The decimal mark: the caller's, or the cells'; a point if they show none."""
        return self.notation.decimal or "."

    def text_columns(self) -> list[str]:
        """The text columns with repeated words: perhaps the groups of a long table."""
        columns = [name for name in self.header if self.header.count(name) == 1]
        return [name for name in columns if self._repeats(self.cells(name))]

    def names(self, column: str) -> list[str]:
        """A column of names as text: the group of each row; "" if it is missing, if `notation.errors` allows that."""
        cells = ["" if cell.lower() in ABSENT else cell for cell in self.cells(column)]
        self._refuse_missing(cells, column, f"a group name in each row of column {column}", "fill it in, or drop that row")
        return cells

    def check_column(self, column: str) -> None:
        """Refuse a column that does not exist, or whose name occurs twice."""
        if self.header.count(column) > 1:
            got = f"{self.header.count(column)} columns called {column}"
            raise InputError(f"one column called {column}", got=got, fix="rename all but one")
        if column not in self.header:
            raise InputError(f"a column of {self.path}: {self.listed_columns}", got=repr(column), fix="choose one of them")

    @property
    def listed_columns(self) -> str:
        """The list of column names, for error messages."""
        return ", ".join(self.header)

    def check_target(self, target: Path, columns: list[str]) -> None:
        """Refuse a target that `write` would refuse, before the work."""
        for column in columns:
            if column in self.header:
                got = f"such a column: {', '.join(self.header)}"
                raise InputError(f"no column {column} in {self.path} yet", got=got, fix="rename or remove that column")
        if file_kind(target) != file_kind(self.path) and not is_stream(target) and not is_stream(self.path):
            fix = f"end the name in {self.path.suffix}" if self.path.suffix else "leave out the suffix"
            raise InputError("an output of the input's file format", got=f"{target.name} for {self.path.name}", fix=fix)
        check_target(target)

    def labels(self, column: str, rows: Iterable[int]) -> list[str]:
        """Cells with their positions in the file, for sentences."""
        cells = self.cells(column)
        return [self._label(cells[row], row) for row in rows]

    def _moments(self, column: str) -> NDArray[Any]:
        cells, form = self.cells(column), self.notation.date_format
        self._refuse_missing(cells, column, f"a time in each row of column {column}", "fill in that time, or drop that row")
        present = [cell for cell in cells if cell.lower() not in self.notation.spellings]
        dated = form not in (None, "excel", "number") or is_compact_date(present)
        if form == "number" or (not dated and present and parse_number(present[0], self.decimal) is not None):
            return self.as_times(self.numbers(column), column)
        clocks = read_clocks(cells) if form is None and present and not read_clocks(present[:1]).unreadable else None
        return self._readable(clocks or self._dates(cells, column), cells, column)

    def as_times(self, numbers: Floats, column: str) -> NDArray[Any]:
        """Convert numbers to times; an error asks about numbers that may be a spreadsheet's dates."""
        form = self.notation.date_format
        if form == "excel":
            return from_serials(numbers)
        known = numbers[~np.isnan(numbers)]
        if form is None and known.size > 1 and SERIALS[0] <= known.min() and known.max() < SERIALS[1]:
            date = from_serials(known[:1])[0].astype("datetime64[D]")
            got = f"{known[0]:.15g} in column {column}, which Excel shows as {date}"
            fix = "pass --date-format excel if these are dates of a spreadsheet, or --date-format number if they are plain numbers"
            raise InputError("times whose kind is clear", got=got, fix=fix)
        return numbers

    def _date_and_clock(self, date: str, clock: str) -> NDArray[Any]:
        """Join a column of dates and a column of times of day to datetime64."""
        days, clocks = self.cells(date), self.cells(clock)
        for column, cells in ((date, days), (clock, clocks)):
            self._refuse_missing(cells, column, f"a time in each row of column {column}", "fill in that time, or drop that row")
        form = self.notation.date_format
        if form and any(part in form for part in _TIMES_OF_DAY):
            both = [f"{day} {time}" for day, time in zip(days, clocks, strict=True)]
            return self._readable(self._dates(both, f"{date},{clock}"), both, f"{date},{clock}")
        times = read_clocks([time.rpartition("T")[2] for time in clocks])
        lengths = self._readable(times, clocks, clock, "times of day, as 14:05 or 2:05 pm,")
        if (
            form in (None, "excel")
            and all(parse_number(day, self.decimal) is not None for day in days)
            and not is_compact_date(days)
        ):
            return self.as_times(self.numbers(date), date) + lengths
        return self._readable(self._dates(days, date), days, date) + lengths

    def _dates(self, cells: list[str], column: str) -> DateFormat:
        form = self.notation.date_format
        try:
            return read_dates(cells, None if form == "excel" else form)
        except InputError as error:
            raise InputError(f"{error.expected} in column {column}", got=error.got, fix=error.fix) from error

    def _readable(self, dates: DateFormat, cells: list[str], column: str, expected: str = "") -> NDArray[Any]:
        """The dates, if all cells are readable or `notation.errors` allows others."""
        if dates.unreadable and self.notation.errors == "ask":
            row, form = dates.unreadable[0], self.notation.date_format
            fix = (
                "write dates as 2024-12-31 or 2024-12-31T23:59, or say how they are written, as in --date-format %d.%m.%Y, "
                "or pass --errors missing to leave such rows out"
            )
            expected = expected or (f"dates as {form}" if form else "numbers or dates")
            raise InputError(f"{expected} as times in column {column}", got=self._label(cells[row], row), fix=fix)
        return dates.values

    def _refuse_missing(self, cells: list[str], column: str, expected: str, fix: str) -> None:
        spellings = {""} if expected.startswith("a group") else self.notation.spellings
        row = next((row for row, cell in enumerate(cells) if cell.lower() in spellings), None)
        if row is not None and self.notation.errors == "ask":
            fix += ", or pass --errors missing to leave such rows out"
            raise InputError(expected, got=self._label(self.cells(column)[row], row), fix=fix)

    def _not_a_number(self, cell: str, row: int, column: str) -> InputError:
        fix = "correct that cell, or leave it empty if the value is missing"
        other, stripped = "," if self.decimal == "." else ".", bare(cell)
        if stripped and parse_number(stripped.numeral, other) is not None:
            fix = f"pass --decimal {other} if that is the decimal mark, or correct that cell"
        elif cell and "," not in cell:
            fix = f"correct that cell, or pass --missing {cell!r} if that is how missing values are written"
        fix += ", or --errors missing to count all cells that are no numbers as missing"
        return InputError(f"a finite number in each cell of column {column}", got=self._label(cell, row), fix=fix)

    def _label(self, cell: str, row: int) -> str:
        return f"{repr(cell) if cell else 'an empty cell'} at {self.row_label(row)}"

    def _repeats(self, cells: list[str]) -> bool:
        """Whether cells are text, neither numbers nor dates, with a repeated word."""
        words = [cell for cell in cells if cell.lower() not in self.notation.spellings]
        if not words or parse_number(words[0], self.decimal) is not None or len(set(words)) == len(words):
            return False
        numbers = read_numbers(words, self.decimal, self.notation)
        return bool(numbers.unreadable or numbers.other_units) and not words[0][:4].isdigit()


def file_kind(path: Path) -> str:
    """The kind of file by its suffix: "Parquet", "Excel", or "text"."""
    return _KINDS.get(path.suffix.lower(), "text")
