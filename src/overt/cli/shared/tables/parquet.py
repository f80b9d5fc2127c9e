"""Read and write a table in a Parquet file by pyarrow."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.numerals import Numbers, without_codes
from overt.cli.shared.tables.table import Table
from overt.errors import InputError, needed_by
from overt.files import whole
from overt.reading import reading
from overt.smoothing.data.series import Floats


@dataclass(frozen=True)
class Parquet(Table):
    """A Parquet file; columns are read on demand."""

    path: Path
    header: list[str]
    notation: Notation
    file: Any  # pyarrow.parquet.ParquetFile

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.file.metadata.num_rows

    def cells(self, column: str) -> list[str]:
        """A column as text; null is empty."""
        cells = self._column(column)
        with _sound(self.path):  # Python's dates end with the year 9999
            return ["" if cell is None else str(cell).strip() for cell in cells.to_pylist()]

    def row_label(self, row: int) -> str:
        """A row's number, counted from 0 as in pandas."""
        return f"row {row}"

    def read(self, column: str) -> Numbers:
        """A column as float64, null as NaN; numbers stored as text are parsed."""
        cells = self._column(column)
        if not _is_numeric(cells):
            return super().read(column)
        values = cells.cast("float64", safe=False).to_numpy().copy()
        infinite = np.flatnonzero(np.isinf(values))
        if infinite.size and self.notation.errors == "ask":
            raise self._not_a_number("inf", int(infinite[0]), column)
        values[infinite] = np.nan
        missing = int(np.isnan(values).sum()) - infinite.size
        return without_codes(values, {"": missing} if missing else {}, self.notation)._replace(
            unreadable=tuple(infinite.tolist())
        )

    def times(self, column: str) -> NDArray[Any]:
        """A column of times: float64, or datetime64 (in UTC if there is a time zone) for timestamps and dates."""
        import pyarrow

        if len(self.time_columns(column)) > 1:
            return super().times(column)
        cells = self._column(column)
        dated = pyarrow.types.is_timestamp(cells.type) or pyarrow.types.is_date(cells.type)
        if dated and not cells.null_count:
            unit = cells.type.unit if pyarrow.types.is_timestamp(cells.type) else "s"
            return cells.cast(pyarrow.timestamp(unit)).to_numpy()
        numbers = self.numbers(column) if _is_numeric(cells) else np.full(1, np.nan)
        return super().times(column) if np.isnan(numbers).any() else self.as_times(numbers, column)

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns added; NaN becomes null. It is written completely or not at all."""
        import pyarrow
        import pyarrow.parquet

        table = self._whole
        for name, values in columns.items():
            table = table.append_column(name, pyarrow.array(values, from_pandas=True))
        with whole(target) as temporary:
            pyarrow.parquet.write_table(table, temporary)

    def check_target(self, target: Path, columns: list[str]) -> None:
        """Refuse a target that `write` would refuse, and a file with another damaged column, before the work."""
        super().check_target(target, columns)
        _ = self._whole

    @property
    def _whole(self) -> Any:
        with _sound(self.path):
            return _valid(self.file.read(), self.length)

    def _column(self, column: str) -> Any:
        import pyarrow

        self.check_column(column)
        with _sound(self.path):
            cells = _valid(self.file.read(columns=[column]), self.length).column(0)
            return cells.cast(cells.type.value_type) if pyarrow.types.is_dictionary(cells.type) else cells


def read_parquet(path: Path, content: Any, notation: Notation) -> Parquet:
    """Open a Parquet file, or its bytes in memory; its columns are read later."""
    with needed_by("a Parquet file", "smooth"):
        import pyarrow
        import pyarrow.parquet
    with _sound(path):
        file = pyarrow.parquet.ParquetFile(content)
        names, rows = file.schema_arrow.names, file.metadata.num_rows
    if rows == 0:
        raise InputError(f"at least one row in {path}", got="none", fix="pass a file with rows")
    return Parquet(path, names, notation, file)


def _sound(path: Path) -> AbstractContextManager[None]:
    """Convert any error of pyarrow for a file to one InputError."""
    return reading(path, "a Parquet file", "export it again")


def _valid(table: Any, rows: int) -> Any:
    """The table, checked: text that is not UTF-8 and indices out of range would otherwise crash the process later."""
    table.validate(full=True)
    if table.num_rows != rows:
        raise ValueError(f"{table.num_rows:,} rows in the place of {rows:,}")
    return table


def _is_numeric(column: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
