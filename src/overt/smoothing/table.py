"""A file of comma-separated values: columns as numbers and times, and the file again with a column more."""

import csv
import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError
from overt.files import whole
from overt.smoothing.series import Floats

MISSING = {"", "na", "n/a", "nan", "null", "none"}


@dataclass(frozen=True)
class Table:
    """The cells of a file, as text; `lines` are the line numbers of the rows, as an editor counts them."""

    path: Path
    delimiter: str
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    def numbers(self, column: str) -> Floats:
        """A column as float64; an empty cell, NA, NaN, null or None is NaN."""
        cells = self.cells(column)
        return np.array([self._number(cell, line, column) for cell, line in zip(cells, self.lines, strict=True)])

    def times(self, column: str) -> NDArray[Any]:
        """A column of times: float64, or datetime64 (in UTC, where a zone is given) for ISO 8601 dates."""
        cells = self.cells(column)
        for cell, line in zip(cells, self.lines, strict=True):
            if cell.lower() in MISSING:
                raise InputError("every point has a time", got=self._place(cell, line, column), cure="date that row or drop it")
        if _is_number(cells[0]):
            return self.numbers(column)
        dates = [self._date(cell, line, column) for cell, line in zip(cells, self.lines, strict=True)]
        zoned = [date.tzinfo is not None for date in dates]
        if any(zoned) and not all(zoned):
            line = self.lines[zoned.index(not zoned[0])]
            cure = "give every time a zone, or none"
            raise InputError(
                f"the times of {column} all have a zone, or none has", got=f"both, first at line {line}", cure=cure
            )
        plain = [date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date for date in dates]
        return np.array(plain, dtype="datetime64[us]")

    def cells(self, column: str) -> list[str]:
        """A column's cells without the blanks around them."""
        if self.header.count(column) > 1:
            got = f"{self.header.count(column)} columns called {column}"
            raise InputError("a column is known by its name", got=got, cure="rename all but one")
        if column not in self.header:
            cure = "choose one of: " + ", ".join(self.header)
            raise InputError(f"{self.path} has the columns of its first line", got=repr(column), cure=cure)
        place = self.header.index(column)
        return [row[place].strip() for row in self.rows]

    def write(self, target: str | os.PathLike[str], column: str, values: Floats) -> None:
        """Write the file with one column more; NaN becomes an empty cell. It is written whole or not at all."""
        if column in self.header:
            cure = "rename that column, or smooth the file without it"
            raise InputError(f"{self.path} already has a column {column}", got=", ".join(self.header), cure=cure)
        with whole(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=self.delimiter, lineterminator="\n")
            writer.writerow([*self.header, column])
            for row, value in zip(self.rows, values.tolist(), strict=True):
                writer.writerow([*row, "" if math.isnan(value) else repr(value)])

    def _number(self, cell: str, line: int, column: str) -> float:
        if cell.lower() in MISSING:
            return math.nan
        if not _is_number(cell) or not math.isfinite(float(cell)):
            cure = "mend that cell, or empty it if the value is missing"
            raise InputError(f"the column {column} holds numbers", got=self._place(cell, line, column), cure=cure)
        return float(cell)

    def _date(self, cell: str, line: int, column: str) -> datetime:
        try:
            return datetime.fromisoformat(cell)
        except ValueError as error:
            cure = "write dates as 2024-12-31 or 2024-12-31T23:59"
            rule = f"the times of {column} are numbers, or dates as ISO 8601 writes them"
            raise InputError(rule, got=self._place(cell, line, column), cure=cure) from error

    def _place(self, cell: str, line: int, column: str) -> str:
        return f"{cell!r} at line {line}, column {column}" if cell else f"an empty cell at line {line}, column {column}"


def read_table(path: Path) -> Table:
    """Read a file whose first line names its columns, separated by commas, semicolons, tabs or bars."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            delimiter = max(",;\t|", key=first.count)
            file.seek(0)
            reader = csv.reader(file, delimiter=delimiter)
            numbered = [(row, reader.line_num) for row in reader if row]
    except OSError as error:
        cure = "check the path"
        raise InputError("the file to smooth can be read", got=f"{path}: {error.strerror}", cure=cure) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is text in UTF-8", got=str(error), cure="save it in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path} is a table of comma-separated values", got=str(error), cure="export it anew") from error
    if len(numbered) < 2:
        got = "an empty file" if not numbered else "the first line only"
        raise InputError(f"{path} has a line of names and at least one row", got=got, cure="name a file with both")
    (header, _), *body = numbered
    for row, line in body:
        if len(row) != len(header):
            rule = f"every row of {path} has as many cells as its first line, {len(header)}"
            raise InputError(rule, got=f"{len(row)} at line {line}", cure="mend that row")
    return Table(path, delimiter, [name.strip() for name in header], [row for row, _ in body], [line for _, line in body])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
