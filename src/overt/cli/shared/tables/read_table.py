"""Read a table from a file; its first bytes identify the kind."""

import io
from collections.abc import Collection
from pathlib import Path

from overt.cli.shared.tables.comma_separated import read_comma_separated
from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.parquet import read_parquet
from overt.cli.shared.tables.spreadsheet import read_spreadsheet
from overt.cli.shared.tables.table import Table, file_kind
from overt.reading import reading


def read_table(path: Path, notation: Notation | None = None, wanted: Collection[str] = ()) -> Table:
    """Read a Parquet file, an Excel workbook, or a file of separated values, which may be compressed by gzip.

    `wanted` are column names from the caller: a first line with one of them has names.
    """
    notation = notation or Notation()
    if file_kind(path) == "Parquet":
        return read_parquet(path, path, notation)
    with reading(path, "a readable file to smooth", "check its name"):
        content = path.read_bytes()
    if content.startswith(b"PAR1"):
        return read_parquet(path, io.BytesIO(content), notation)
    if content.startswith(b"PK\x03\x04") or file_kind(path) == "Excel":
        return read_spreadsheet(path, content, notation)
    return read_comma_separated(path, content, notation, wanted)
