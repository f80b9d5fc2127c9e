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
    """The cells of a file, as text; `lines` are the line numbers of the rows, as an editor counts them."""

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
        """A column's cells without the blanks around them."""
        self.check_column(column)
        place = self.header.index(column)
        return [row[place].strip() for row in self.rows]

    def place(self, row: int) -> str:
        """A row's line, as an editor counts it."""
        return f"line {self.lines[row]}"

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns more; NaN becomes an empty cell. It is written whole or not at all."""
        more = [["" if math.isnan(value) else repr(value) for value in values.tolist()] for values in columns.values()]
        with whole(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=self.delimiter, lineterminator="\n")
            writer.writerow([*self.header, *columns])
            writer.writerows([*row, *cells] for row, *cells in zip(self.rows, *more, strict=True))


def read_comma_separated(path: Path) -> CommaSeparated:
    """Read a file whose first line names its columns, separated by commas, semicolons, tabs or bars."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            delimiter = max(",;\t|", key=first.count)
            file.seek(0)
            with _cells_of_any_size():
                reader = csv.reader(file, delimiter=delimiter)
                numbered = [(row, reader.line_num) for row in reader if row]
    except OSError as error:
        fix = "check the path"
        raise InputError("the file to smooth can be read", got=f"{path}: {error.strerror}", fix=fix) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is text in UTF-8", got=str(error), fix="save it in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path} is a table of comma-separated values", got=str(error), fix="export it anew") from error
    if len(numbered) < 2:
        got = "an empty file" if not numbered else "the first line only"
        raise InputError(f"{path} has a line of names and at least one row", got=got, fix="name a file with both")
    (header, _), *body = numbered
    for row, line in body:
        if len(row) != len(header):
            rule = f"every row of {path} has as many cells as its first line, {len(header)}"
            raise InputError(rule, got=f"{len(row)} at line {line}", fix="mend that row")
    return CommaSeparated(
        path, delimiter, [name.strip() for name in header], [row for row, _ in body], [line for _, line in body]
    )


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    """Lift the limit of a cell, 131,072 characters, which is one number for the whole process, and put it back."""
    with _limit:
        before = csv.field_size_limit(_LARGEST_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(before)
