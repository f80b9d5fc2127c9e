"""A table in an Excel workbook, read and written by openpyxl."""

import io
import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from overt.errors import InputError, MissingExtra
from overt.files import whole
from overt.smoothing.data.notation import Notation
from overt.smoothing.data.series import Floats
from overt.smoothing.data.table import Table


@dataclass(frozen=True)
class Spreadsheet(Table):
    """The first sheet of a workbook: its first row names the columns."""

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
        """A row's number in the sheet, counted from 1, the names being row 1."""
        return f"row {list(self.rows)[row]}"

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the workbook with these columns added to its first sheet; NaN is an empty cell, formulas stay formulas."""
        import openpyxl

        workbook = openpyxl.load_workbook(io.BytesIO(self.content))
        sheet = workbook.worksheets[0]
        for at, (name, values) in enumerate(columns.items(), start=len(self.header) + 1):
            sheet.cell(1, at, name)
            for row, value in zip(self.rows, values.tolist(), strict=True):
                sheet.cell(row, at, None if math.isnan(value) else value)
        with whole(target) as temporary, temporary.open("wb") as file:
            workbook.save(file)


def read_spreadsheet(path: Path, content: bytes, notation: Notation) -> Spreadsheet:
    """Read the first sheet of a workbook; of formulas, the values that were computed when it was saved."""
    try:
        import openpyxl
    except ModuleNotFoundError as error:
        raise MissingExtra("an Excel file", needs="openpyxl", extra="smooth") from error
    try:
        workbook = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        header, *rows = (tuple(row) for row in workbook.worksheets[0].iter_rows(values_only=True))
    except (zipfile.BadZipFile, KeyError, ValueError, IndexError) as error:
        fix = "export it again, and put the table on its first sheet"
        raise InputError(f"an Excel workbook with a table in {path}", got=f"an error: {error}", fix=fix) from error
    while header and header[-1] is None:
        header = header[:-1]
    numbered = {number: row[: len(header)] for number, row in enumerate(rows, start=2) if any(cell is not None for cell in row)}
    if not header or not numbered:
        got = "an empty sheet" if not header else "only the first row"
        raise InputError(f"a row of column names and at least one row in {path}", got=got, fix="pass a file with both")
    return Spreadsheet(path, [_text(name) for name in header], notation, numbered, content)


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return cell.isoformat() if isinstance(cell, date) else str(cell).strip()
