"""A table in a file: columns as numbers, times and names, and writing it with columns added."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from overt.errors import InputError
from overt.files import check_target, is_stream
from overt.smoothing.data.notation import MISSING, Notation, is_compact_date, is_zoned, parse_dates, parse_number, parse_numbers
from overt.smoothing.data.series import Floats

_TIME_OF_DAY = re.compile(r"\d{1,2}:\d{2}:\d{2}")
_KINDS = {".parquet": "Parquet", ".pq": "Parquet", ".xlsx": "Excel", ".xlsm": "Excel"}


class Table(ABC):
    """A file whose columns have names; each file format has a subclass that reads its cells and writes it."""

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

    def numbers(self, column: str) -> Floats:
        """A column as float64; an empty cell, NA, NaN, null or None is NaN."""
        cells = self.cells(column)
        numbers = parse_numbers(cells, self.decimal)
        if isinstance(numbers, int):
            raise self._not_a_number(cells[numbers], numbers, column)
        return numbers

    def times(self, column: str) -> NDArray[Any]:
        """A column of times: float64, or datetime64 (in UTC if there is a time zone) for dates."""
        cells = self.cells(column)
        self._refuse_missing(cells, column, f"a time in each row of column {column}", "fill in that time, or drop that row")
        dated = self.notation.date_format is not None or is_compact_date(cells)
        if not dated and parse_number(cells[0], self.decimal) is not None:
            return self.numbers(column)
        try:
            dates = parse_dates(cells, self.notation)
        except InputError as error:
            raise InputError(f"{error.expected} in column {column}", got=error.got, fix=error.fix) from error
        if isinstance(dates, int):
            example = "%H:%M:%S" if _TIME_OF_DAY.fullmatch(cells[dates]) else "%d.%m.%Y"
            fix = f"write dates as 2024-12-31 or 2024-12-31T23:59, or say how they are written, as in --date-format {example}"
            form = f"dates as {self.notation.date_format}" if self.notation.date_format else "numbers or dates"
            raise InputError(f"{form} as times in column {column}", got=self._cell(cells[dates], dates, column), fix=fix)
        return dates

    def has_zone(self, column: str) -> bool:
        """Whether a column holds dates with a time zone, which `times` has in UTC."""
        cell = next(iter(self.cells(column)), "")
        return is_zoned(cell, self.notation)

    @cached_property
    def decimal(self) -> str:
        """The decimal mark: what was passed, or what the cells show; a point where they show none."""
        return self.notation.decimal or "."

    def text_columns(self) -> list[str]:
        """The columns that hold text in which words repeat: perhaps the groups of a long table."""
        columns = [name for name in self.header if self.header.count(name) == 1]
        return [name for name in columns if _repeats(self.cells(name), self.decimal)]

    def names(self, column: str) -> list[str]:
        """A column of names as text: the group of each row."""
        cells = self.cells(column)
        self._refuse_missing(cells, column, f"a group name in each row of column {column}", "fill it in, or drop that row")
        return cells

    def check_column(self, column: str) -> None:
        """Refuse a column that does not exist, or exists twice."""
        if self.header.count(column) > 1:
            got = f"{self.header.count(column)} columns called {column}"
            raise InputError(f"one column called {column}", got=got, fix="rename all but one")
        if column not in self.header:
            fix = "choose one of them; the first line must name the columns" if self._has_no_names else "choose one of them"
            raise InputError(f"a column of {self.path}: {', '.join(self.header)}", got=repr(column), fix=fix)

    @property
    def listed_columns(self) -> str:
        """The names of the columns, to choose from."""
        listed = ", ".join(self.header)
        return f"{listed}; the first line must name the columns" if self._has_no_names else listed

    @property
    def _has_no_names(self) -> bool:
        """Whether the first line holds numbers in the place of names."""
        return all(is_numeral(name.replace(",", ".")) for name in self.header)

    def check_target(self, target: Path, columns: list[str]) -> None:
        """Refuse a target that `write` would refuse, before the work."""
        for column in columns:
            if column in self.header:
                got = f"such a column: {', '.join(self.header)}"
                raise InputError(f"no column {column} in {self.path} yet", got=got, fix="rename or remove that column")
        if kind_of(target) != kind_of(self.path) and not is_stream(target) and not is_stream(self.path):
            fix = f"end the name in {self.path.suffix}" if self.path.suffix else "leave out the suffix"
            raise InputError("an output of the input's file format", got=f"{target.name} for {self.path.name}", fix=fix)
        check_target(target)

    def _refuse_missing(self, cells: list[str], column: str, expected: str, fix: str) -> None:
        for row, cell in enumerate(cells):
            if cell.lower() in MISSING:
                raise InputError(expected, got=self._cell(cell, row, column), fix=fix)

    def _not_a_number(self, cell: str, row: int, column: str) -> InputError:
        fix = "correct that cell, or leave it empty if the value is missing"
        other = "," if self.decimal == "." else "."
        if parse_number(cell, other) is not None:
            fix = f"pass --decimal {other} if that is the decimal mark, or correct that cell"
        return InputError(f"a finite number in each cell of column {column}", got=self._cell(cell, row, column), fix=fix)

    def _cell(self, cell: str, row: int, column: str) -> str:
        return f"{repr(cell) if cell else 'an empty cell'} at {self.row_label(row)}"


def kind_of(path: Path) -> str:
    """The kind of file by its suffix: "Parquet", "Excel", or "text"."""
    return _KINDS.get(path.suffix.lower(), "text")


def _repeats(cells: list[str], decimal: str) -> bool:
    """Whether cells are text that is neither numbers nor dates, and some word is there twice."""
    words = [cell for cell in cells if cell.lower() not in MISSING]
    if not words or parse_number(words[0], decimal) is not None or len(set(words)) == len(words):
        return False
    return isinstance(parse_numbers(words, decimal), int) and not words[0][:4].isdigit()


def is_numeral(cell: str) -> bool:
    """Whether a text is a number, NaN and infinity counted."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
