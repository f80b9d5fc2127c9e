"""Read a table from a file, by its suffix."""

from pathlib import Path

from overt.smoothing.data.comma_separated import read_comma_separated
from overt.smoothing.data.parquet import read_parquet
from overt.smoothing.data.table import Table, is_parquet


def read_table(path: Path) -> Table:
    """Read a Parquet file, or a file of comma-separated values."""
    return read_parquet(path) if is_parquet(path) else read_comma_separated(path)
