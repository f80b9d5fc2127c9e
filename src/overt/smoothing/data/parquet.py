"""A table in a Parquet file, read and written by pyarrow."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overt.errors import InputError, MissingExtra
from overt.files import whole
from overt.smoothing.data.series import Floats
from overt.smoothing.data.table import Table


@dataclass(frozen=True)
class Parquet(Table):
    """A Parquet file; each column is read when it is asked for."""

    path: Path
    header: list[str]
    file: Any  # pyarrow.parquet.ParquetFile

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.file.metadata.num_rows

    def cells(self, column: str) -> list[str]:
        """A column as text; a null is empty."""
        return ["" if cell is None else str(cell).strip() for cell in self._column(column).to_pylist()]

    def place(self, row: int) -> str:
        """A row's number, counted from 0 as pandas counts it."""
        return f"row {row}"

    def numbers(self, column: str) -> Floats:
        """A column as float64, null as NaN; numbers kept as text are read as text is."""
        found = self._column(column)
        if not _is_numeric(found):
            return super().numbers(column)
        numbers = found.cast("float64", safe=False).to_numpy()
        infinite = np.flatnonzero(np.isinf(numbers))
        if infinite.size:
            fix = "mend that cell, or empty it if the value is missing"
            raise InputError(f"the column {column} holds numbers", got=self._cell("inf", infinite[0], column), fix=fix)
        return numbers

    def times(self, column: str) -> NDArray[Any]:
        """A column of times: float64, or datetime64 (in UTC, where a zone is given) for timestamps and dates."""
        import pyarrow

        found = self._column(column)
        dated = pyarrow.types.is_timestamp(found.type) or pyarrow.types.is_date(found.type)
        if dated and not found.null_count:
            unit = found.type.unit if pyarrow.types.is_timestamp(found.type) else "s"
            return found.cast(pyarrow.timestamp(unit)).to_numpy()
        numbers = self.numbers(column) if _is_numeric(found) else np.full(1, np.nan)
        return super().times(column) if np.isnan(numbers).any() else numbers

    def write(self, target: str | os.PathLike[str], columns: Mapping[str, Floats]) -> None:
        """Write the file with these columns more; NaN becomes null. It is written whole or not at all."""
        import pyarrow
        import pyarrow.parquet

        table = self.file.read()
        for name, values in columns.items():
            table = table.append_column(name, pyarrow.array(values, from_pandas=True))
        with whole(target) as temporary:
            pyarrow.parquet.write_table(table, temporary)

    def _column(self, column: str) -> Any:
        import pyarrow

        self.check_column(column)
        found = self.file.read(columns=[column]).column(0)
        return found.cast(found.type.value_type) if pyarrow.types.is_dictionary(found.type) else found


def read_parquet(path: Path) -> Parquet:
    """Open a Parquet file, without reading its columns yet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("a Parquet file", needs="pyarrow", extra="smooth") from error
    try:
        file = pyarrow.parquet.ParquetFile(path)
    except OSError as error:
        got = f"{path}: {error.strerror or error}"
        raise InputError("the file to smooth can be read", got=got, fix="check the path") from error
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path} is a Parquet file", got=str(error), fix="export it anew") from error
    if file.metadata.num_rows == 0:
        raise InputError(f"{path} has at least one row", got="none", fix="name a file with some")
    return Parquet(path, file.schema_arrow.names, file)


def _is_numeric(column: Any) -> bool:
    import pyarrow

    return pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type)
