"""Read and write a table in an Excel workbook by openpyxl."""

import io
import math
import os
import warnings
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.table import Table
from overt.errors import InputError, needed_by
from overt.files import whole
from overt.reading import check_unpacked, reading
from overt.smoothing.data.series import Floats

_LAST_ROW = 2**20  # the last row of a sheet in Excel


@dataclass(frozen=True)
class Spreadsheet(Table):
    """The first sheet of a workbook, whose first row names the columns."""

    path: Path
    header: list[str]
    notation: Notation
    rows: dict[int, tuple[Any, ...]]  # by their number in the sheet
    content: bytes

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.rows)

    def cells(self, column: str) -> list[str]:
        """A column as text; dates in ISO 8601."""
        self.check_column(column)
        at = self.header.index(column)
        return [_text(row[at]) for row in self.rows.values()]

    def row_label(self, row: int) -> str:
        """A row's number in the sheet, counted from 1; the names are row 1."""
        return f"row {list(self.rows)[row]}"

    def check_target(self, target: Path, columns: list[str]) -> None:
        """Refuse a target that `write` would refuse, and a workbook with another damaged part, before the work."""
        super().check_target(target, columns)
        _ = self.workbook

    @cached_property
    def workbook(self) -> Any:
        """The whole workbook, with its formulas."""
        import openpyxl

        with _sound(self.path):
            return openpyxl.load_workbook(io.BytesIO(self.content))

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the workbook with these columns added to its first sheet; NaN is an empty cell, formulas stay formulas."""
        with _sound(self.path):
            sheet = self.workbook.worksheets[0]
            for at, (name, values) in enumerate(columns.items(), start=len(self.header) + 1):
                sheet.cell(1, at, name)
                for row, value in zip(self.rows, values.tolist(), strict=True):
                    sheet.cell(row, at, None if math.isnan(value) else value)
            content = io.BytesIO()
            self.workbook.save(content)
        with whole(target) as temporary:
            temporary.write_bytes(content.getbuffer())


def read_spreadsheet(path: Path, content: bytes, notation: Notation) -> Spreadsheet:
    """Read the first sheet of a workbook; formulas are read as their saved values."""
    with needed_by("an Excel file", "smooth"):
        import openpyxl
    with _sound(path):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            check_unpacked(path, len(content), sum(part.file_size for part in archive.infolist()))
        sheet = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets[0]
        sheet.reset_dimensions()  # the size stated in the file may be wrong, and rows are filled up to it
        header, rows = _header(sheet), {}
        if header:
            rows = _rows(path, sheet.iter_rows(min_row=2, max_col=len(header), values_only=True))
        names = [_text(name) for name in header]
    if not header or not rows:
        got = "an empty sheet" if not header else "only the first row"
        raise InputError(f"a row of column names and at least one row in {path}", got=got, fix="pass a file with both")
    return Spreadsheet(path, names, notation, rows, content)


def _header(sheet: Any) -> tuple[Any, ...]:
    """The first row, without empty cells at its end."""
    header = next(iter(sheet.iter_rows(max_row=1, values_only=True)), ())
    while header and header[-1] is None:
        header = header[:-1]
    return header


def _rows(path: Path, rows: Iterable[tuple[Any, ...]]) -> dict[int, tuple[Any, ...]]:
    """Every non-empty row, by its number in the sheet."""
    numbered: dict[int, tuple[Any, ...]] = {}
    for number, row in enumerate(rows, start=2):
        if number > _LAST_ROW:
            raise InputError(
                f"at most {_LAST_ROW:,} rows in {path}, as Excel has", got="a row after these", fix="split the table"
            )
        if any(cell is not None for cell in row):
            numbered[number] = row
    return numbered


@contextmanager
def _sound(path: Path) -> Iterator[None]:
    """Convert any error of openpyxl for a workbook to one InputError; suppress its warnings about content that is not read."""
    with (
        warnings.catch_warnings(),
        reading(path, "an Excel workbook with a table on its first sheet", "export it again as .xlsx, without a password"),
    ):
        warnings.simplefilter("ignore")
        yield


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell.isoformat() if isinstance(cell, date) else str(cell).strip()
