"""Read and write a table of comma-separated values, or of values with other separators."""

import csv
import gzip
import io
import math
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from overt.cli.shared.tables.layout import TableLayout, read_layout
from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.numerals import Numbers, decimal_mark, find_decimal, is_ambiguous, read_numbers
from overt.cli.shared.tables.table import Table
from overt.errors import InputError
from overt.files import whole
from overt.smoothing.data.series import Floats

# _DATE_WITH_POINTS: dates in countries whose decimal mark is a comma.
_DATE_WITH_POINTS = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}.*")


@dataclass(frozen=True)
class CommaSeparated(Table):
    """A file of separated values; cells are text."""

    path: Path
    header: list[str]
    notation: Notation
    layout: TableLayout

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.layout.rows)

    def cells(self, column: str) -> list[str]:
        """The cells of a column without surrounding blanks."""
        self.check_column(column)
        index = self.header.index(column)
        return [row[index].strip() for row in self.layout.rows]

    def row_label(self, row: int) -> str:
        """A row's line number, counted from 1."""
        return f"line {self.layout.lines[row]}"

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences about lines of the file that are no rows."""
        uneven = self.layout.uneven
        if not uneven:
            return self.layout.remarks
        counted = "1 row has" if len(uneven) == 1 else f"{len(uneven)} rows have"
        return [
            *self.layout.remarks,
            f"{counted} another number of cells than the names and count as empty, first {self.row_label(uneven[0])}.",
        ]

    @property
    def listed_columns(self) -> str:
        """The list of column names, for error messages."""
        listed = ", ".join(self.header)
        return (
            f"{listed}; the file has no line of names"
            if any("no names" in remark for remark in self.layout.remarks)
            else listed
        )

    def unit_line(self, column: str) -> str:
        """The unit of a column in a line of units; "" if there is none."""
        return self.layout.units[self.header.index(column)].strip("[]() ") if self.layout.units else ""

    @cached_property
    def decimal(self) -> str:
        """The decimal mark: the caller's, or the mark that some cell shows unambiguously."""
        if self.notation.decimal is not None:
            return self.notation.decimal
        mark = find_decimal(cell.strip() for row in self.layout.rows for cell in row if "," in cell)
        return mark or ("," if self._has_points_between_thousands() else ".")

    def _has_points_between_thousands(self) -> bool:
        """Whether some column has numbers such as 1.513.823, and no cell such as 1.5."""
        rows = self.layout.rows
        pointed = [index for index in range(len(self.header)) if any(row[index].count(".") > 1 for row in rows)]
        columns = [read_numbers([row[index].strip() for row in rows], ",", Notation()) for index in pointed]
        if all(numbers.unreadable for numbers in columns):
            return False
        return not self._shows_a_point

    @cached_property
    def _shows_a_point(self) -> bool:
        """Whether some cell unambiguously shows a decimal point."""
        return any(decimal_mark(cell.strip()) == "." for row in self.layout.rows for cell in row if "." in cell)

    def read(self, column: str) -> Numbers:
        """A column as float64; an error asks if a mark may be decimal or a thousands separator."""
        if self.notation.decimal is None and self.decimal == ".":
            self._ask_for_decimal(self.cells(column), column)
        return super().read(column)

    def _ask_for_decimal(self, cells: list[str], column: str) -> None:
        for mark, name, asks in ((",", "comma", self._comma_is_open), (".", "point", self._point_is_open)):
            row = next((row for row, cell in enumerate(cells) if is_ambiguous(cell, mark)), None)
            if row is None or not asks(cells):
                continue
            other = "." if mark == "," else ","
            fix = f"pass --decimal {mark} if the {name} is decimal, or --decimal {other} if it is between thousands"
            raise InputError("a decimal mark that the file shows", got=self._label(cells[row], row), fix=fix)

    def _comma_is_open(self, cells: list[str]) -> bool:
        return find_decimal(cells) is None

    def _point_is_open(self, cells: list[str]) -> bool:
        """Whether a point may be a thousands separator: the file has decimal commas, and shows no decimal point."""
        european = self.layout.separator == ";" or any(
            _DATE_WITH_POINTS.fullmatch(cell.strip()) for row in self.layout.rows[:1] for cell in row
        )
        return european and not self._shows_a_point

    def _written(self, values: Floats) -> list[str]:
        written = ["" if math.isnan(value) else repr(value) for value in values.tolist()]
        return written if self.decimal == "." else [cell.replace(".", self.decimal) for cell in written]

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns added, with its comments and units; NaN becomes an empty cell.

        The encoding is UTF-8; the file is written completely or not at all.
        """
        layout, added = self.layout, [self._written(values) for values in columns.values()]
        text = io.StringIO()
        text.writelines(f"{line}\n" for line in layout.before)
        writer = csv.writer(text, delimiter=layout.separator, lineterminator="\n")
        writer.writerow([*self.header, *columns])
        if layout.units:
            writer.writerow([*layout.units, *map(self._unit, columns)])
        for index, (row, *cells) in enumerate(zip(layout.rows, *added, strict=True)):
            writer.writerows(layout.comments.get(index, ()))
            writer.writerow([*row, *cells])
        writer.writerows(layout.comments.get(len(layout.rows), ()))
        content = text.getvalue().encode()
        with whole(target) as temporary:
            temporary.write_bytes(gzip.compress(content) if str(target).lower().endswith(".gz") else content)

    def _unit(self, name: str) -> str:
        """The unit of a new column: a curve has its column's unit; "" for slopes and outlier marks."""
        source, _, part = name.rpartition("_")
        is_curve = source in self.header and part not in ("outlier", "slope")
        return self.layout.units[self.header.index(source)] if self.layout.units and is_curve else ""


def read_comma_separated(path: Path, content: bytes, notation: Notation, wanted: Collection[str] = ()) -> CommaSeparated:
    """Read text whose first line names its columns, with the separator in `notation`, or commas, semicolons, tabs or vertical bars."""
    layout = read_layout(path, content, notation, wanted)
    return CommaSeparated(path, layout.names, replace(notation, separator=layout.separator), layout)
