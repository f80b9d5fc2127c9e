"""A table in a file: columns as numbers, times and names, and writing it with columns added."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError
from overt.files import check_target, is_stream
from overt.smoothing.data.series import Floats

MISSING = {"", "na", "n/a", "nan", "null", "none"}
_PARQUET = {".parquet", ".pq"}


class Table(ABC):
    """A file whose columns have names; each file format has a subclass that reads its cells and writes it."""

    path: Path
    header: list[str]

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
        try:
            numbers = np.array(["nan" if cell.lower() in MISSING else cell for cell in cells], dtype=np.float64)
        except ValueError:
            numbers = np.array([np.inf])
        # Cell by cell only if one is not a number, to name it.
        return (
            np.array([self._number(cell, row, column) for row, cell in enumerate(cells)])
            if np.isinf(numbers).any()
            else numbers
        )

    def times(self, column: str) -> NDArray[Any]:
        """A column of times: float64, or datetime64 (in UTC if there is a time zone) for ISO 8601 dates."""
        cells = self.cells(column)
        self._refuse_missing(cells, column, f"a time in each row of column {column}", "fill in that time, or drop that row")
        if is_numeral(cells[0]):
            return self.numbers(column)
        dates = [self._date(cell, row, column) for row, cell in enumerate(cells)]
        zoned = [date.tzinfo is not None for date in dates]
        if any(zoned) and not all(zoned):
            got = f"both, first at {self.row_label(zoned.index(not zoned[0]))}"
            raise InputError(f"times of {column} all with a time zone, or all without", got=got, fix="add or remove time zones")
        plain = [date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date for date in dates]
        # Much faster than passing NumPy the dates themselves.
        return np.array([date.isoformat() for date in plain], dtype="datetime64[us]")

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
            fix = "choose one of them"
            raise InputError(f"a column of {self.path}: {', '.join(self.header)}", got=repr(column), fix=fix)

    def check_target(self, target: Path, columns: list[str]) -> None:
        """Refuse a target that `write` would refuse, before the work."""
        for column in columns:
            if column in self.header:
                got = f"such a column: {', '.join(self.header)}"
                raise InputError(f"no column {column} in {self.path} yet", got=got, fix="rename or remove that column")
        if is_parquet(target) != is_parquet(self.path) and not is_stream(target):
            fix = f"end the name in {self.path.suffix}" if self.path.suffix else "leave out the suffix"
            raise InputError("an output of the input's file format", got=f"{target.name} for {self.path.name}", fix=fix)
        check_target(target)

    def _refuse_missing(self, cells: list[str], column: str, expected: str, fix: str) -> None:
        for row, cell in enumerate(cells):
            if cell.lower() in MISSING:
                raise InputError(expected, got=self._cell(cell, row, column), fix=fix)

    def _number(self, cell: str, row: int, column: str) -> float:
        if cell.lower() in MISSING:
            return math.nan
        if not is_numeral(cell) or not math.isfinite(float(cell)):
            raise self._not_a_number(cell, row, column)
        return float(cell)

    def _not_a_number(self, cell: str, row: int, column: str) -> InputError:
        fix = "correct that cell, or leave it empty if the value is missing"
        return InputError(f"a finite number in each cell of column {column}", got=self._cell(cell, row, column), fix=fix)

    def _date(self, cell: str, row: int, column: str) -> datetime:
        try:
            return datetime.fromisoformat(cell)
        except ValueError as error:
            fix = "write dates as 2024-12-31 or 2024-12-31T23:59"
            expected = f"numbers or ISO 8601 dates as times in column {column}"
            raise InputError(expected, got=self._cell(cell, row, column), fix=fix) from error

    def _cell(self, cell: str, row: int, column: str) -> str:
        return f"{repr(cell) if cell else 'an empty cell'} at {self.row_label(row)}"


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its suffix."""
    return path.suffix.lower() in _PARQUET


def is_numeral(cell: str) -> bool:
    """Whether a text is a number, NaN and infinity counted."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
