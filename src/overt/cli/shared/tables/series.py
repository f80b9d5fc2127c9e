"""The series of tables: a column's rows in a group or file, and a report on what was read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overt.cli.shared.tables.dates import past_midnight
from overt.cli.shared.tables.notation import Notation
from overt.cli.shared.tables.read_table import read_table
from overt.cli.shared.tables.table import Table
from overt.errors import InputError
from overt.files import make_folder
from overt.smoothing.data.series import Floats, Indices
from overt.smoothing.data.times import Times, read_times

_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".csv.gz", ".tsv.gz", ".txt.gz", ".xlsx", ".xlsm", ".parquet", ".pq")
# SLOPES: the columns of a derivative.
SLOPES = ("slope", "slope_lower", "slope_upper")
# _NAMED: cells named in a report; the others are counted.
_NAMED = 3


class TableSeries(NamedTuple):
    """The rows of one group in a column of one table."""

    name: str
    column: str
    table: Table
    rows: Indices
    values: Floats
    times: NDArray[Any] | None
    zone: tzinfo | None  # the zone of times that are dates, stored in UTC

    @property
    def times_in_zone(self) -> NDArray[Any] | Times | None:
        """The times for the smoother: a daily season follows a zone's clock."""
        return self.times if self.zone in (None, UTC) else read_times(self.times, self.values.size, self.zone)


@dataclass(frozen=True)
class Account:
    """A report on the columns read from one file."""

    file: str
    rows: int
    remarks: tuple[str, ...]  # sentences about lines that are no rows
    missing: Mapping[str, Mapping[str, int]]  # for each column, the count of each spelling; "" is an empty cell
    unreadable: Mapping[str, int]  # for each column, the cells that count as missing, since they are no numbers in its unit
    first_unreadable: Mapping[str, tuple[str, ...]]  # with their positions in the file
    units: Mapping[str, str]
    left_out: int  # skipped rows, without a time or group
    first_left_out: str

    def facts(self) -> dict[str, Any]:
        """The counts as plain data."""
        return {name: list(value) if name == "remarks" else value for name, value in vars(self).items()}

    def sentences(self, several: bool = False) -> list[str]:
        """Notes for an analyst on the reading, with the file's name if there are several."""
        sentences = self._sentences()
        return [f"{self.file}: {sentence}" for sentence in sentences] if several else sentences

    def _sentences(self) -> list[str]:
        parts = [*self.remarks]
        several = len(self.missing) > 1
        for column, counts in self.missing.items():
            suffix = f" in {column}" if several else ""
            if counts:
                listed = ", ".join(f"{count} × {spelling or 'empty'}" for spelling, count in counts.items())
                total = sum(counts.values())
                parts.append(f"{total} missing {'value' if total == 1 else 'values'}{suffix}: {listed}.")
            if count := self.unreadable[column]:
                more = ", …" if count > _NAMED else ""
                verb = "1 cell is no number and counts" if count == 1 else f"{count} cells are no numbers and count"
                parts.append(f"{verb} as missing{suffix}: {', '.join(self.first_unreadable[column])}{more}.")
            if unit := self.units[column]:
                parts.append(f"Values{suffix} are in {unit}.")
        if self.left_out:
            counted = "1 row was" if self.left_out == 1 else f"{self.left_out} rows were"
            parts.append(f"{counted} left out, without a time or a group that can be read: first {self.first_left_out}.")
        return parts


def list_files(paths: Sequence[Path]) -> list[Path]:
    """The files of paths, in folders those with a table's suffix; two with the same name are refused."""
    files: list[Path] = []
    for path in paths:
        inside = (
            sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
            if path.is_dir()
            else [path]
        )
        tables = [file for file in inside if not path.is_dir() or file.name.lower().endswith(_SUFFIXES)]
        if not tables:
            raise InputError(
                f"a table in the folder {path}", got="none", fix=f"pass a folder with files of {', '.join(_SUFFIXES)}"
            )
        files += tables
    names = [file.name for file in files]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError("files of different names", got=f"{twice} twice", fix="rename one, or smooth one folder at a time")
    return files


def output_paths(files: Sequence[Path], out: Path | None, several: bool, *, make: bool = False) -> dict[str, Path]:
    """The output path for each file, by the name of its option: `out`, or a file in the folder `out` if there are several."""
    if out is None:
        return {}
    if not several:
        return {"--out": out}
    if out.exists() and not out.is_dir():
        raise InputError("a folder as --out of several files", got=str(out), fix="name a folder")
    if make:
        make_folder(out)
    return {f"--out {file.name}": out / file.name for file in files}


def input_paths(files: Sequence[Path]) -> dict[str, Path]:
    """The input files, by the name of their argument."""
    return {"FILE": files[0]} if len(files) == 1 else {f"FILE {file.name}": file for file in files}


def read_tables(
    files: Sequence[Path], notation: Notation, columns: Sequence[str], time: str | None, group: str | None
) -> list[Table]:
    """Read each file; column names from the caller help to tell names from rows."""
    wanted = [*columns, *(time.split(",") if time else ()), *([group] if group else [])]
    return [read_table(file, notation, wanted) for file in files]


def read_series(
    tables: Sequence[Table], columns: Sequence[str], time: str | None, group: str | None
) -> tuple[list[TableSeries], list[Account]]:
    """The series of each table, by column and group, and the accounts of the tables. `group` "-" means that there are no groups."""
    series: list[TableSeries] = []
    accounts = []
    for table in tables:
        times, zone = (table.times(time), table.zone(time)) if time else (None, None)
        _ask_for_groups(table, time, times, group)
        names = table.names(group) if group and group != "-" else [""] * table.length
        usable = (
            np.ones(table.length, dtype=bool)
            if times is None
            else ~(np.isnan(times) if times.dtype.kind == "f" else np.isnat(times))
        )
        if group and group != "-":
            usable &= np.array([name != "" for name in names])
        group_rows = _rows_by_name(names, usable)
        numbers = {column: table.read(column) for column in columns}
        label = table.path.name.partition(".")[0] if len(tables) > 1 else ""
        for column in columns:
            for name, rows in group_rows.items():
                parts = [label, column if len(columns) > 1 or not (label or name) else "", name]
                moments = None if times is None else _ascending_clocks(times[rows], table, rows)
                full = " · ".join(part for part in parts if part)
                series.append(TableSeries(full, column, table, rows, numbers[column].values[rows], moments, zone))
        left = np.flatnonzero(~usable)
        accounts.append(
            Account(
                table.path.name,
                table.length,
                tuple(table.remarks),
                {column: numbers[column].missing for column in columns},
                {column: numbers[column].refused.size for column in columns},
                {column: tuple(table.labels(column, numbers[column].refused[:_NAMED])) for column in columns},
                {column: numbers[column].unit or table.unit_line(column) for column in columns},
                left.size,
                table.row_label(int(left[0])) if left.size else "",
            )
        )
    _refuse_empty(series, accounts)
    return series, accounts


def smoothed_columns(series: Sequence[TableSeries], curves: Sequence[Any], table: Table) -> dict[str, Floats]:
    """The columns to write into a table: each curve with its band, in its rows."""
    columns: dict[str, Floats] = {}
    for member, curve in zip(series, curves, strict=True):
        if member.table is not table:
            continue
        band = (("smooth", curve.values), ("lower", curve.lower), ("upper", curve.upper))
        more = [("outlier", curve.outliers), *([] if curve.slope is None else zip(SLOPES, curve.slope, strict=True))]
        for part, values in (*band, *curve.components().items(), *more):
            name = f"{member.column}_{part}"
            if name not in columns:
                columns[name] = np.full(table.length, np.nan)
            if values is not None:
                columns[name][member.rows] = values
    return columns


def _ask_for_groups(table: Table, time: str | None, times: NDArray[Any] | None, group: str | None) -> None:
    """Refuse repeated times without a group option, if the table has a text column that may be the groups."""
    if group is not None or time is None or times is None or np.unique(times).size == times.size:
        return
    texts = [name for name in table.text_columns() if name not in table.time_columns(time)]
    if texts:
        first = int(np.setdiff1d(np.arange(times.size), np.unique(times, return_index=True)[1])[0])
        got = f"one that is there twice, first at {table.row_label(first)}, and the text in column {', '.join(texts)}"
        fix = f"pass --group {texts[0]}, or --group - if the rows are one series"
        raise InputError(f"different times in column {time}, or a --group", got=got, fix=fix)


def _ascending_clocks(times: NDArray[Any], table: Table, rows: Indices) -> NDArray[Any]:
    """Times of day become ascending durations, also over midnight; other times are unchanged."""
    if times.dtype.kind != "m":
        return times
    lengths = past_midnight(times)
    falls = np.flatnonzero(np.diff(lengths) < np.timedelta64(0, "us"))
    if falls.size:
        fix = "name the column of dates too, as in --time date,clock, or sort the rows"
        raise InputError(
            "times of day that ascend", got=f"one that goes back at {table.row_label(int(rows[falls[0] + 1]))}", fix=fix
        )
    return lengths


def _rows_by_name(names: Sequence[str], usable: NDArray[np.bool_]) -> dict[str, Indices]:
    """The usable rows of each group, in the order of first appearance."""
    groups: dict[str, list[int]] = {}
    for row in np.flatnonzero(usable).tolist():
        groups.setdefault(names[row], []).append(row)
    return {name: np.array(rows) for name, rows in groups.items()}


def _refuse_empty(series: Sequence[TableSeries], accounts: Sequence[Account]) -> None:
    """Refuse tables without any value, and report what was missing."""
    if any(not np.isnan(member.values).all() for member in series):
        return
    counts = [
        f"{count} × {spelling or 'empty'}"
        for account in accounts
        for column in account.missing.values()
        for spelling, count in column.items()
    ]
    unreadable = sum(count for account in accounts for count in account.unreadable.values())
    got = (
        "only NaN"
        if not counts and not unreadable
        else ", ".join(counts + ([f"{unreadable} cells that are no numbers"] if unreadable else []))
    )
    fix = (
        "pass at least one number that is not NaN"
        if got == "only NaN"
        else "check --missing and --errors, or choose another column"
    )
    raise InputError("a series with at least one value", got=got, fix=fix)
