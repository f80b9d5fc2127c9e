"""A table in a file: columns as numbers, times and names, and the file again with some columns more."""

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
    """A file whose columns have names; each kind of file says how its cells read, and how it is written again."""

    path: Path
    header: list[str]

    @property
    @abstractmethod
    def length(self) -> int:
        """The number of rows."""

    @abstractmethod
    def cells(self, column: str) -> list[str]:
        """A column as text, without the blanks around it; what is missing is empty."""

    @abstractmethod
    def place(self, row: int) -> str:
        """Where a row stands, in the words of who looks into the file."""

    @abstractmethod
    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns more, NaN as a missing value. It is written whole or not at all."""

    def numbers(self, column: str) -> Floats:
        """A column as float64; an empty cell, NA, NaN, null or None is NaN."""
        cells = self.cells(column)
        try:
            numbers = np.array(["nan" if cell.lower() in MISSING else cell for cell in cells], dtype=np.float64)
        except ValueError:
            numbers = np.array([np.inf])
        # Cell by cell only where one is no number, to say which.
        return (
            np.array([self._number(cell, row, column) for row, cell in enumerate(cells)])
            if np.isinf(numbers).any()
            else numbers
        )

    def times(self, column: str) -> NDArray[Any]:
        """A column of times: float64, or datetime64 (in UTC, where a zone is given) for ISO 8601 dates."""
        cells = self.cells(column)
        self._refuse_missing(cells, column, "every point has a time", "date that row or drop it")
        if _is_number(cells[0]):
            return self.numbers(column)
        dates = [self._date(cell, row, column) for row, cell in enumerate(cells)]
        zoned = [date.tzinfo is not None for date in dates]
        if any(zoned) and not all(zoned):
            got = f"both, first at {self.place(zoned.index(not zoned[0]))}"
            raise InputError(
                f"the times of {column} all have a zone, or none has", got=got, fix="give every time a zone, or none"
            )
        plain = [date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date for date in dates]
        # Much quicker than NumPy takes the dates themselves.
        return np.array([date.isoformat() for date in plain], dtype="datetime64[us]")

    def names(self, column: str) -> list[str]:
        """A column of names, as text: of the group that each row belongs to."""
        cells = self.cells(column)
        self._refuse_missing(cells, column, "every row names its group", "name it, or drop that row")
        return cells

    def check_column(self, column: str) -> None:
        """Refuse a column that is not there, or is there twice."""
        if self.header.count(column) > 1:
            got = f"{self.header.count(column)} columns called {column}"
            raise InputError("a column is known by its name", got=got, fix="rename all but one")
        if column not in self.header:
            fix = "choose one of: " + ", ".join(self.header)
            raise InputError(f"{self.path} has no such column", got=repr(column), fix=fix)

    def check_target(self, target: Path, columns: list[str]) -> None:
        """Refuse what `write` could not do, before hours are spent on the numbers."""
        for column in columns:
            if column in self.header:
                fix = "rename that column, or smooth the file without it"
                raise InputError(f"{self.path} already has a column {column}", got=", ".join(self.header), fix=fix)
        if is_parquet(target) != is_parquet(self.path) and not is_stream(target):
            fix = f"end its name in {self.path.suffix}" if self.path.suffix else "leave its ending out"
            raise InputError("the file comes out as what it went in", got=f"{self.path.name} to {target.name}", fix=fix)
        check_target(target)

    def _refuse_missing(self, cells: list[str], column: str, rule: str, fix: str) -> None:
        for row, cell in enumerate(cells):
            if cell.lower() in MISSING:
                raise InputError(rule, got=self._cell(cell, row, column), fix=fix)

    def _number(self, cell: str, row: int, column: str) -> float:
        if cell.lower() in MISSING:
            return math.nan
        if not _is_number(cell) or not math.isfinite(float(cell)):
            fix = "mend that cell, or empty it if the value is missing"
            raise InputError(f"the column {column} holds numbers", got=self._cell(cell, row, column), fix=fix)
        return float(cell)

    def _date(self, cell: str, row: int, column: str) -> datetime:
        try:
            return datetime.fromisoformat(cell)
        except ValueError as error:
            fix = "write dates as 2024-12-31 or 2024-12-31T23:59"
            rule = f"the times of {column} are numbers, or dates as ISO 8601 writes them"
            raise InputError(rule, got=self._cell(cell, row, column), fix=fix) from error

    def _cell(self, cell: str, row: int, column: str) -> str:
        return (
            f"{cell!r} at {self.place(row)}, column {column}"
            if cell
            else f"an empty cell at {self.place(row)}, column {column}"
        )


def read_table(path: Path) -> Table:
    """Read a file of Parquet, by its ending, or one of comma-separated values."""
    # Imported here, since both stand on this module.
    from overt.smoothing.data.comma_separated import read_comma_separated
    from overt.smoothing.data.parquet import read_parquet

    return read_parquet(path) if is_parquet(path) else read_comma_separated(path)


def is_parquet(path: Path) -> bool:
    """Whether a file's ending says that it is Parquet."""
    return path.suffix.lower() in _PARQUET


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
