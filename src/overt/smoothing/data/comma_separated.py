"""A table of comma-separated values."""

import csv
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from overt.errors import InputError
from overt.files import whole
from overt.smoothing.data.series import Floats
from overt.smoothing.data.table import Table

_LARGEST_CELL = 2**31 - 1  # as large as `csv` takes everywhere
_limit = threading.Lock()


@dataclass(frozen=True)
class CommaSeparated(Table):
    """The cells of a file as text; `lines` are the line numbers of the rows, counted from 1."""

    path: Path
    delimiter: str
    header: list[str]
    rows: list[list[str]]
    lines: list[int]

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def cells(self, column: str) -> list[str]:
        """The cells of a column without surrounding blanks."""
        self.check_column(column)
        index = self.header.index(column)
        return [row[index].strip() for row in self.rows]

    def row_label(self, row: int) -> str:
        """A row's line number, counted from 1."""
        return f"line {self.lines[row]}"

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns added; NaN becomes an empty cell. It is written completely or not at all."""
        added = [["" if math.isnan(value) else repr(value) for value in values.tolist()] for values in columns.values()]
        with whole(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=self.delimiter, lineterminator="\n")
            writer.writerow([*self.header, *columns])
            writer.writerows([*row, *cells] for row, *cells in zip(self.rows, *added, strict=True))


def read_comma_separated(path: Path) -> CommaSeparated:
    """Read a file whose first line names its columns, separated by commas, semicolons, tabs or vertical bars."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            delimiter = max(",;\t|", key=first.count)
            file.seek(0)
            with _cells_of_any_size():
                reader = csv.reader(file, delimiter=delimiter)
                numbered = [(row, reader.line_num) for row in reader if row]
    except OSError as error:
        raise InputError("a readable file to smooth", got=f"{path}: {error.strerror}", fix="check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"UTF-8 text in {path}", got=f"an error: {error}", fix="save it as UTF-8") from error
    except csv.Error as error:
        raise InputError(f"comma-separated values in {path}", got=f"an error: {error}", fix="export it again") from error
    if len(numbered) < 2:
        got = "an empty file" if not numbered else "only the first line"
        raise InputError(f"a line of column names and at least one row in {path}", got=got, fix="pass a file with both")
    (header, _), *body = numbered
    for row, line in body:
        if len(row) != len(header):
            expected = f"{len(header)} cells in each row of {path}, as in its first line"
            raise InputError(expected, got=f"{len(row)} at line {line}", fix="correct that row")
    return CommaSeparated(
        path, delimiter, [name.strip() for name in header], [row for row, _ in body], [line for _, line in body]
    )


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    """Raise the limit of 131,072 characters per cell, which is global to the process, and restore it."""
    with _limit:
        before = csv.field_size_limit(_LARGEST_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(before)
