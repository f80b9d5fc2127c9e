"""A table of comma-separated values."""

import codecs
import csv
import gzip
import io
import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from overt.cli.shared.tables.table import Table
from overt.errors import InputError
from overt.files import whole
from overt.reading import gunzip, reading, reason
from overt.smoothing.data.notation import Notation, find_decimal, mark_of, parse_number, parse_numbers
from overt.smoothing.data.series import Floats

_LARGEST_CELL = 2**31 - 1  # as large as `csv` takes everywhere
_limit = threading.Lock()


@dataclass(frozen=True)
class CommaSeparated(Table):
    """The cells of a file as text; `lines` are the line numbers of the rows, counted from 1."""

    path: Path
    header: list[str]
    notation: Notation
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

    @cached_property
    def decimal(self) -> str:
        """The decimal mark: what was passed, or what some cell shows beyond doubt."""
        if self.notation.decimal is not None:
            return self.notation.decimal
        mark = find_decimal(cell.strip() for row in self.rows for cell in row if "," in cell)
        return mark or ("," if self._has_points_between_thousands() else ".")

    def _has_points_between_thousands(self) -> bool:
        """Whether some column holds numbers such as 1.513.823, and no cell one such as 1.5."""
        pointed = [at for at in range(len(self.header)) if any(row[at].count(".") > 1 for row in self.rows)]
        if all(isinstance(parse_numbers([row[at].strip() for row in self.rows], ","), int) for at in pointed):
            return False
        return all(mark_of(cell.strip()) != "." for row in self.rows for cell in row)

    def numbers(self, column: str) -> Floats:
        """A column as float64. Where a comma may be decimal or between thousands, an error asks."""
        cells = self.cells(column)
        if self.notation.decimal is None and self.decimal == "." and any("," in cell for cell in cells):
            row = next(row for row, cell in enumerate(cells) if "," in cell)
            if parse_number(cells[row], ".") is not None and find_decimal(cells) is None:
                fix = "pass --decimal , if the comma is decimal, or --decimal . if it is between thousands"
                raise InputError("a decimal mark that the file shows", got=self._cell(cells[row], row, column), fix=fix)
        return super().numbers(column)

    def _written(self, values: Floats) -> list[str]:
        written = ["" if math.isnan(value) else repr(value) for value in values.tolist()]
        return written if self.decimal == "." else [cell.replace(".", self.decimal) for cell in written]

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns added; NaN becomes an empty cell. It is written completely or not at all."""
        added = [self._written(values) for values in columns.values()]
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.notation.separator or ",", lineterminator="\n")
        writer.writerow([*self.header, *columns])
        writer.writerows([*row, *cells] for row, *cells in zip(self.rows, *added, strict=True))
        content = text.getvalue().encode()
        with whole(target) as temporary:
            temporary.write_bytes(gzip.compress(content) if str(target).lower().endswith(".gz") else content)


def read_comma_separated(path: Path, content: bytes, notation: Notation) -> CommaSeparated:
    """Read text whose first line names its columns, separated as `notation` says, or by commas, semicolons, tabs or vertical bars."""
    with reading(path, "comma-separated values", "export it again"), _utf_8(path, content):
        text = (gunzip(path, content) if content.startswith(b"\x1f\x8b") else content).decode("utf-8-sig")
        first = text.partition("\n")[0]
        separator = notation.separator or max(",;\t|", key=first.count)
        with _cells_of_any_size():
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
            rows, lines = [], []
            for row in reader:
                if row:
                    rows.append(row)
                    lines.append(reader.line_num)
    if len(rows) < 2:
        got = "an empty file" if not rows else "only the first line"
        raise InputError(f"a line of column names and at least one row in {path}", got=got, fix="pass a file with both")
    header = rows[0]
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            expected = f"{len(header)} cells in each row of {path}, as in its first line"
            raise InputError(expected, got=f"{len(row)} at line {line}", fix="correct that row")
    names = [name.strip() for name in header]
    return CommaSeparated(path, names, replace(notation, separator=separator), rows[1:], lines[1:])


@contextmanager
def _utf_8(path: Path, content: bytes) -> Iterator[None]:
    """Say of a text in another encoding how to convert it."""
    try:
        yield
    except UnicodeDecodeError as error:
        encoding = "utf-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "cp1252"
        fix = f"save it as UTF-8, or `iconv -f {encoding} -t utf-8 FILE | overt smooth -`"
        raise InputError(f"{path} to be UTF-8 text", got=reason(error), fix=fix) from error


@contextmanager
def _cells_of_any_size() -> Iterator[None]:
    """Raise the limit of 131,072 characters per cell, which is global to the process, and restore it."""
    with _limit:
        before = csv.field_size_limit(_LARGEST_CELL)
        try:
            yield
        finally:
            csv.field_size_limit(before)
